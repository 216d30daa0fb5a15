"""Events are told in the background, and nothing that goes wrong with one ends the telling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentKey, ApplyError, ObserveError, Record, Redactor, ResourceKey, Verb
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.events import Events
from gitops_agent.drivers.kubernetes.kinds import DEPLOYMENT
from gitops_agent.errors import UsageError

BOT = AgentKey("acme", "bot")
APPLIED = b'{"metadata":{"managedFields":[{"manager":"gitops-agent","operation":"Apply"}]}}'


class Refusing:
    """A client whose first request fails."""

    def __init__(self, problem: Exception) -> None:
        self.problem: Exception | None = problem
        self.posted: list[str] = []

    def request(self, _method: str, _path: str, *, body: Any) -> None:
        """Take an event, or fail."""
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        self.posted.append(body["message"])


@pytest.mark.parametrize(
    "problem",
    [
        ApiError(403, "Forbidden", "no"),
        ApplyError("another leads"),
        ObserveError("no token"),
        UsageError("no file"),
        RuntimeError("what nobody thought of"),
    ],
)
def test_one_that_cannot_be_told_keeps_nothing_from_the_next(problem: Exception) -> None:
    entry = Entry(DEPLOYMENT, "acme", "bot", "uid", "1", 1, BOT, APPLIED)
    client = Refusing(problem)
    cluster: Any = SimpleNamespace(
        client=client,
        instance="prod",
        cache=SimpleNamespace(
            of_agent=lambda _agent, kind: (entry,) if kind is DEPLOYMENT else (),
            is_of=lambda tenant, namespace: tenant == namespace,
        ),
        clock=SimpleNamespace(now=lambda: 0.0),
        redactor=Redactor(),
    )
    events = Events(cluster)
    for word in ("first", "second"):
        action: Any = SimpleNamespace(
            key=ResourceKey(BOT, "runtime", "kubernetes"), verb=Verb.UPDATE, message=word, reason="SpecChanged"
        )
        events.record(Record(action, "0" * 40, ok=True, message=word))
    events.close(wait=5)
    assert [each.split()[0] for each in client.posted] == ["second"]
