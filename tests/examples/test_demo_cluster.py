"""How the demo leaves a cluster: what it says of the namespaces is so."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent_demo.cluster import end_namespaces

pytestmark = pytest.mark.unit


class Ending:
    """A cluster in which a namespace that is deleted is still listed for so many looks."""

    def __init__(self, looks: int) -> None:
        self._there, self._looks = ["gitops-agent-demo-acme", "gitops-agent-demo-globex"], looks
        self._deleted = False

    def get(self, _path: str, **_query: Any) -> dict[str, Any]:
        if self._deleted:
            self._looks -= 1
        left = [] if self._looks < 0 else self._there
        return {"items": [{"metadata": {"name": name}} for name in left]}

    def delete(self, _path: str) -> None:
        self._deleted = True


def end(looks: int, seconds: float) -> str:
    return end_namespaces(cast("Client", Ending(looks)), seconds)


def test_nothing_is_said_to_be_gone_before_it_is() -> None:
    assert end(looks=1, seconds=60) == ("2 namespaces with everything in them were ended; nothing is left running")
    slow = end(looks=100, seconds=0)
    assert "nothing is left" not in slow
    assert "still being deleted: gitops-agent-demo-acme gitops-agent-demo-globex" in slow
