"""Known kinds of secrets are refused wherever they are written, and never repeated."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.drivers import process
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.settings import Settings
from gitops_agent.snapshot.loader import Loader
from gitops_agent.support.secrets import looks_secret, may_hold_secret
from tests.snapshot.world import MemoryReader, World, agent, codes, load, other, refuse
from tests.support_lib.test_secrets import TOKENS

pytestmark = pytest.mark.unit

SECRET = "ghp_" + "canary0" * 4
PATH = "agents/acme/bot.yaml"
RUNTIME = {"driver": "process", "command": ["run"]}

FIELDS: dict[str, dict[str, Any]] = {
    "description": {"description": f"uses {SECRET}"},
    "labels": {"labels": {"team": SECRET}},
    "a key": {"labels": {SECRET: "team"}},
    "instructions": {"instructions": f"Be kind.\n{SECRET}\n"},
    "tools": {"tools": [{"name": "crm", "allow": [SECRET]}]},
    "model": {"model": {"provider": "p", "name": "m", "parameters": {"headers": {"x": [SECRET]}}}},
    "limits": {"limits": {"turns": SECRET}},
    "mcpServers": {"mcpServers": [{"name": "a", "url": f"https://mcp.example.com/{SECRET}"}]},
    "hook command": {"hooks": {"onRetired": {"command": ["notify", SECRET]}}},
    "hook url": {"hooks": {"onRetired": {"http": {"url": f"https://example.com/?t={SECRET}"}}}},
    "probe": {"probes": {"liveness": {"exec": {"command": ["check", SECRET]}}}},
    "pause": {"reconcile": {"paused": True, "reason": SECRET}},
    "env": {"runtime": {**RUNTIME, "env": [{"name": "A", "value": SECRET}]}},
    "command": {"runtime": {**RUNTIME, "command": ["run", f"--token={SECRET}"]}},
    "workdir": {"runtime": {**RUNTIME, "workdir": f"/srv/{SECRET}"}},
}


@pytest.mark.parametrize("field", FIELDS)
def test_in_every_field_of_an_agent(field: str) -> None:
    every = refuse({PATH: agent("bot", **FIELDS[field])})
    assert "canary" not in repr(every)
    (found,) = [each for each in every if each.code == "LiteralSecret"]
    assert not found.address.endswith(":1:1"), "addressed to the value"


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Policy", {"freeze": {"reason": f"see {SECRET}"}}),
        (
            "CredentialPool",
            {"provider": SECRET, "keys": [{"name": "a", "secretRef": {"provider": "env", "name": "A"}}]},
        ),
        (
            "Overlay",
            {"instance": "other", "patches": [{"op": "add", "path": "/spec/description", "value": SECRET}]},
        ),
    ],
)
def test_in_every_kind_of_document_of_this_instance_and_of_others(kind: str, spec: Any) -> None:
    found = refuse({"x.yaml": other(kind, spec, name="x"), PATH: agent()})
    assert "LiteralSecret" in codes(found)
    assert "canary" not in repr(found)


def test_in_a_file_that_a_document_names() -> None:
    files = {
        PATH: agent("bot", instructionsFrom={"file": "p.md"}),
        "agents/acme/p.md": f"Be kind.\n\nUse {SECRET}.\n",
    }
    (found,) = refuse(files)
    assert (found.code, found.address.partition(":")[0]) == ("LiteralSecret", PATH)
    assert "p.md holds a secret in line 3" in found.summary
    assert "canary" not in repr(found)


def test_together_with_other_errors_and_each_one_of_them() -> None:
    content = agent("bot", description=SECRET, lifecycle="Sleeping", limits={"a": SECRET, "b": 1})
    assert sorted(codes(refuse({PATH: content}))) == ["LiteralSecret", "LiteralSecret", "UnknownWord"]


@pytest.mark.parametrize("token", [*TOKENS, "-----BEGIN " + "PRIVATE KEY-----", "ftp://me:" + "pw@host/"])
def test_the_fast_look_sees_whatever_the_close_one_does(token: str) -> None:
    assert looks_secret(f"\n{token}!   ")
    assert may_hold_secret(f"\n{token}!   ")
    assert codes(refuse({PATH: agent("bot", instructions=f"one\n{token}\ntwo")})) == ["LiteralSecret"]


@pytest.mark.parametrize(
    "text",
    [
        "sk-payments-reconciliation-worker",
        "the risk-assessment-of-large-orders",
        "connect with postgres://<user>:<password>@host/db",
        "connect with postgres://app:${DB_PASSWORD}@host/db or postgres://app:$PASSWORD@host",
        "meet at 10:30, order 12345678: two_chairs",
        "write eyJ or AKIA or ghp_ and it is fine",
    ],
)
def test_ordinary_text_is_none(text: str) -> None:
    assert load({PATH: agent("bot", instructions=text, description=text)}).agents


def test_an_agent_may_have_a_name_of_words() -> None:
    world = World()
    assert world.load({"agents/acme/x.yaml": agent("rk-payments-reconciliation")}).agents


def test_the_process_driver_itself_repeats_nothing() -> None:
    reader = MemoryReader()
    loader = Loader(reader, Plugins([process.PLUGIN]), Settings())
    with pytest.raises(InvalidDesiredState) as refused:
        loader.load(reader.commit({PATH: agent("bot", runtime={**RUNTIME, "stop": {"signal": SECRET}})}))
    assert "canary" not in repr(refused.value.findings)
