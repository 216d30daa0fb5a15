"""Hooks as their users have them: real commands, a real server, and gitops-agent killed around the call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.hook_server import hook_server


def saying(diary: Path, word: str) -> dict[str, Any]:
    """A hook that writes a line with its key into a file."""
    script = f'echo "{word} $MANAGED_AGENT_HOOK_KEY $(test -e "$MANAGED_AGENT_CONFIG" && echo config)" >> {diary}'
    return {"command": ["sh", "-c", script]}


def test_a_life_with_a_command_and_a_call(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with hook_server() as called:
        fleet = make_fleet(GITOPS_AGENT_HOOK_HOSTS=called.host, CRM_AUTH=AUTHORIZATION)
        header = {"name": "Authorization", "valueFrom": {"secretRef": {"provider": "env", "name": "CRM_AUTH"}}}
        both = {
            "onProvisioned": {"http": {"url": called.url, "headers": [header]}},
            "onRetired": saying(diary, "bye"),
        }
        fleet.commit({"a.yaml": fleet.agent("a", hooks=both), **fleet.agents("z")})
        fleet.once()
        fleet.kill("a")
        fleet.once()
        assert [body["agent"] for body in called.bodies] == [fleet.key("a")]
        assert called.headers[0]["Authorization"] == AUTHORIZATION
        fleet.commit({"a.yaml": None})
        fleet.once()
    kept = b"".join(path.read_bytes() for path in fleet.state.rglob("*") if path.is_file())
    assert AUTHORIZATION.encode() not in kept, "used for the call, and written nowhere"
    assert fleet.pids("a") == []
    (line,) = diary.read_text().splitlines()
    word, key, config = line.split()
    assert (word, config) == ("bye", "config"), "the bundle is there until the hook has been called"
    assert key.startswith(f"{fleet.instance}/{fleet.key('a')}/")
    assert key.endswith("/onRetired")
    assert not (fleet.folder("a") / "config.json").exists()


def test_a_host_that_is_not_listed_is_told_with_the_way_out(fleet: Fleet) -> None:
    with hook_server() as called:
        hooks = {"onProvisioned": {"http": {"url": called.url}}}
        fleet.commit(fleet.agents("a", hooks=hooks, rollout={"healthTimeout": "1s"}))
        answer = fleet.once(code=5)
        stalled = fleet.condition(answer, "a", "Stalled")
        assert stalled is not None
        assert "GITOPS_AGENT_HOOK_HOSTS=127.0.0.1" in stalled["message"]
        assert called.keys == []
        fleet.call("retry", "a", "--reason", "listed now")
        fleet.call("once", GITOPS_AGENT_HOOK_HOSTS="127.0.0.1")
        assert len(called.keys) == 1


AUTHORIZATION = "Bearer made-up-for-this-test"

POINTS = {
    # The config, the health record and the runtime are applied, and then the hook.
    "before the call": ("apply:before:3", 0),
    "after the call": ("apply:after:3", 1),
}


@pytest.mark.parametrize("where", POINTS)
def test_a_kill_around_the_call_is_told_and_never_repeats_it(fleet: Fleet, tmp_path: Path, where: str) -> None:
    point, ran = POINTS[where]
    diary = tmp_path / "diary"
    diary.touch()
    fleet.commit(fleet.agents("a", hooks={"onProvisioned": saying(diary, "hello")}))
    assert fleet.call("once", GITOPS_FAULT_AT=point).code == -9
    assert len(diary.read_text().splitlines()) == ran
    answer = fleet.once(code=5)
    stalled = fleet.condition(answer, "a", "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "HookUnknown"
    assert fleet.row(answer, "a")["ready"], "the agent itself is well"
    fleet.once(code=5)
    assert len(diary.read_text().splitlines()) == ran, "never again by itself"
    stuck = [each for each in fleet.ask("workflows")["workflows"] if each["stuck"]]
    assert [(each["subject"], each["reason"]) for each in stuck] == [
        (f"{fleet.key('a')}:hook/onProvisioned", "HookUnknown")
    ]
    assert f"gitops-agent retry {fleet.key('a')}" in stuck[0]["wayOut"]

    assert fleet.call("retry", "a", "--reason", "nobody heard it").code == 0
    fleet.call("once")
    lines = diary.read_text().splitlines()
    assert len(lines) == ran + 1
    assert len({line.split()[1] for line in lines}) == 1, "under the same key"
    assert json.dumps(fleet.ask("workflows")).count("HookUnknown") == 0
