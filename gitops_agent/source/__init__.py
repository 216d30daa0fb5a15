"""The source: the Git repository as we see it, a bare mirror and never a work tree.

What belongs here: addresses and their grammar, the one door to git (``git.py``), the mirror (fetch, read trees),
trust in a new head, notes, revert commits, and noticing that a local repository moved. What does not: reading
documents (``snapshot/``), deciding when to ask (``daemon.py``), what a note says (``report/``).

Callers: ``wiring.py`` builds a ``Mirror``, ``Notes``, ``BranchWriter`` and ``RefWatcher``; ``pipeline.py`` sees
them through ``ports.py``. Only ``git.py`` starts git.
"""
