"""The first line of ``status``: an agent that could not be looked at is unknown, and no agent that is down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import OBSERVE_FAILED, AgentStatus, Phase

from .texts import status_text
from .values import NOW, SHA, FleetStatus, a_condition, a_status

pytestmark = pytest.mark.unit

AWAY = "list pods: no route to host; check the network"


def unknown(name: str, why: str = AWAY) -> AgentStatus:
    unseen = a_condition(status=False, reason=OBSERVE_FAILED, message=why)
    return replace(a_status(AgentKey("acme", name), ready=False), conditions=(unseen,))


def headline(*agents: AgentStatus) -> str:
    return status_text(FleetStatus("x", SHA, SHA, Phase.RECONCILING, list(agents), at=NOW)).partition("\n")[0]


def test_it_says_how_many_agents_nobody_could_look_at_and_why() -> None:
    assert f"0 of 2 ready; 2 unknown: {AWAY}" in headline(unknown("a"), unknown("b"))
    assert "unknown" not in headline(a_status(), a_status(AgentKey("acme", "down"), ready=False))


def test_it_names_the_cause_of_most_and_how_many_others_there_are() -> None:
    found = headline(unknown("a"), unknown("b", "no right to list pods"), unknown("c"), a_status())
    assert f"1 of 4 ready; 3 unknown: {AWAY} (and 1 other cause)" in found
