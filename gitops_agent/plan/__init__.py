"""The plan stage: desired state, observations and bases in; one frozen plan out. Pure.

What belongs here: pairing the three legs of a resource, comparing them, saying why they differ and how sure we
are, ordering the steps, and the guards that hold some of them. What does not: asking drivers (``observe/``),
doing anything (``reconcile/``), rendering (``report/``, ``cli/``). No module here does I/O or reads a clock,
the environment or randomness: time is ``PlanContext.now``.

``pipeline.py`` calls ``build.build``. The road inside::

    build ─► three_way ─► compare ─► classify (reasons, confidence) ─► action ─► order ─► guards/
"""
