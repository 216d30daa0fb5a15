"""Status: what a pass means for agents and commits. Pure.

Belongs here: the steps of ``summarize`` (statuses of agents, the phase of the newest commit, its gate, what is
held, proposals that are due, findings), the rules for one agent (``conditions``), and
the one function that says when to run again (``requeue``). Does not: rendering (``report/``), writing
(``journal/``). Called by ``pipeline.py`` at the end of every pass; all of it is written in one transaction.
"""
