"""Starting: what an agent gets, what it never gets, and what is said when it cannot start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.errors import ApplyError
from gitops_agent.model.observation import Owner
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, PYTHON, SLEEP, Fleet, alive, until

DUMP = "import json, os, time; print(json.dumps(dict(os.environ)), flush=True); time.sleep(300)"


def log(fleet: Fleet, replica: int = 0) -> str:
    path = fleet.folder() / "logs" / f"{replica}.log"
    return path.read_text() if path.exists() else ""


def test_an_agent_runs_in_its_own_session_and_is_seen_as_ours(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    seen = fleet.look()
    (pid,) = fleet.pids()
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert seen.owner is Owner.OURS
    assert (seen.state, seen.reason) == ("Running", None)
    assert seen.fields is not None
    assert seen.fields.value == {"spec": fields.value["spec"], "replicas": 1, "state": "Running"}
    assert seen.started_at is not None
    assert [(each.id, each.heartbeat, each.address) for each in seen.instances] == [(str(pid), None, "127.0.0.1")]
    assert seen.live["log"] == str(fleet.folder() / "logs" / "0.log")


def test_the_environment_is_the_declared_one_and_nothing_else(make_fleet: Callable[..., Fleet]) -> None:
    own = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/x",
        "LANG": "C.UTF-8",
        "SECRET_OF_OURS": "canary",
        "A_TOKEN": "t",
    }
    fleet = make_fleet(environment=own)
    reference = {"secretRef": {"provider": "env", "name": "A_TOKEN"}}
    fields = fleet.run(
        PYTHON, "-c", DUMP, env=[{"name": "LEVEL", "value": "info"}, {"name": "TOKEN", "valueFrom": reference}]
    )
    found = json.loads(until(lambda: (text := log(fleet)).endswith("\n") and text))
    found.pop("LC_CTYPE", None)  # Python's own doing
    assert found == {
        "PATH": own["PATH"],
        "HOME": "/home/x",
        "LANG": "C.UTF-8",
        "LEVEL": "info",
        "TOKEN": "t",
        "MANAGED_AGENT_OWNER": f"{fleet.instance}/{BOT}",
        "MANAGED_AGENT_REPLICA": "0",
        "MANAGED_AGENT_SPEC": fields.value["spec"],
        "MANAGED_AGENT_CONFIG": str(fleet.folder() / "config.json"),
        "MANAGED_AGENT_HEARTBEAT": str(fleet.folder() / "heartbeat-0.json"),
    }


def test_no_descriptor_of_ours_is_inherited(fleet: Fleet, tmp_path: Path) -> None:
    with (tmp_path / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    targets = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    output = str(fleet.folder() / "logs" / "0.log")
    assert sorted(targets) == sorted(["/dev/null", output, output])


def test_secrets_appear_in_nothing_we_keep_or_say(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("canary-file\n")
    fleet = make_fleet(environment={"PATH": os.environ["PATH"], "A": "canary-env"})
    env = [
        {"name": "A", "valueFrom": {"secretRef": {"provider": "env", "name": "A"}}},
        {"name": "B", "valueFrom": {"secretRef": {"provider": "file", "name": str(file)}}},
    ]
    fields = fleet.fields(*SLEEP, env=env)
    done = fleet.apply(fields)
    seen = fleet.look()
    with pytest.raises(ApplyError) as refused:
        fleet.apply(fleet.fields("/does/not/exist", env=env), Verb.RESTART)
    kept = [fields.raw, done.handle.raw, seen.handle.raw, repr(done).encode(), repr(seen).encode()]
    kept += [str(refused.value).encode(), repr(refused.value).encode(), refused.value.hint.encode()]
    for path in fleet.state.rglob("*"):
        kept.append(path.read_bytes() if path.is_file() else b"")
    assert not [text for text in kept if b"canary" in text]
    # Not even in the frames that lead to the error: an error reporter may look at them.
    trace = refused.tb
    while trace is not None:
        if "gitops_agent" in trace.tb_frame.f_code.co_filename and "start" not in trace.tb_frame.f_code.co_name:
            assert "canary" not in repr(trace.tb_frame.f_locals)
        trace = trace.tb_next
    assert refused.value.__context__ is None or "canary" not in repr(refused.value.__context__)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"provider": "env", "name": "NOT_SET"}, "env:NOT_SET is not set"),
        (
            {"provider": "file", "name": "/does/not/exist"},
            "file:/does/not/exist cannot be used: No such file",
        ),
        ({"provider": "file", "name": "/proc"}, "not a regular file"),
        ({"provider": "file", "name": "/dev/zero"}, "not a regular file"),
    ],
)
def test_a_missing_secret_is_named_and_nothing_starts(
    fleet: Fleet, reference: dict[str, str], expected: str
) -> None:
    fields = fleet.fields(*SLEEP, env=[{"name": "TOKEN", "valueFrom": {"secretRef": reference}}])
    with pytest.raises(ApplyError, match=expected) as refused:
        fleet.apply(fields)
    assert not refused.value.permanent
    assert f"{BOT}:runtime/process: variable TOKEN" in str(refused.value)
    assert fleet.marked() == []


def test_a_secret_file_that_is_too_large_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"x" * 70000)
    env = [{"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "file", "name": str(file)}}}]
    with pytest.raises(ApplyError, match="larger than"):
        fleet.apply(fleet.fields(*SLEEP, env=env))


def test_a_command_that_does_not_exist_is_a_permanent_error_with_an_address(fleet: Fleet) -> None:
    with pytest.raises(ApplyError, match=r":runtime/process: runtime\.command: 'no-such-program'") as refused:
        fleet.run("no-such-program")
    assert refused.value.permanent
    assert refused.value.hint
    assert fleet.marked() == []


def test_a_command_that_is_not_executable_is_a_permanent_error(fleet: Fleet, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(ApplyError, match="cannot be executed") as refused:
        fleet.run(str(script))
    assert refused.value.permanent


def test_a_missing_workdir_is_a_permanent_error(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(ApplyError, match=r"workdir .*/nowhere is not a folder") as refused:
        fleet.run(*SLEEP, workdir=str(tmp_path / "nowhere"))
    assert refused.value.permanent


def test_a_declared_workdir_is_used_and_an_own_folder_without_one(fleet: Fleet, tmp_path: Path) -> None:
    fleet.run(*SLEEP, workdir=str(tmp_path))
    (pid,) = fleet.pids()
    assert Path(f"/proc/{pid}/cwd").readlink() == tmp_path
    fleet.apply(fleet.fields(*SLEEP), Verb.RESTART)
    (pid,) = fleet.pids()
    assert Path(f"/proc/{pid}/cwd").readlink() == fleet.folder() / "work"


def test_text_that_a_shell_would_run_is_only_text(fleet: Fleet, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    fleet.run("echo", f"$(touch {witness}); touch {witness} | `touch {witness}`")
    assert until(lambda: log(fleet)).startswith("$(touch")
    assert not witness.exists()


def test_replicas_are_numbered_and_each_has_its_own_log(fleet: Fleet) -> None:
    fleet.run("sh", "-c", "echo replica $MANAGED_AGENT_REPLICA; exec sleep 300", replicas=3)
    assert len(fleet.pids()) == 3
    for replica in range(3):
        assert until(lambda n=replica: log(fleet, n)) == f"replica {replica}\n"


def test_applying_twice_starts_nothing_twice(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    before = fleet.pids()
    for verb in (Verb.CREATE, Verb.UPDATE):
        fleet.apply(fields, verb)
    assert fleet.pids() == before
    assert len(fleet.marked()) == 2


def test_a_log_folder_that_is_a_planted_link_is_not_followed(fleet: Fleet, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    fleet.folder().mkdir(parents=True)
    (fleet.folder() / "logs").symlink_to(elsewhere)
    with pytest.raises(ApplyError, match="cannot write below"):
        fleet.run(*SLEEP)
    assert list(elsewhere.iterdir()) == []
    assert fleet.marked() == []


def test_an_agent_that_ends_at_once_was_started_and_says_how_it_ended(fleet: Fleet) -> None:
    fleet.run("sh", "-c", "exit 3")
    seen = until(lambda: (found := fleet.look()).fields is None and found)
    assert seen.reason == "ProcessGone"
    assert "exited with code 3" in seen.message
    assert seen.live["lastExit"]["code"] == 3
    assert not alive(seen.live["lastExit"]["pid"])
    assert seen.key.agent == BOT
