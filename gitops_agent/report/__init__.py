"""Report: what people and machines read about the fleet.

What belongs here: shapes (``json_shapes``: the stable JSON, from model values), texts for people rendered from
those shapes (``*_text``, on ``render``), and the sinks that carry reports out. Secrets are masked in the
shape, before anything is rendered; text from elsewhere is escaped where it is rendered.

What does not: decisions about agents (``plan/``), git itself (``source/``), arguments and exit codes (``cli/``).
Called by the outbox after a pass, and by ``cli/`` for everything it prints.
"""
