from __future__ import annotations

from tests.support.fast_disk import fast_disk

__all__ = ["fast_disk"]
