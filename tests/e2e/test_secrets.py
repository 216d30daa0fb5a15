"""Secrets reach the agent that asks for them, and appear nowhere else. Git over http and ssh, with credentials."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.fleet import Answer, Fleet, all_pids
from tests.support.git_servers import Fail, http_server, ssh_on_path, ssh_server

TELLER = "import os, time; print(len(os.environ['TOKEN']), flush=True); time.sleep(600)"


def canary() -> str:
    """Nothing that looks like a secret of anybody's; only our own care can keep it from being shown."""
    return f"canary{secrets.token_hex(12)}"


def leaks(fleet: Fleet, *canaries: str) -> list[Path]:
    """Every file of the state directory and of the repository that holds a canary."""
    fleet.git("fetch", "-q", "origin", "+refs/notes/*:refs/notes/*", check=False)
    notes = fleet.git("log", "-p", f"refs/notes/gitops-agent/{fleet.instance}", check=False)
    assert not any(word in notes for word in canaries)
    files = [path for root in (fleet.state, fleet.bare) for path in root.rglob("*") if path.is_file()]
    return [path for path in files if any(word.encode() in path.read_bytes() for word in canaries)]


def every_answer(fleet: Fleet, name: str, **environment: str) -> Iterator[Answer]:
    for verb in (["once"], ["plan"], ["status"], ["explain", name], ["history"], ["doctor"]):
        yield fleet.call(*verb, "-o", "json", **environment)
    yield fleet.call("explain", name, **environment)
    yield fleet.call("once", **environment)


def test_secrets_of_agents_by_variable_and_by_file(fleet: Fleet, tmp_path: Path) -> None:
    by_variable, by_file = canary(), canary()
    file = tmp_path / "elsewhere" / "token"
    file.parent.mkdir()
    file.write_text(by_file + "\n")
    own = {"FLEET_TOKEN": by_variable}

    def agent(name: str, provider: str, where: str) -> str:
        reference = {"secretRef": {"provider": provider, "name": where}}
        env = [{"name": "TOKEN", "valueFrom": reference}]
        return fleet.agent(name, sys.executable, "-c", TELLER, runtime={"env": env})

    fleet.commit({"v.yaml": agent("v", "env", "FLEET_TOKEN"), "f.yaml": agent("f", "file", str(file))})
    answer = fleet.call("once", "-o", "json", **own)
    assert answer.code == 0
    assert [marks["TOKEN"] for name in "vf" for marks in fleet.marked(name).values()] == [by_variable, by_file]
    assert all("FLEET_TOKEN" not in marks for marks in fleet.marked().values())

    fleet.commit({"v.yaml": agent("v", "env", "FLEET_TOKEN").replace("50ms", "60ms")}, "A small change")
    fleet.kill("f")
    said = [answer, *every_answer(fleet, "v", **own)]
    assert [each.code for each in said] == [0] * len(said)
    for each in said:
        assert by_variable not in each.out + each.err
        assert by_file not in each.out + each.err
    assert leaks(fleet, by_variable, by_file) == []

    fleet.kill("v")
    fleet.once("--timeout", "2s", code=5)
    explained = fleet.call("explain", "v").out
    assert "the secret env:FLEET_TOKEN is not set" in explained
    assert "nothing is noticed or done until one is" in explained, "once has ended, and nothing else runs"


def test_a_literal_secret_in_git_is_refused_and_not_repeated(fleet: Fleet) -> None:
    word = f"sk-{canary()}"
    env = [{"name": "API_KEY", "value": word}]
    fleet.commit(fleet.agents("a", runtime={"env": env}))
    answer = fleet.call("once", "-o", "json")
    assert answer.code == 3
    assert answer.json["findings"][0]["address"].startswith("a.yaml:")
    assert word not in answer.out + answer.err
    assert word not in fleet.call("status").out


@contextmanager
def watching_command_lines(*canaries: str) -> Iterator[set[bytes]]:
    """Every command line on this machine that shows a canary while this lasts."""
    seen: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for pid in all_pids():
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                if any(word.encode() in line for word in canaries):
                    seen.add(line)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_http_with_a_token_from_a_file_or_a_variable(fleet: Fleet, tmp_path: Path) -> None:
    token, wrong = canary(), canary()
    file = tmp_path / "token"
    file.write_text(token + "\n")
    sha = fleet.commit(fleet.agents("a"))
    with http_server(fleet.bare.parent, token=token) as server, watching_command_lines(token, wrong) as shown:
        fleet.repo = server.url("fleet.git")
        refused = fleet.call("once", "-o", "json", GITOPS_AGENT_TOKEN_ENV="MINE", MINE=wrong)
        assert refused.code == 6
        assert "access was denied" in refused.out
        by_file = fleet.call("once", "-o", "json", GITOPS_AGENT_TOKEN_FILE=str(file))
        assert (by_file.code, by_file.json["commit"]) == (0, sha)
        assert fleet.note(sha).startswith(f"{fleet.instance}: Converged"), "notes are pushed over http"

        server.always = Fail(503, {"Retry-After": "1"})
        fleet.kill("a")
        down = fleet.call("once", "-o", "json", GITOPS_AGENT_TOKEN_ENV="MINE", MINE=token)
        assert down.code == 6
        assert "503" in down.out
        assert fleet.pid("a"), "drift is repaired while the remote is down"
        server.always = None
        own = {"GITOPS_AGENT_TOKEN_ENV": "MINE", "MINE": token}
        said = [refused, by_file, down, *every_answer(fleet, "a", **own)]
        assert [each.code for each in said[3:]] == [0] * (len(said) - 3)
    assert shown == set(), "never on a command line"
    assert not any(word in each.out + each.err for each in said for word in (token, wrong))
    assert leaks(fleet, token, wrong) == []
    assert all("MINE" not in marks for marks in fleet.marked().values())


