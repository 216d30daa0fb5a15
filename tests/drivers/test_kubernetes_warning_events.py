"""Why something is not well is asked for in the background, and no faster than the server allows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentKey
from gitops_agent.drivers.kubernetes import warning_events
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.warning_events import FIRST_SECONDS, WarningEvents

pytestmark = pytest.mark.unit


class Clock:
    """The time, which passes where somebody waits for it."""

    now = 0.0

    def monotonic(self) -> float:
        """The time."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let some of it pass."""
        self.now += seconds


def test_a_server_that_asks_for_patience_is_asked_nothing_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also about other agents: it is the same server."""
    clock, asked = Clock(), list[float]()
    monkeypatch.setattr(warning_events, "time", clock)
    monkeypatch.setattr(warning_events, "PER_SECOND", 1e9)

    def get(_path: str, **_query: Any) -> dict[str, Any]:
        asked.append(clock.now)
        if len(asked) == 1:
            raise ApiError(429, "TooManyRequests", "later", retry_after=60)
        warnings.close()
        return {"items": []}

    cluster: Any = SimpleNamespace(client=SimpleNamespace(get=get))
    warnings = WarningEvents(cluster, lambda _agent: None)
    monkeypatch.setattr(warnings, "_begin", lambda: None)  # here, and not on a thread
    monkeypatch.setattr(warnings._news, "wait", clock.wait)
    for name in ("a", "b"):
        warnings.about(AgentKey("acme", name), "acme", f"uid-{name}")
    warnings._ask_all()
    assert asked == [FIRST_SECONDS, FIRST_SECONDS + 60]
