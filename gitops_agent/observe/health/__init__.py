"""Health of agents: probes, heartbeats and minimum uptime, where the live system does not say it itself.

What belongs here: running probes that are due, remembering their answers (``history``), asking every source when
one reports that an agent is stuck, and the result (``evaluate``, ``monitor``). What does not: what a document asks
(``model/health_spec.py``) and restarting (``plan/``).
"""
