"""Report: what we tell people and machines about the fleet.

What belongs here: the words for what happened. Pure renderings (JSON shapes, notes, text for people), the
recognition of reverts, and the sinks that carry reports out (Git notes, Sentry, logs, the live view). Whatever
leaves the process goes through ``redact`` (no secrets) and ``inert`` (no terminal tricks) first.

What does not: decisions about agents (``plan/``), git itself (``source/``), arguments and exit codes (``cli/``).
Called by ``pipeline.py`` at the end of every pass, and by ``cli/`` for everything it prints.
"""
