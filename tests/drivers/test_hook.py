"""The hook driver: what a document asks for, and what becomes of one call."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Context, Driver, Refused
from gitops_agent.drivers.hook import PLUGIN, HookDriver, hook_key
from gitops_agent.errors import ApplyError, EffectSpent
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import Base
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result
from gitops_agent.model.plan import Verb
from gitops_agent.testing.clock import FrozenClock
from tests.support.hook_server import hook_server
from tests.support.plugins import compiled

from .conftest import BOT, Fleet, action, agent_document

HELLO = hook_key(BOT, "onProvisioned")
GOODBYE = hook_key(BOT, "onRetired")


def hooks(**spec: Any) -> dict[str, Fields]:
    """The fields of the hooks that a document asks for, by name."""
    document = agent_document(spec={"hooks": spec}, command=["serve"], env=[{"name": "CITY", "value": "Ulm"}])
    return {each.key.id: each.fields for each in compiled(PLUGIN, BOT, document)}


def calls(url: str, *hosts: str, timeout: str = "5s", **more: Any) -> tuple[Driver, Fields]:
    made = HookDriver(Context("test", "/nowhere", FrozenClock(), hook_hosts=hosts))
    return made, hooks(onProvisioned={"http": {"url": url, **more}, "timeout": timeout})["onProvisioned"]


def test_a_document_may_ask_for_either_hook_and_what_leaves_is_not_asked_for() -> None:
    assert hooks() == {}
    assert set(hooks(onRetired={"command": ["bye"]})) == {"onRetired"}
    document = agent_document(
        spec={"hooks": {"onRetired": {"command": ["bye"]}}, "lifecycle": "Retired"}, command=["serve"]
    )
    assert compiled(PLUGIN, BOT, document) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ["a"], "http": {"url": "http://a.example"}},
        {},
        {"command": []},
        {"command": ["a"], "timeout": "2h"},
        {"command": ["a"], "timeout": "0s"},
        {"command": ["a"], "retries": 3},
        {"http": {"url": "ftp://a.example"}},
        {"http": {"url": "http://user:password@a.example"}},
        {"http": {"url": "http://a.example", "method": "DELETE"}},
        {"http": {"url": "http://a.example", "headers": [{"name": "Host", "value": "b.example"}]}},
        {"http": {"url": "http://a.example", "headers": [{"name": "content-length", "value": "0"}]}},
        {"http": {"url": "http://a.example", "headers": [{"name": "X-A: b\r\nX-B", "value": "1"}]}},
        {"http": {"url": "http://a.example", "headers": [{"name": "X-A", "value": "1\r\nX-B: 2"}]}},
        {"http": {"url": "http://a.example", "headers": [{"name": "X-A"}]}},
        {
            "http": {
                "url": "http://a.example",
                "headers": [{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}],
            }
        },
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"onProvisioned"):
        hooks(onProvisioned=wrong)


def test_http_is_sent_once_with_its_key() -> None:
    with hook_server() as called:
        made, wanted = calls(called.url, called.host, method="PUT")
        applied = made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
        again = action(
            HELLO, Verb.CREATE, desired=wanted, base=Base(HELLO, "hook", wanted, "c", 0.0, handle=applied.handle)
        )
        made.apply(again, "intent-2")
    assert called.keys == [f"test/{BOT}/intent-1/onProvisioned"] * 2, "a second try keeps the key of the first"
    assert called.bodies[0] == {"agent": str(BOT), "hook": "onProvisioned", "instance": "test"}
    assert called.methods[0] == "PUT /hooks?from=fleet"
    assert "from=fleet" not in applied.message, "tokens stand in queries"
    assert OneShot.read(applied.handle) == OneShot("intent-1", Result.DONE, applied.message)


def secret_header(provider: str, name: str) -> dict[str, Any]:
    return {"name": "Authorization", "valueFrom": {"secretRef": {"provider": provider, "name": name}}}


def test_a_header_comes_from_a_reference_and_its_value_is_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "Bearer made-up-for-this-test"
    (tmp_path / "token").write_text(f"{secret}\n")
    monkeypatch.setenv("CRM_AUTH", secret)
    for header in (secret_header("env", "CRM_AUTH"), secret_header("file", str(tmp_path / "token"))):
        with hook_server(500) as called:
            made, wanted = calls(called.url, called.host, headers=[header, {"name": "X-Fleet", "value": "blue"}])
            with pytest.raises(EffectSpent) as caught:
                made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
        assert (called.headers[0]["Authorization"], called.headers[0]["X-Fleet"]) == (secret, "blue")
        assert called.headers[0]["Host"] == called.host
        assert "made-up" not in repr((wanted, caught.value, caught.value.handle))


def test_a_secret_that_cannot_be_a_header_is_neither_sent_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_AUTH", "made-up\r\nX-Injected: 1")
    with hook_server() as called:
        for name in ("CRM_AUTH", "NOT_SET_ANYWHERE"):
            made, wanted = calls(called.url, called.host, headers=[secret_header("env", name)])
            with pytest.raises(ApplyError, match="header Authorization cannot be set") as caught:
                made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
            assert "made-up" not in f"{caught.value} {caught.value.hint}"
            assert not isinstance(caught.value, EffectSpent), "nothing was sent, so it may be tried again"
    assert called.keys == []


@pytest.mark.parametrize(
    "http",
    [
        {"url": "https://a.example/hooks?token=canary"},
        {"url": "https://a.example/hooks?x=1&api_key=canary"},
        {"url": "https://hooks.example/services/T0/B0/canaryXk29dQ7fLm3pZr81"},
        {"url": "https://a.example/?x=ghp_" + "canary0" * 4},
        {"url": "https://a.example", "headers": [{"name": "Authorization", "value": "canary"}]},
        {"url": "https://a.example", "headers": [{"name": "X-Api-Key", "value": "canary"}]},
        {"url": "https://a.example", "headers": [secret_header("file", "canary")]},
        {"url": "https://a.example", "headers": [secret_header("env", "GITOPS_AGENT_TOKEN")]},
    ],
)
def test_a_token_in_the_address_or_in_a_header_is_refused_with_the_way_out(http: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        hooks(onProvisioned={"http": http})
    assert caught.value.at[:3] == ("hooks", "onProvisioned", "http")
    assert "canary" not in str(caught.value) or "absolute path" in str(caught.value)


def test_an_ordinary_address_is_none() -> None:
    url = "https://crm.example/v1/agents/0b9e6c52-7c1e-4b58-9d0e-2f6f4c1a8e11/Provisioned?from=fleet&page=2"
    assert hooks(onProvisioned={"http": {"url": url}})["onProvisioned"].value["http"] == {
        "url": url,
        "method": "POST",
    }


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_that_is_no_success_is_spent(status: int) -> None:
    with hook_server(status) as called:
        made, wanted = calls(called.url, "127.0.0.1")
        with pytest.raises(EffectSpent, match=str(status)) as caught:
            made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
    assert len(called.keys) == 1, "no redirect is followed"
    shot = OneShot.read(caught.value.handle)
    assert shot is not None
    assert shot.result is Result.FAILED


def test_no_answer_is_unknown() -> None:
    with hook_server(None) as called:
        made, wanted = calls(called.url, "127.0.0.1", timeout="200ms")
        with pytest.raises(EffectSpent, match="not answered") as caught:
            made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
    assert len(called.keys) == 1
    assert caught.value.unknown


def test_nobody_there_may_be_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        made, wanted = calls(f"http://127.0.0.1:{taken.getsockname()[1]}/", "127.0.0.1")
        with pytest.raises(ApplyError, match="could not be reached") as caught:
            made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
    assert not isinstance(caught.value, EffectSpent)
    assert not caught.value.permanent


@pytest.mark.parametrize("listed", [(), ("localhost",), ("127.0.0.1:1",), ("0.0.1",)])
def test_a_host_that_is_not_listed_is_never_called(listed: tuple[str, ...]) -> None:
    with hook_server() as called:
        made, wanted = calls(called.url, *listed)
        with pytest.raises(ApplyError, match=r"127\.0\.0\.1 is not a host") as caught:
            made.apply(action(HELLO, Verb.CREATE, desired=wanted), "intent-1")
    assert called.keys == []
    assert "GITOPS_AGENT_HOOK_HOSTS=" in caught.value.hint
    assert caught.value.permanent


def commands(fleet: Fleet, *command: str, timeout: str = "5s") -> tuple[Driver, Fields]:
    able = {"process": fleet.driver}
    place = Context(fleet.instance, str(fleet.state), FrozenClock(), executing=able.get)
    (fleet.state / "agents" / BOT.tenant / BOT.name / "work").mkdir(parents=True, exist_ok=True)
    return HookDriver(place), hooks(onRetired={"command": command, "timeout": timeout})["onRetired"]


def end(made: Driver, fields: Fields) -> str:
    base = Base(GOODBYE, "hook", fields, "c", 0.0)
    return made.apply(action(GOODBYE, Verb.DELETE, base=base), "intent-1").message


def test_a_command_runs_as_the_agent_also_when_that_is_gone(fleet: Fleet) -> None:
    made, wanted = commands(fleet, "sh", "-c", 'echo "$CITY $MANAGED_AGENT_HOOK_KEY $MANAGED_AGENT_OWNER"; pwd')
    said = end(made, wanted)
    owner = f"{fleet.instance}/{BOT}"
    assert f"Ulm {owner}/intent-1/onRetired {owner}" in said
    assert f"{BOT.name}/work" in said


def test_a_command_that_fails_is_spent_one_that_hangs_is_unknown_one_that_never_ran_is_neither(
    fleet: Fleet, tmp_path: Path
) -> None:
    with pytest.raises(EffectSpent, match="exit code 3") as failed:
        end(*commands(fleet, "sh", "-c", "exit 3"))
    assert not failed.value.unknown
    with pytest.raises(EffectSpent, match="no answer") as hung:
        end(*commands(fleet, "sleep", "60", timeout="200ms"))
    assert hung.value.unknown
    with pytest.raises(ApplyError, match="did not start") as absent:
        end(*commands(fleet, str(tmp_path / "nothing")))
    assert not isinstance(absent.value, EffectSpent)
