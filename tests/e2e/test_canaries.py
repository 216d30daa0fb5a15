"""Canaries: secrets planted in everything that agents and their surroundings say, searched for in all that we say.

The agents get two secrets by reference and repeat them wherever they can be heard: in the names of tool calls, on
their output, from probes and hooks, in their own config bundle. The daemon that hears them did not start them.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.test_metrics import HERE, Voice
from tests.support.fleet import Fleet, until
from tests.support.hook_server import Called, hook_server

FORMS = """
import base64, json, os, urllib.parse
def forms(name):
    secret = os.environ[name]
    yield secret
    yield base64.b64encode(secret.encode()).decode()
    yield base64.b64encode(f"user:{secret}".encode()).decode()
    yield base64.urlsafe_b64encode(f"u:{secret}".encode()).decode()
    yield urllib.parse.quote(secret, safe="")
    yield json.dumps(secret)
    yield secret.encode().hex()
said = [form for name in ("TOKEN", "KEY") for form in forms(name)]
"""

CALLS = """
import time
from gitops_agent.heartbeat import Heartbeat
from contextlib import ExitStack
heartbeat = Heartbeat()
print(*said, sep="\\n", flush=True)
with ExitStack() as stack:
    # The first three are shown. One of them is longer than what is kept of a name.
    for call in ("x" * 190 + said[0], said[2], said[6], *said):
        stack.enter_context(heartbeat.tool_call(call))
    time.sleep(600)
"""

EDITS = """
import time
from pathlib import Path
path = Path(os.environ["MANAGED_AGENT_CONFIG"])
bundle = json.loads(path.read_text())
if not (mark := path.with_name("edited")).exists():
    mark.touch()
    path.write_text(json.dumps({**bundle, "instructions": " ".join(said), "more": {"x": said}}))
