"""The command line: arguments in, exit codes and text out. One file per family of verbs.

Belongs here: parsing arguments, choosing text or JSON, asking on a terminal. Does not: rendering itself
(``report/``), deciding anything (``plan/``), knowing concrete classes (``wiring.py``). Nothing heavy is
imported before a verb runs, so ``--help`` answers at once.
"""

import gc


def main() -> None:
    """The console script."""
    # Imports make no garbage, and looking for it is a sixth of the time of ``status``. Verbs that last enable it.
    gc.disable()
    from gitops_agent.cli.app import app

    app()