def test_ssh_with_a_key_and_known_hosts(fleet: Fleet, tmp_path: Path) -> None:
    sha = fleet.commit(fleet.agents("a"))
    with ssh_server(fleet.bare.parent, tmp_path / "keys") as server:
        fleet.repo = server.url("fleet.git")
        path = f"{ssh_on_path(tmp_path / 'bin')}{os.pathsep}{fleet.environment['PATH']}"
        key = {"GITOPS_AGENT_SSH_KEY": str(server.client_key), "PATH": path}
        unknown = fleet.call("once", "-o", "json", **key)
        assert unknown.code in (2, 6), "without known_hosts ssh is refused"
        assert "known" in unknown.out + unknown.err
        assert server.commands == []
        answer = fleet.once(**key, GITOPS_AGENT_KNOWN_HOSTS=str(server.known_hosts))
    assert (answer["phase"], answer["commit"]) == ("Converged", sha)
    assert fleet.note(sha).startswith(f"{fleet.instance}: Converged"), "notes are pushed over ssh"


def test_hostile_configuration_of_the_user_and_of_the_repository_is_ignored(fleet: Fleet) -> None:
    proof = fleet.state.parent / "pwned"
    touch = f"touch {proof}"
    home = Path(fleet.environment["HOME"])
    (home / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {touch}\n\tsshCommand = {touch}\n\tpager = {touch}\n")
    hooks = fleet.bare / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-update", "reference-transaction", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\n{touch}\n")
        (hooks / name).chmod(0o755)
    fleet.work.joinpath(".gitattributes").write_text("* filter=evil\n")
    subprocess.run(["git", "config", "filter.evil.smudge", touch], cwd=fleet.bare, check=True)
    proof.unlink(missing_ok=True)
    fleet.commit(fleet.agents("a"))
    proof.unlink(missing_ok=True)  # the push of a person may well run hooks
    assert fleet.once(GIT_SSH_COMMAND=touch, GIT_EXTERNAL_DIFF=touch, GIT_ASKPASS=touch)["phase"] == "Converged"
    assert not proof.exists()


def test_a_rotated_secret_is_reported_or_followed_one_replica_after_the_other(
    fleet: Fleet, tmp_path: Path
) -> None:
    """By file and by our own environment; a lost state directory makes nothing look rotated."""
    old, new, moved = canary(), canary(), canary()
    file = tmp_path / "token"
    file.write_text(old)
    env = [
        {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "file", "name": str(file)}}},
        {"name": "KEY", "valueFrom": {"secretRef": {"provider": "env", "name": "OUR_KEY"}}},
    ]
    quiet = {"env": env}
    follows = {"env": env, "replicas": 2, "onSecretChange": "Restart"}
    fleet.commit(
        {"quiet.yaml": fleet.agent("quiet", runtime=quiet), "loud.yaml": fleet.agent("loud", runtime=follows)}
    )
    fleet.once(OUR_KEY=old)
    before = fleet.pid("quiet"), fleet.pids("loud")
    shutil.rmtree(fleet.state)
    fleet.once(OUR_KEY=old)
    assert (fleet.pid("quiet"), fleet.pids("loud")) == before

    file.write_text(new)
    answer = fleet.once(OUR_KEY=old)
    assert fleet.pid("quiet") == before[0]
    drifted = fleet.condition(answer, "quiet", "Drifted")
    assert drifted is not None
    assert drifted["reason"] == "SecretRotated"
    assert "the secret of TOKEN has changed" in drifted["message"]
    assert (fleet.row(answer, "quiet")["ready"], fleet.condition(answer, "quiet", "Stalled")) == (True, None)
    assert not set(fleet.pids("loud")) & set(before[1])
    reasons = [action["reason"] for action in fleet.ask("explain", "loud")["actions"]]
    assert reasons[:2] == ["ReplicasFollow", "SecretRotated"]

    fleet.once(OUR_KEY=moved)
    told = {each["agent"]: each for each in fleet.ask("drift", OUR_KEY=moved)["drifts"]}
    assert told.keys() == {fleet.key("quiet")}
    assert "KEY, TOKEN" in str(told)
    file.unlink()
    fleet.once(OUR_KEY=moved)  # what cannot be read is not taken to be rotated
    assert leaks(fleet, old, new, moved) == []
