"""No mistake hides another one: documents that are wrong in several ways at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.snapshot.test_at_once import errors_of
from tests.snapshot.world import Content, document, text

pytestmark = pytest.mark.unit

BOT, CRM, POOL = "agents/acme/bot.yaml", "agents/acme/crm.yaml", "pools/p.yaml"
OVERLAY, OWN_OVERLAY, BROKEN = "overlays/crm.yaml", "overlays/bot.yaml", "broken.yaml"
TWICE = "written twice"
TOKEN = "ghp_" + "canary0" * 4
GOOD: dict[str, Any] = {
    BOT: document("bot", adopt=False, rollout={}, authority={"runtime.replicas": "live"}),
    CRM: document("crm"),
}
Files = dict[str, Any]


def spec(files: Files, path: str = BOT) -> Any:
    return files[path]["spec"]


def overlay(op: dict[str, Any], *names: str) -> Any:
    value = {"instance": "prod", "selector": {"names": list(names)}, "patches": [op]}
    return {"apiVersion": "gitops-agent.dev/v1", "kind": "Overlay", "spec": value}


def cycle(files: Files) -> None:
    spec(files)["rollout"].setdefault("dependsOn", []).append("crm")
    spec(files, CRM)["rollout"] = {"dependsOn": ["bot"]}


def pool(files: Files) -> None:
    keys = [{"name": "k", "secretRef": {"provider": "env", "name": "K"}}]
    head = {"apiVersion": "gitops-agent.dev/v1", "kind": "CredentialPool", "metadata": {"name": "p"}}
    files[POOL] = {**head, "spec": {"provider": "p", "keys": keys}}


def dangling(files: Files) -> None:
    spec(files)["rollout"].setdefault("dependsOn", []).append("nowhere")


def failing_overlay(path: str, name: str) -> Callable[[Files], None]:
    return lambda files: files.update({path: overlay({"op": "remove", "path": "/spec/nothing"}, name)})


def dns(files: Files) -> None:
    spec(files)["dns"] = [{"hostname": "a.example", "type": "A", "target": "x"}]


def authority(files: Files) -> None:
    spec(files)["authority"]["runtime.replcas"] = "live"


# What each is, the file it is reported in, its code (and a word of its summary).
MISTAKES: dict[str, tuple[str, str, Callable[[Files], Any]]] = {
    "type": (BOT, "WrongType", lambda files: spec(files).update(description=5)),
    "field": (BOT, "UnknownField lifecyle", lambda files: spec(files).update(lifecyle="Running")),
    "duplicate": (BOT, "DuplicateKey", lambda files: spec(files).update({TWICE: True})),
    "driver": (BOT, "DriverNotInstalled proces", lambda files: spec(files)["runtime"].update(driver="proces")),
    "format": (BOT, "BadFormat", lambda files: spec(files)["rollout"].update(healthTimeout="soon")),
    "range": (BOT, "OutOfRange", lambda files: spec(files)["rollout"].update(pause="400d")),
    "signal": (BOT, "DriverRefused", lambda files: spec(files)["runtime"].update(stop={"signal": "SIGNOPE"})),
    "dependency": (BOT, "UnknownDependency", dangling),
    "cycle": (BOT, "DependencyCycle", cycle),
    "file": (BOT, "MissingFile", lambda files: spec(files).update(instructionsFrom={"file": "gone.md"})),
    "secret": (BOT, "LiteralSecret", lambda files: files[BOT]["metadata"].update(labels={"a": TOKEN})),
    "authority": (BOT, "UnknownField replcas", authority),
    "dns": (BOT, "DriverNotInstalled dns", dns),
    "tenant": (BOT, "TenantMismatch", lambda files: files[BOT]["metadata"].update(tenant="globex")),
    "pool": (POOL, "DriverNotInstalled", pool),
    "overlay": (OVERLAY, "OverlayFailed", failing_overlay(OVERLAY, "crm")),
    "own overlay": (OWN_OVERLAY, "OverlayFailed", failing_overlay(OWN_OVERLAY, "bot")),
    "yaml": (BROKEN, "InvalidYaml", lambda files: files.update({BROKEN: None})),
}

# What cannot be known while something else is wrong. An overlay is written for the document as it was meant.
HIDDEN_BY = {
    "signal": {"driver"},
    "authority": {"driver", "signal"},
    "cycle": {"tenant"},
    "own overlay": {"type", "field", "format", "range"},
}
FOLLOWS = {frozenset({"tenant", "cycle"}): "UnknownDependency"}
"""What two mistakes make together, and each alone does not."""


def rendered(files: Files) -> dict[str, Content]:
    made: dict[str, Content] = {}
    for path, value in files.items():
        if value is None:
            made[path] = "a: [\n"
            continue
        twice = value["spec"].pop(TWICE, False)
        written = text(value)
        made[path] = written.replace('"adopt": false', '"adopt": false,\n"adopt": false') if twice else written
    return made


def check(names: Collection[str]) -> None:
    files = deepcopy(GOOD)
    for name in names:
        MISTAKES[name][2](files)
    found = errors_of(rendered(files))
    for name in names:
        path, what, _ = MISTAKES[name]
        code, _, word = what.partition(" ")
        reported = any(
            each.code == code and each.address.startswith(f"{path}:") and word in each.summary for each in found
        )
        assert reported or HIDDEN_BY.get(name, set()) & set(names), f"{name} is hidden among {sorted(names)}"
    possible = {MISTAKES[name][1].partition(" ")[0] for name in names}
    possible |= {code for pair, code in FOLLOWS.items() if pair <= set(names)}
    assert {each.code for each in found} <= possible, "nothing is made up"


def test_nothing_is_wrong_at_first() -> None:
    assert errors_of(rendered(deepcopy(GOOD))) == []


def test_what_an_overlay_that_fails_would_have_changed_is_not_judged() -> None:
    files = deepcopy(GOOD)
    spec(files)["runtime"]["driver"] = "elsewhere"
    spec(files)["rollout"]["dependsOn"] = ["elsewhere"]
    files[OWN_OVERLAY] = overlay({"op": "replace", "path": "/spec/runtime/driver", "value": "process"}, "bot")
    patches = files[OWN_OVERLAY]["spec"]["patches"]
    patches.append({"op": "remove", "path": "/spec/rollout/dependsOn/0"})
    assert errors_of(rendered(deepcopy(files))) == []
    patches.append({"op": "remove", "path": "/spec/nothing"})
    assert [each.code for each in errors_of(rendered(files))] == ["OverlayFailed"]


@pytest.mark.parametrize("name", MISTAKES)
def test_no_mistake_is_hidden_by_any_one_other(name: str) -> None:
    check([name])
    for other in MISTAKES:
        if other > name:
            check([name, other])


@given(st.sets(st.sampled_from(sorted(MISTAKES)), min_size=3))
def test_no_mistake_is_hidden_by_any_number_of_others(names: set[str]) -> None:
    check(names)
