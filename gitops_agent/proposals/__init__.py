"""Proposals: commits that we make and push ourselves. A revert when a gate failed, a branch where live decides a
field, a rollback that an operator asked for.

``outbox`` runs the jobs on threads of its own; ``revert`` and ``import_live`` decide what is to be proposed
(pure) and make it. Threads return values and write nothing: a pass folds them into its state and commits them.
Nothing here changes a live system.

Called by the pipeline (``outbox``), ``status.summarize`` (the pure parts) and the verb ``rollback``.
"""
