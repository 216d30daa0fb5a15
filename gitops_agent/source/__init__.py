"""The source: the Git repository as a bare mirror, never a work tree.

What belongs here: addresses and their grammar, the one module that calls git (``git.py``, with GitPython's classes
in ``gitpython.py``), the mirror (fetch, read trees), trust in a new head, notes, revert commits, and watching a
local repository. What does not: reading documents (``snapshot/``), deciding when to fetch (``daemon/``), the text
of a note (``report/``).

Callers: ``wiring.py`` builds a ``Mirror``, ``Notes``, ``BranchWriter`` and ``RefWatcher``; ``pipeline.py`` sees
them through ``ports.py``. Only ``bounded_process.py`` starts git, for ``git.py`` and ``gitpython.py``.
"""
