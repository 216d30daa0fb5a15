"""Overlays: selected, applied in path order, for this instance only, judged again."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.model.snapshot import Snapshot
from tests.snapshot.world import World, agent, codes, load, other, refuse

pytestmark = pytest.mark.unit

BOT, CRM = "agents/acme/bot.yaml", "agents/acme/crm.yaml"
REPLICAS = "/spec/runtime/replicas"


def overlay(*patches: dict[str, Any], instance: str = "prod", **selector: Any) -> str:
    return other("Overlay", {"instance": instance, "selector": selector, "patches": patches})


def add(value: Any, path: str = REPLICAS) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replicas(snapshot: Snapshot) -> dict[str, int]:
    return {key.name: agent.resources[1].fields.value["replicas"] for key, agent in snapshot.agents.items()}


FLEET = {BOT: agent(labels={"tier": "gold"}), CRM: agent("crm"), "agents/globex/x.yaml": agent("x")}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({}, {"bot", "crm", "x"}),
        ({"tenant": "acme"}, {"bot", "crm"}),
        ({"names": ["crm", "x"]}, {"crm", "x"}),
        ({"labels": {"tier": "gold"}}, {"bot"}),
        ({"tenant": "acme", "names": ["x"]}, set()),
    ],
)
def test_selectors(selector: dict[str, Any], chosen: set[str]) -> None:
    snapshot = load({**FLEET, "overlays/prod.yaml": overlay(add(3), **selector)})
    assert {name for name, count in replicas(snapshot).items() if count == 3} == chosen
    assert [f.code for f in snapshot.findings] == ([] if chosen else ["OverlayUnused"])


def test_only_this_instance_and_in_path_order() -> None:
    files = {
        "overlays/2.yaml": overlay({"op": "test", "path": REPLICAS, "value": 2}, add(4)),
        "overlays/1.yaml": overlay(add(2)),
        "overlays/3.yaml": overlay(add(9), instance="staging"),
    }
    assert replicas(load({BOT: agent(), **files})) == {"bot": 4}


def test_an_overlay_outside_its_folder_counts_as_well() -> None:
    assert replicas(load({BOT: agent(), "zz/late.yaml": overlay(add(5))})) == {"bot": 5}
    cured = {
        BOT: agent(runtime={"driver": "vm", "image": "x"}),
        "zz/late.yaml": overlay(add(RUNTIME, "/spec/runtime")),
    }
    assert replicas(load(cured)) == {"bot": 1}


RUNTIME = {"driver": "process", "command": ["run"]}


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        (add("three"), "WrongType"),
        (add(1, "/spec/runtime/replica"), "UnknownField"),
        ({"op": "remove", "path": "/spec/runtime"}, "MissingField"),
        ({"op": "remove", "path": "/spec/nothing"}, "OverlayFailed"),
        ({"op": "replace", "path": "/spec/a/b", "value": 1}, "OverlayFailed"),
        ({"op": "test", "path": "/spec/runtime/driver", "value": "vm"}, "OverlayFailed"),
        ({"op": "move", "from": "/spec", "path": "/spec/runtime"}, "OverlayFailed"),
        (add("other", "/metadata/name"), "OverlayChangesIdentity"),
        (add("other", "/metadata/tenant"), "OverlayChangesIdentity"),
        ({"op": "replace", "path": "", "value": []}, "OverlayChangesIdentity"),
        (add({}, "/status"), "StatusAuthored"),
    ],
)
def test_what_goes_wrong_is_said_at_the_overlay(patch: dict[str, Any], code: str) -> None:
    found = refuse({BOT: agent(), "overlays/prod.yaml": overlay(add(2), patch)})
    assert codes(found) == [code]
    assert found[0].address.startswith("overlays/prod.yaml:")
    assert int(found[0].address.split(":")[1]) > 10
    assert "acme/bot" in found[0].summary
    assert "canary" not in repr(found)


def test_an_overlay_that_doubles_a_document_for_ever_is_stopped() -> None:
    grow = [{"op": "copy", "from": "/spec/limits", "path": f"/spec/limits/c{n}"} for n in range(40)]
    files = {BOT: agent(limits={"turns": 1}), "overlays/prod.yaml": overlay(*grow)}
    assert codes(refuse(files)) == ["OverlayFailed"]


@pytest.mark.parametrize(
    "patch", [{"op": "add"}, {"op": "explode", "path": "/"}, {"op": "add", "path": "x", "value": 1}]
)
def test_malformed_patches(patch: dict[str, Any]) -> None:
    assert codes(refuse({"overlays/prod.yaml": overlay(patch)})) == ["InvalidValue"]


def test_changing_an_overlay_recompiles_exactly_what_it_concerns() -> None:
    world = World()
    first = world.load({**FLEET, "overlays/prod.yaml": overlay(add(2), names=["bot"])})
    world.reader.read.clear()
    second = world.load({**FLEET, "overlays/prod.yaml": overlay(add(3), names=["crm"])})
    assert replicas(second) == {"bot": 1, "crm": 3, "x": 1}
    assert second.agents["globex", "x"] is first.agents["globex", "x"]  # type: ignore[index]
    assert len(world.reader.read) == 3  # the overlay, the one it left, the one it took
    third = world.load(FLEET)
    assert replicas(third) == {"bot": 1, "crm": 1, "x": 1}
