"""Read-only use cases: what the verbs ask that change nothing.

Belongs here: answers made of the journal (``fleet``) and of a plan that is not carried out (``plan_preview``,
``drift``). Does not: rendering (``report/``), options and exit codes (``cli/``). ``cli/`` calls it; no module here
writes or takes a lock.
"""
