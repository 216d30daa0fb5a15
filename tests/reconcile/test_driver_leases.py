"""Leases live with the live system where its driver brings them, and on the host for the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from gitops_agent.errors import ObserveError
from gitops_agent.model.key import AgentKey
from gitops_agent.reconcile.leases.holder import DriverLeases
from tests.pipeline.world import Inline
from tests.support.plugins import connected

from .make import ONE, TWO

pytestmark = pytest.mark.unit


class Leases:
    """Leases that a test gives away."""

    def __init__(self, *taken: AgentKey) -> None:
        self.taken = set(taken)
        self.asked: list[AgentKey] = []

    def claim(self, agents: Collection[AgentKey]) -> Mapping[AgentKey, str]:
        self.asked += sorted(agents)
        return {agent: "held by another" for agent in agents if agent in self.taken}

    def holds(self, agent: AgentKey) -> bool:
        return agent not in self.taken


class Plain:
    pass


def leases(host: Any, own: Any) -> DriverLeases:
    return DriverLeases(host, connected({"own": own, "plain": Plain()}), Inline())  # type: ignore[dict-item]


def test_each_agent_is_asked_for_where_it_lives() -> None:
    host, own = Leases(), Leases(TWO)
    found = leases(host, own)
    assert found.claim({ONE: {"plain"}, TWO: {"own"}}) == {TWO: "held by another"}
    assert (host.asked, own.asked) == ([ONE], [TWO])
    assert (found.holds(ONE), found.holds(TWO)) == (True, False)


def test_an_agent_in_two_systems_needs_both() -> None:
    host, own = Leases(), Leases()
    found = leases(host, own)
    assert found.claim({ONE: {"plain", "own"}}) == {}
    assert found.holds(ONE)
    host.taken.add(ONE)
    assert not found.holds(ONE)


def test_a_system_that_does_not_answer_gives_no_lease_and_holds_no_others() -> None:
    class Down(Leases):
        def claim(self, agents: Collection[AgentKey]) -> Mapping[AgentKey, str]:
            raise ObserveError("no answer")

    found = leases(Leases(), Down()).claim({ONE: {"own"}, TWO: {"plain"}})
    assert found == {ONE: "its lease cannot be taken: no answer"}
