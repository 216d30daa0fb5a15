"""The web: what ``run`` serves over HTTP, for scrapers and for supervisors of processes.

What belongs here: the address we listen on, the server and its thread, the paths and their answers. What does not:
what a metric means (``report/``), what being alive means (``daemon/liveness.py``), anything that acts.

This is the one place with asyncio in it, an adapter at the edge: the server is written that way, so it gets a
thread with an event loop of its own, and everything it serves is a plain callable that returns at once and
takes no lock a pass may hold. Nothing outside this folder awaits anything.

Called by ``wiring.py`` alone, for ``run``.
"""
