"""Behaviour that users see, stage by stage; what several stages share is in ``support``."""
