"""Daemon: when to run a pass.

Belongs here: the loop of ``run`` and of ``once`` (``loop``), the requests it serves (``queue``), asking the source
on a thread of its own (``fetcher``), and whether all of this is alive (``liveness``). Does not: what a pass does
(``pipeline.py``), signals and threads of others (``wiring.py``). Started by ``cli/`` through ``wiring.py``.
"""
