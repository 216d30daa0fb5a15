"""Control: what operators ask of a running fleet.

Belongs here: checking and recording a freeze, an approval or a retry (``commands``), and reading which freezes and
approvals are in force (``directives``). Does not: obeying them (``plan/guards``, ``rollout/state``). ``cli/``
calls the commands, beside a running daemon; ``pipeline.py`` reads the directives.
"""
