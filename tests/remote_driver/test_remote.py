"""A live system that core does not know: found by entry point, with a kind and a section of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Context
from gitops_agent.drivers.plugins import Connections, Plugins
from gitops_agent.errors import UsageError
from gitops_agent.testing.clock import FrozenClock
from tests.remote_driver.conftest import HERE
from tests.remote_driver.server import RemoteSystem
from tests.support.fleet import Fleet


def document(fleet: Fleet, name: str, *, image: str = "bot:1", quota: int = 100, **spec: Any) -> str:
    runtime = {"driver": "remote", "image": image, "command": [], "remote": {"region": "south"}}
    runtime |= spec.pop("runtime", {})
    return fleet.agent(name, runtime=runtime, mailbox={"address": f"{name}@example.com", "quota": quota}, **spec)


def commit(fleet: Fleet, *names: str, **more: Any) -> str:
    return fleet.commit({f"{name}.yaml": document(fleet, name, **more) for name in names})


def once(fleet: Fleet, seconds: int = 30) -> dict[str, Any]:
    """What ``once`` says, however it ends: the verdict on a commit stays when its agents recover later."""
    return fleet.call("once", "--timeout", f"{seconds}s", "-o", "json").json


def ready(answer: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in answer["agents"] if each["agent"].endswith(f"/{name}")]
    (condition,) = [each for each in found["conditions"] if each["type"] == "Ready"]
    return {"status": condition["status"], "reason": condition["reason"], "message": condition["message"]}


def test_from_creation_to_the_end(fleet: Fleet, system: RemoteSystem) -> None:
    commit(fleet, "a", "b")
    answer = fleet.once()
    a = f"{fleet.tenant}/a"
    assert system.workers[a]["region"] == "south"
    assert system.mailboxes[a]["address"] == "a@example.com"
    assert ready(answer, "a")["status"] is True

    # A change of the image restarts the worker, one of the quota touches the mailbox alone.
    commit(fleet, "a", image="bot:2")
    fleet.once()
    assert (system.workers[a]["image"], system.workers[a]["start"]) == ("bot:2", 3)
    commit(fleet, "a", image="bot:2", quota=200)
    before = system.calls["PUT workers"]
    fleet.once()
    assert (system.mailboxes[a]["quota"], system.calls["PUT workers"]) == (200, before)

    # Drift of both kinds is repaired: a field, and an absence.
    system.mailboxes[a]["quota"] = 1
    del system.workers[f"{fleet.tenant}/b"]
    fleet.once()
    assert system.mailboxes[a]["quota"] == 200
    assert f"{fleet.tenant}/b" in system.workers

    # Stopped is scaled to zero here, and not absence; what leaves Git goes.
    fleet.commit({"a.yaml": document(fleet, "a", image="bot:2", quota=200, lifecycle="Stopped"), "b.yaml": None})
    answer = fleet.once()
    assert list(system.workers) == [a]
    assert system.workers[a]["copies"] == 0
    assert ready(answer, "a")["reason"] == "Stopped"
    assert list(system.mailboxes) == [a]


def test_the_worst_health_decides(fleet: Fleet, system: RemoteSystem) -> None:
    system.active = False
    commit(fleet, "a", rollout={"healthTimeout": "2s"})
    assert ready(once(fleet, 5), "a") == {
        "status": False,
        "reason": "MailboxPending",
        "message": "a@example.com is pending",
    }
    system.active, system.ready = True, False
    assert ready(once(fleet, 3), "a")["message"] == "0 of 1 copies are ready"
    system.ready = True
    assert ready(once(fleet), "a")["status"] is True


def test_core_runs_the_probes_of_a_system_that_has_none(fleet: Fleet, system: RemoteSystem) -> None:
    system.probed_by_us = True
    probe = {"exec": {"command": ["ask"]}, "period": "1s"}
    commit(fleet, "a", probes={"readiness": probe}, rollout={"healthTimeout": "3s"})
    system.failing.add("ask")
    assert ready(once(fleet, 5), "a")["reason"] == "NotReadyYet"
    assert ["ask"] in system.commands
    system.failing.clear()
    assert ready(once(fleet), "a")["status"] is True


def test_a_lease_of_the_system_holds_another_back(fleet: Fleet, system: RemoteSystem) -> None:
    commit(fleet, "a")
    system.leases[f"{fleet.tenant}/a"] = "somebody-else"
    answer = fleet.once("--timeout", "3s", code=5)
    assert system.workers == {}
    assert any(finding["code"] == "LeaseHeld" for finding in answer["findings"])
    system.leases.clear()
    fleet.once()
    assert system.leases == {f"{fleet.tenant}/a": fleet.instance}


def test_a_rate_from_the_settings_bounds_the_driver(fleet: Fleet, system: RemoteSystem) -> None:
    commit(fleet, *"abcdef")
    slow = {"GITOPS_AGENT_DRIVERS__REMOTE__RATE": "0.01", "GITOPS_AGENT_DRIVERS__REMOTE__BURST": "2"}
    fleet.once("--timeout", "4s", code=5, **slow)
    assert len(system.workers) == 2
    fleet.once()
    assert len(system.workers) == 6


def test_a_system_that_is_down_hinders_no_verb_that_only_reads(fleet: Fleet, system: RemoteSystem) -> None:
    commit(fleet, "a")
    fleet.once()
    down = {f"GITOPS_AGENT_DRIVERS__{name}__URL": "http://127.0.0.1:9" for name in ("REMOTE", "MAILBOX")}
    before = sum(system.calls.values())
    assert fleet.call("validate", ".", **down).code == 0
    assert fleet.call("status", **down).code == 0
    schema = fleet.ask("schema", **down)["$defs"]
    assert schema["Options"]["properties"]["region"]
    assert "mailbox" in schema["AgentSpec"]["properties"]
    assert sum(system.calls.values()) == before, "nothing was asked"
    answer = fleet.call("once", "--timeout", "2s", "-o", "json", **down).json
    assert "does not answer" in ready(answer, "a")["message"]


def test_what_a_plugin_refuses_has_an_address(fleet: Fleet) -> None:
    fleet.commit({"a.yaml": document(fleet, "a", runtime={"remote": {"regoin": "x"}})})
    (found,) = fleet.ask("validate", ".", code=3)["findings"]
    assert "regoin" in found["summary"]
    fleet.commit({"a.yaml": document(fleet, "a", image="x", runtime={"image": None})})
    (found,) = fleet.ask("validate", ".", code=3)["findings"]
    assert "driver remote needs image" in found["summary"]
    wrong = fleet.call("once", GITOPS_AGENT_DRIVERS__REMOTE__COLOUR="red")
    assert wrong.code == 2
    assert "drivers.remote" in wrong.err


@pytest.fixture
def connections(system: RemoteSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connections:
    monkeypatch.syspath_prepend(str(HERE))
    from remote_driver import PLUGIN  # type: ignore[import-not-found]

    settings = {"remote": {"url": system.url}}
    return Connections(Plugins([PLUGIN]), Context("test", str(tmp_path), FrozenClock()), settings)


def test_logs_come_from_the_driver(connections: Connections) -> None:
    from gitops_agent.model.key import AgentKey

    able = connections.logging("remote")
    assert able is not None
    (line,) = able.logs(AgentKey("acme", "bot"), 10)
    assert (line.instance, line.text) == ("copy-0", "acme/bot says hello")


def test_doctor_asks_the_plugins(connections: Connections) -> None:
    assert [(each.name, each.ok) for each in connections.checks()] == [("remote", True)]
    assert len(connections) == 0, "and connects to nothing"


def test_settings_of_a_driver_that_is_not_installed_are_an_error(connections: Connections, tmp_path: Path) -> None:
    context = Context("test", str(tmp_path), FrozenClock())
    with pytest.raises(UsageError, match=r"drivers\.remot: there is no such driver") as wrong:
        Connections(connections.plugins, context, {"remot": {"rate": 1.0}})
    assert wrong.value.hint == "installed: remote"
