"""What is seen when live is not as applied, and that repairing it converges."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Context, ObserveRequest
from gitops_agent.drivers.local.context import Options
from gitops_agent.drivers.local.driver import LocalDriver
from gitops_agent.drivers.local.handle import decode, encode
from gitops_agent.drivers.local.procfs import ProcessTable, booted_at
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.fields import Fields
from gitops_agent.model.health import Health, HealthState
from gitops_agent.model.observation import Owner
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, PYTHON, SLEEP, Fleet, RealClock, action, alive, kill, process_key, until


def marks(fleet: Fleet, fields: Fields, instance: str | None = None, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "MANAGED_AGENT_OWNER": f"{instance or fleet.instance}/{BOT}",
        "MANAGED_AGENT_REPLICA": "0",
        "MANAGED_AGENT_SPEC": fields.value["spec"],
        **more,
    }


@contextmanager
def by_hand(*command: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, start_new_session=True, **options) as child:
        try:
            yield child
        finally:
            kill(child.pid)


def repaired(fleet: Fleet, fields: Fields, verb: Verb) -> None:
    """One apply, and the next look finds nothing wrong."""
    fleet.apply(fields, verb)
    seen = fleet.look()
    assert (seen.state, seen.reason) == ("Running", None)
    assert seen.fields is not None
    assert seen.fields.value["spec"] == fields.value["spec"]
    assert seen.fields.value["replicas"] == fields.value["replicas"]


def test_a_killed_agent_is_gone_with_its_signal_and_comes_back(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    kill(pid)
    seen = until(lambda: (found := fleet.look()).fields is None and found)
    assert (seen.reason, seen.state) == ("ProcessGone", "Missing")
    assert "killed by signal 9" in seen.message
    assert seen.live["lastExit"]["signal"] == 9
    repaired(fleet, fields, Verb.CREATE)


def test_a_restarted_gitops_agent_knows_which_pid_is_gone(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    kill(pid)
    until(lambda: fleet.look().fields is None)
    fleet.restart()
    seen = fleet.look()
    assert (seen.reason, seen.message) == ("ProcessGone", f"pid {pid} no longer runs")


def test_one_of_two_replicas_gone(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    first, second = fleet.pids()
    kill(first)
    seen = until(lambda: (found := fleet.look()).reason == "ReplicaMissing" and found)
    assert seen.fields is not None
    assert seen.fields.value["replicas"] == 1
    assert seen.health == Health(HealthState.UNHEALTHY, "ReplicaMissing", "1 of 2 replicas are running")
    repaired(fleet, fields, Verb.UPDATE)
    assert second in fleet.pids()
    assert fleet.look().health is None, "probes and heartbeats are asked by core"


def test_after_a_reboot_absence_is_explained(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    key = process_key(BOT)
    handle = decode(fleet.bases[key].handle)
    assert handle.host is not None
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    for change in ({"boot": "an-earlier-boot"}, {"pid_namespace": "pid:[1]"}):
        old = encode(handle.host._replace(**change), handle.replicas)
        base = fleet.bases[key]
        fleet.bases[key] = type(base)(key, "process", base.fields, base.commit, 0.0, handle=old)
        for _ in range(2):
            seen = fleet.look()
            assert (seen.fields, seen.reason) == (None, "HostRestarted")
            assert seen.handle == old, "the explanation must survive until the agent runs again"


def test_suspended_by_hand_is_seen_and_continued(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    os.kill(pid, signal.SIGSTOP)
    seen = until(lambda: (found := fleet.look()).reason == "Suspended" and found)
    assert seen.fields is not None
    assert seen.fields.value["state"] == "Suspended"
    fleet.apply(fields, Verb.UPDATE)
    until(lambda: fleet.look().reason is None)
    assert fleet.pids() == [pid]


def test_a_marked_process_with_the_wrong_command_is_replaced(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    with by_hand("sleep", "999", env=marks(fleet, fields)) as stranger:
        seen = until(lambda: (found := fleet.look()).reason == "CommandDiffers" and found)
        assert seen.fields is not None
        assert seen.fields.value["spec"] != fields.value["spec"], "so that the verb is restart"
        assert decode(seen.handle).replicas == (), "what is wrong must not become known"
        repaired(fleet, fields, Verb.RESTART)
        assert stranger.wait(10) == -signal.SIGTERM


def test_a_marked_process_with_the_wrong_environment_is_replaced(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, env=[{"name": "LEVEL", "value": "info"}])
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    with by_hand(*SLEEP, env=marks(fleet, fields, LEVEL="debug")) as stranger:
        until(lambda: fleet.look().reason == "EnvironmentDiffers")
        repaired(fleet, fields, Verb.RESTART)
        assert stranger.wait(10) == -signal.SIGTERM


def test_a_marked_process_started_right_by_hand_is_simply_adopted(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, env=[{"name": "LEVEL", "value": "info"}])
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    with by_hand(*SLEEP, env=marks(fleet, fields, LEVEL="info")) as twin:
        until(lambda: fleet.pids() == [twin.pid])
        assert fleet.look().reason is None


def test_another_spec_mark_is_drift(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    with by_hand(*SLEEP, env={**marks(fleet, fields), "MANAGED_AGENT_SPEC": "abc"}):
        seen = until(lambda: (found := fleet.look()).reason == "SpecDiffers" and found)
        assert seen.fields is not None
        assert seen.fields.value["spec"] == "abc"
        repaired(fleet, fields, Verb.RESTART)


def test_an_agent_of_another_instance_is_not_ours(fleet: Fleet) -> None:
    fields = fleet.fields(*SLEEP)
    with by_hand(*SLEEP, env=marks(fleet, fields, instance="somebody-else")) as other:
        seen = until(lambda: fleet.see())
        assert (seen.owner, seen.reason) == (Owner.OTHER, "MarkedByOther")
        assert "somebody-else" in seen.message
        fleet.apply(fields, Verb.CREATE)
        fleet.apply(None, Verb.DELETE)
        assert alive(other.pid), "never touched, whatever action comes"


def test_an_unmarked_lookalike_is_in_the_way_and_taken_over_only_by_an_action(
    fleet: Fleet, tmp_path: Path
) -> None:
    fields = fleet.run(*SLEEP, workdir=str(tmp_path))
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    with by_hand(*SLEEP, cwd=tmp_path) as foreign:
        seen = until(lambda: (found := fleet.look()).owner is Owner.NONE and found)
        assert seen.reason == "NotMarked"
        assert seen.fields is not None
        assert seen.live["foreign"] == [foreign.pid]
        repaired(fleet, fields, Verb.UPDATE)
        assert foreign.wait(10) == -signal.SIGTERM


def test_the_same_command_elsewhere_is_nobodys_business(fleet: Fleet, tmp_path: Path) -> None:
    fleet.run(*SLEEP)
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    with by_hand(*SLEEP, cwd=tmp_path):
        seen = fleet.look()
        assert (seen.fields, seen.reason) == (None, "ProcessGone")


def test_a_zombie_is_dead(fleet: Fleet) -> None:
    fields = fleet.fields(*SLEEP)
    # Without a runner, as an earlier version started it: the parent that should collect it is another (this test).
    with by_hand(*SLEEP, env=marks(fleet, fields)) as child:
        until(lambda: fleet.see())
        fleet.apply(fields, Verb.CREATE)
        assert fleet.pids() == [child.pid]
        kill(child.pid)
        seen = until(lambda: (found := fleet.look()).fields is None and found)
        assert seen.reason == "Zombie"
        repaired(fleet, fields, Verb.CREATE)


def test_a_program_that_overwrites_its_environment_stays_known(fleet: Fleet) -> None:
    # What setproctitle does: the memory that /proc shows as environment is overwritten in place.
    code = (
        "import ctypes, re, time\n"
        "stat = open('/proc/self/stat').read().rsplit(')', 1)[1].split()\n"
        "start, end = int(stat[47]), int(stat[48])\n"
        "ctypes.memset(start, 0, end - start)\n"
        "print('wiped', flush=True)\n"
        "time.sleep(300)"
    )
    fleet.run("python3", "-c", code)
    output = fleet.folder() / "logs" / "0.log"
    until(lambda: "wiped" in output.read_text())
    fleet.restart()
    (pid,) = fleet.pids()
    assert b"MANAGED" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert fleet.look().reason is None
    fleet.apply(None, Verb.DELETE)
    assert not alive(pid)


def test_unchanged_notices_a_death_between_plan_and_apply(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    base = fleet.bases[process_key(BOT)]
    step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=fleet.look(), base=base)
    assert fleet.driver.unchanged(step)
    kill(fleet.pids()[0])
    until(lambda: fleet.look().fields is None)
    assert not fleet.driver.unchanged(step)


def test_the_start_is_stable_between_looks(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    assert fleet.look().started_at == fleet.look().started_at
    assert fleet.look().live == fleet.look().live


@pytest.mark.parametrize("content", [None, "empty"])
def test_a_process_table_that_cannot_be_read_is_an_error_not_an_empty_fleet(
    fleet: Fleet, tmp_path: Path, content: str | None
) -> None:
    fleet.run(*SLEEP)
    root = tmp_path / "proc"
    if content is not None:
        root.mkdir()
    options = Options(proc=str(root), groups=None, environment={})
    unreachable = LocalDriver("process", Context(fleet.instance, str(fleet.state), RealClock()), options)
    with pytest.raises(ObserveError):
        unreachable.observe(ObserveRequest(None, fleet.bases))


def test_scope_limits_what_is_returned(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet()
    other = BOT._replace(name="other")
    fleet.run(*SLEEP)
    fleet.run(*SLEEP, agent=other)
    assert [seen.key.agent for seen in fleet.driver.observe(fleet.request(other))] == [other]
    everyone = {
        seen.key.agent
        for seen in fleet.driver.observe(ObserveRequest(None, fleet.bases))
        if seen.owner is Owner.OURS
    }
    assert everyone == {BOT, other}


def test_a_debugger_is_reported_and_left_alone(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    attach = (
        f"import ctypes, sys; print(ctypes.CDLL(None).ptrace(16, {pid}, None, None), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([PYTHON, "-c", attach], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as debugger:
        assert debugger.stdout is not None
        if debugger.stdout.readline().strip() != b"0":
            debugger.kill()
            pytest.skip("this machine does not let one process trace another")
        seen = until(lambda: (found := fleet.look()).state == "Traced" and found)
        assert seen.reason is None
        assert seen.fields is not None
        assert seen.fields.value["state"] == "Running"
        assert "debugger" in seen.message
        fleet.apply(fields, Verb.UPDATE)
        assert fleet.look().state == "Traced"
        debugger.kill()


def test_a_jump_of_the_wall_clock_moves_the_start_along(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    proc = ProcessTable().one(fleet.pids()[0])
    assert proc is not None
    before = proc.started_at(booted_at(time.time))
    after = proc.started_at(booted_at(lambda: time.time() + 3600))
    assert 3590 < after - before < 3610, "an agent does not grow older because the clock was set"
    assert abs(before - time.time()) < 60


def test_a_full_disk_is_said_and_nothing_starts(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = fleet.fields(*SLEEP)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", full)
        with pytest.raises(ApplyError, match="No space left on device") as refused:
            fleet.apply(fields)
    assert not refused.value.permanent
    assert fleet.marked() == []
    fleet.apply(fields)
    assert len(fleet.pids()) == 1
