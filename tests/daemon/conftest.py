from __future__ import annotations

from tests.pipeline.conftest import world
from tests.support.fast_disk import fast_disk

__all__ = ["fast_disk", "world"]
