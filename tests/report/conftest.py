"""How property tests run here: machines are shared, so no test fails for being slow once."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("report", deadline=None, max_examples=60)
settings.load_profile("report")