time.sleep(600)
"""

SAYS = "print(*said, sep='\\n', flush=True); raise SystemExit(1)"


def canary() -> tuple[str, str, str]:
    """A secret of no known kind, in which every encoding finds something to escape, and two words only it has."""
    one, other = secrets.token_hex(8), secrets.token_hex(8)
    return f'{one} "/{other}?&', one, other


def encoded(secret: str) -> list[str]:
    """What is left of each encoding when its first and last letters depend on what stands around it."""
    behind = (base64.b64encode(b"user:" + secret.encode()), base64.urlsafe_b64encode(b"u:" + secret.encode()))
    whole = (base64.b64encode(secret.encode()).decode(), *(each.decode() for each in behind))
    return [*(each[8:-4] for each in whole), quote(secret, safe=""), secret.encode().hex()]


class Canaries:
    """What was planted, and where it was found."""

    def __init__(self, folder: Path) -> None:
        self.by_variable, self.by_file = canary(), canary()
        file = folder / "elsewhere" / "key"
        file.parent.mkdir()
        file.write_text(self.by_file[0] + "\n")
        self.env: list[dict[str, Any]] = [
            {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "FLEET_TOKEN"}}},
            {"name": "KEY", "valueFrom": {"secretRef": {"provider": "file", "name": str(file)}}},
        ]
        both = (self.by_variable, self.by_file)
        self._words = [word for _, *words in both for word in words]
        self._words += [form for secret, *_ in both for form in encoded(secret)]

    def call(self, called: Called) -> dict[str, Any]:
        """An HTTP hook that carries a secret in a header."""
        return {"url": called.url, "headers": [{"name": "Authorization", "valueFrom": self.env[1]["valueFrom"]}]}

    def found_in(self, text: str) -> list[str]:
        return [word for word in self._words if word in text]


def answers(fleet: Fleet, agents: str, **own: str) -> Iterator[tuple[str, str]]:
    """Every verb that answers, as text and as JSON, from a process that was never given a secret. What an agent
    wrote that is gone is the exception: its secrets can be known only where they are given."""
    verbs = [["status"], ["history"], ["plan"], ["drift"], ["workflows"], ["doctor"]]
    verbs += [[verb, name] for name in agents for verb in ("explain", "logs")]
    for verb in verbs:
        for form in ([], ["-o", "json"]):
            answer = fleet.call(*verb, *form, **(own if verb == ["logs", "x"] else {}))
            yield " ".join([*verb, *form]), answer.out + answer.err


def message(fleet: Fleet, name: str) -> str:
    return str((fleet.condition(fleet.status(), name) or {}).get("message"))


@pytest.fixture
def called() -> Iterator[Called]:
    with hook_server(500) as server:
        yield server


def test_no_canary_is_seen_anywhere(fleet: Fleet, called: Called, tmp_path: Path) -> None:
    planted, report = Canaries(tmp_path), tmp_path / "drift.json"

    def agent(name: str, script: str, **spec: Any) -> dict[str, str]:
        command = [sys.executable, "-c", FORMS + script]
        runtime = {"env": planted.env, "command": command}
        return {f"{name}.yaml": fleet.agent(name, runtime=runtime, rollout={"healthTimeout": "1s"}, **spec)}

    says = {"command": [sys.executable, "-c", FORMS + SAYS], "timeout": "30s"}
    probe = {"exec": {"command": says["command"]}, "period": "100ms", "timeout": "30s"}
    sha = fleet.commit(
        {
            "gitops-agent.yaml": fleet.policy(rollout={"canary": 10}),
            **agent("c", CALLS, heartbeat={"staleAfter": "1s"}),
            **agent("e", EDITS),
            **agent("h", "import time; time.sleep(600)", hooks={"onProvisioned": says}),
            **agent("p", "import time; time.sleep(600)", probes={"readiness": probe}),
            **agent("u", "import time; time.sleep(600)", hooks={"onProvisioned": {"http": planted.call(called)}}),
            **agent("x", SAYS),
        }
    )
    own = {"FLEET_TOKEN": planted.by_variable[0], "GITOPS_AGENT_HOOK_HOSTS": called.host}
    first = fleet.call("once", "--timeout", "3s", **own)
    leaks = {"once": planted.found_in(first.out + first.err)}
    assert first.code == 5, first.err
    assert [each["Authorization"] for each in called.headers] == [planted.by_file[0]], "it did reach its target"

    reporting = {"GITOPS_AGENT_DRIFT_REPORT": str(report), "GITOPS_AGENT_DRIFT_NOTE": "true"}
    often = {"GITOPS_AGENT_DRIFT_INTERVAL": "500ms", "GITOPS_AGENT_RESYNC_INTERVAL": "500ms"}
    with fleet.running(**HERE, **reporting, **often, **own) as daemon:
        voice = Voice(fleet, daemon)
        until(lambda: "tool call is in progress" in message(fleet, "c"), "the tool calls are heard")
        until(lambda: "***" in message(fleet, "p"), "the probe is heard")
        until(lambda: report.exists() and fleet.note(sha), "all is reported")
        leaks |= {path: planted.found_in(voice.ask(path)[1]) for path in ("/metrics", "/readyz", "/livez")}
        said = dict(answers(fleet, "cehpux", **own))
    leaks |= {verb: planted.found_in(text) for verb, text in said.items()}
    assert "***" in said["explain c"], "masked, not left out"
    assert "***" in said["explain h"]
    assert "***" in said["logs x"]
    assert "ConfigEdited" in said["explain e"]
    quoted = fleet.call("explain", "x", **own).out
    assert "***" in quoted, "what it wrote last, where its secrets are known"
    leaks["explain x, quoted"] = planted.found_in(quoted)

    fleet.git("fetch", "-q", "origin", "+refs/notes/*:refs/notes/*")
    for ref in fleet.git("for-each-ref", "--format=%(refname)", "refs/notes").split():
        leaks[ref] = planted.found_in(fleet.git("log", "-p", ref))
    assert "***" in fleet.git("log", "-p", "--all", "--", ".") + fleet.note(sha)
    written = [report, tmp_path / "daemon.log", *(fleet.state / "agents").parent.rglob("*")]
    theirs = fleet.state / "agents"  # what agents wrote themselves
    for path in (each for each in written if each.is_file() and theirs not in each.parents):
        leaks[str(path)] = planted.found_in(path.read_bytes().decode("utf-8", "replace"))
    assert {where: found for where, found in leaks.items() if found} == {}
    assert json.loads(fleet.call("status", "-o", "json").out)["agents"], "and it still answers"
