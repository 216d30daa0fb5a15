"""Ask every driver what is live, at the same time, each for a complete answer.

Belongs here: fanning out, collecting, remembering which drivers could not answer. Does not: judging what was
seen (``plan/``) or knowing any live system (``drivers/``). Called by ``pipeline.py`` only.
"""
