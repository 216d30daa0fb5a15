"""gitops-agent: a GitOps pull agent for fleets of AI agents.

The way data flows, and the folder where each step lives::

    trigger ─► source ─► snapshot ─► observe ─► plan ─► reconcile ─► report
    poll       fetch     parse       live      pair     intent       git notes
    watch      verify    validate    state     diff     apply        journal
    resync     (trust)   overlay     from      classify outcome      Sentry
                         compile     drivers   order    health       console
                                               guard    journal

`pipeline.py` calls the stages in this order; `daemon.py` says when; `wiring.py` is the only file that knows
every concrete class; `model/` holds the values that travel between stages; `ports.py` the Protocols.
"""

__version__ = "0.1.0"
