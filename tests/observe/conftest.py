from __future__ import annotations

import pytest

from gitops_agent.testing.clock import FrozenClock
from tests.pipeline.world import Inline


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def pool() -> Inline:
    return Inline()
