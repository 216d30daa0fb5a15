"""The adapters to live systems, one folder each.

What belongs here: for every live system ``spec.py`` (pure: what a document asks of it), ``observe.py`` (reads)
and ``apply.py`` (writes), tied together by the factory ``driver`` that an entry point in the group
``gitops_agent.drivers`` names. ``place.py`` says where local drivers keep an agent's files. What does not:
deciding what to do (``plan/``), retrying (``reconcile/``), knowledge of another driver. Called by ``wiring.py`` to
be built, by ``snapshot/`` to compile, by ``observe/`` to look, by ``reconcile/`` to act.
"""
