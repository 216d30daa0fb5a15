"""Carry out a plan, and nothing but the plan; then say how the agents are.

Belongs here: intents and outcomes around driver calls (``execute``), when to try again (``retry``), probes and
the verdict on health (``probe``, ``health``). Does not: deciding what to do (``plan/``), what to tell people
(``report/``). Called by ``pipeline.py`` only.
"""
