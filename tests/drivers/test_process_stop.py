"""Stopping and replacing: signals, grace, trees, and never the wrong process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.local import apply
from gitops_agent.drivers.local.handle import Handle, ReplicaHandle, decode, encode
from gitops_agent.drivers.local.procfs import ProcessTable, this_host
from gitops_agent.drivers.local.stop import wait_gone
from gitops_agent.errors import ApplyError, NotYet
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Class, Verb
from tests.drivers.conftest import BOT, PYTHON, SLEEP, Fleet, action, alive, kill, process_key, until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(300)"
)
SHORT = {"signal": "SIGTERM", "grace": "200ms"}


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as child:
        yield child
        child.kill()


def log(fleet: Fleet) -> str:
    path = fleet.folder() / "logs" / "0.log"
    return path.read_text() if path.exists() else ""


def environment_of(pid: int) -> dict[str, str]:
    block = Path(f"/proc/{pid}/environ").read_text()
    return dict(line.split("=", 1) for line in block.split("\0") if "=" in line)


def test_stop_ends_every_replica(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    pids = fleet.pids()
    stopped = fleet.fields(*SLEEP, replicas=2, spec={"lifecycle": "Stopped"})
    assert stopped.value["spec"] == fields.value["spec"]
    fleet.apply(stopped, Verb.STOP)
    assert not any(alive(pid) for pid in pids)
    seen = fleet.look()
    assert (seen.fields, seen.state, seen.reason) == (None, "Stopped", None)


def test_the_declared_signal_is_sent_first(fleet: Fleet) -> None:
    code = (
        "import signal, sys, time\n"
        "def bye(*_):\n    print('bye', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGUSR1, bye); print('up', flush=True); time.sleep(300)"
    )
    fields = fleet.run(PYTHON, "-c", code, stop={"signal": "SIGUSR1", "grace": "30s"})
    until(lambda: "up" in log(fleet))
    fleet.apply(None, Verb.DELETE)
    assert "bye" in log(fleet)
    assert fields.value["stop"] == {"signal": "SIGUSR1", "grace": 30.0}


def test_who_ignores_the_signal_is_killed_after_the_grace(fleet: Fleet) -> None:
    fleet.run(PYTHON, "-c", STUBBORN, stop=SHORT)
    until(lambda: "up" in log(fleet))
    (pid,) = fleet.pids()
    fleet.apply(None, Verb.DELETE)
    assert not alive(pid)
    assert fleet.see() is None


def test_children_in_the_group_and_escaped_ones_end_with_the_replica(fleet: Fleet, tmp_path: Path) -> None:
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(STUBBORN)
    # One child in the group, one in a session of its own, one reparented daemon that ignores SIGTERM.
    script = f"sleep 301 & setsid sleep 302 & (setsid {PYTHON} {stubborn} & ) ; echo started; wait; sleep 300"
    fleet.run("sh", "-c", script, stop=SHORT)
    until(lambda: "started" in log(fleet) and "up" in log(fleet))
    until(lambda: len(fleet.marked()) == 4)
    seen = fleet.look()
    assert len(seen.live["replicas"]) == 1, "the tree is never drift"
    assert seen.reason is None
    tree = fleet.marked()
    fleet.apply(None, Verb.DELETE)
    assert not any(alive(pid) for pid in tree)


def test_a_suspended_agent_can_be_stopped_gently(fleet: Fleet) -> None:
    fleet.run("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    until(lambda: "up" in log(fleet))
    (pid,) = fleet.pids()
    os.kill(pid, signal.SIGSTOP)
    until(lambda: fleet.look().state == "Suspended")
    fleet.apply(None, Verb.DELETE)
    assert "bye" in log(fleet)


def test_a_reused_pid_is_neither_ours_nor_touched(fleet: Fleet, bystander: subprocess.Popen[bytes]) -> None:
    fields = fleet.fields(*SLEEP)
    found = ProcessTable().one(bystander.pid)
    assert found is not None
    handle = encode(this_host(), [ReplicaHandle(0, found.pid, found.start - 1, fields.value["spec"])])
    key = process_key(BOT)
    fleet.bases[key] = Base(key, "process", fields, "c0ffee", 0.0, handle=handle)
    seen = fleet.look()
    assert (seen.fields, seen.reason) == (None, "ProcessGone")
    step = action(key, Verb.DELETE, seen=seen, base=fleet.bases[key])
    fleet.driver.apply(step, "intent")
    assert alive(bystander.pid)


def test_a_restart_replaces_what_ran_when_it_was_planned_and_nothing_younger(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    seen = fleet.look()
    base = fleet.bases[process_key(BOT)]
    step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=seen, base=base)
    stuck = replace(step, drift_class=Class.STUCK_PROGRESS)  # without a name: there is only one
    before = fleet.pids()
    fleet.driver.apply(stuck, "intent")
    between = fleet.pids()
    assert not set(before) & set(between)
    fleet.driver.apply(stuck, "intent")
    assert fleet.pids() == between


def test_a_restart_for_a_stuck_replica_that_died_meanwhile_stops_none_of_its_siblings(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, replicas=3)
    first, second, third = fleet.pids()
    base = fleet.bases[process_key(BOT)]
    step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=fleet.look(), base=base)
    kill(second)
    until(lambda: len(fleet.pids()) == 2)
    fleet.driver.apply(replace(step, instances=(str(second),), drift_class=Class.STUCK_PROGRESS), "intent")
    after = fleet.pids()
    assert (len(after), after[0], after[2]) == (3, first, third)


def test_a_restart_for_a_copy_too_many_stops_none_of_the_replicas(fleet: Fleet) -> None:
    """The copy runs another spec, so a restart is planned; the replicas that count are as they should be."""
    fields = fleet.run(*SLEEP, replicas=3)
    before = fleet.pids()
    environment = {**environment_of(before[0]), "MANAGED_AGENT_SPEC": "af"}
    with subprocess.Popen(SLEEP, env=environment, start_new_session=True) as extra:
        try:
            assert until(lambda: fleet.look().reason == "SpecDiffers")
            base = fleet.bases[process_key(BOT)]
            step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=fleet.look(), base=base)
            fleet.driver.apply(step, "intent")
            assert extra.wait(10) == -signal.SIGTERM
            assert fleet.pids() == before
        finally:
            kill(extra.pid)


def test_another_spec_replaces_one_replica_at_a_time_and_each_only_once(fleet: Fleet) -> None:
    fleet.run(*SLEEP, replicas=3)
    first, second, third = fleet.pids()
    changed = fleet.fields("sleep", "301", replicas=3)
    done = fleet.apply(changed, Verb.RESTART)
    assert done.message.endswith("2 to follow")
    new, *rest = fleet.pids()
    assert (new != first, rest) == (True, [second, third])
    seen = fleet.look()
    assert (seen.reason, [each.behind for each in seen.instances]) == ("ReplicasFollow", [False, True, True])
    fleet.restart()  # what is left to do can be seen, and is not remembered
    assert fleet.look().reason == "ReplicasFollow"
    fleet.apply(changed, Verb.RESTART)
    assert fleet.pids()[0] == new
    assert fleet.pids()[2] == third
    fleet.apply(changed, Verb.RESTART)
    after = fleet.pids()
    assert after[0] == new
    assert not {first, second, third} & set(after)
    assert fleet.look().reason is None


def test_as_many_replicas_follow_at_once_as_may_be_down(fleet: Fleet) -> None:
    fleet.run(*SLEEP, replicas=3)
    before = fleet.pids()
    changed = fleet.fields("sleep", "301", replicas=3, update={"maxUnavailable": 2})
    kill(before[0])
    until(lambda: len(fleet.pids()) == 2)
    fleet.apply(changed, Verb.RESTART)
    assert len(fleet.pids()) == 3
    assert set(fleet.pids()) & set(before) == {before[2]}, "one was down already"


def test_a_replica_that_is_not_well_is_replaced_first_and_costs_nothing(fleet: Fleet) -> None:
    fleet.run(*SLEEP, replicas=3)
    before = fleet.pids()
    fields, base = fleet.fields("sleep", "301", replicas=3), fleet.bases[process_key(BOT)]
    step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=fleet.look(), base=base)
    fleet.driver.apply(replace(step, instances=(str(before[1]), str(before[2]))), "intent")
    assert set(fleet.pids()) & set(before) == {before[0]}


def test_a_restart_of_one_stuck_replica_leaves_its_siblings_alone(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    first, second = fleet.pids()
    base = fleet.bases[process_key(BOT)]
    step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=fleet.look(), base=base)
    stuck = replace(step, instances=(str(second),), drift_class=Class.STUCK_PROGRESS)
    fleet.driver.apply(stuck, "intent")
    assert fleet.pids()[0] == first
    assert second not in fleet.pids()


LEAK = (
    "import os, time; number = os.environ['MANAGED_AGENT_REPLICA']\n"
    "held = bytearray(96 * 2**20 if number in {!r} else 0); print('up', flush=True); time.sleep(300)"
)


def over_limit(fleet: Fleet, leaking: str, **runtime: Any) -> tuple[Action, list[int]]:
    """The restart of an agent of which these replicas are over their memory limit, and its pids."""
    limits = {"limits": {"memory": "64Mi"}}
    fields = fleet.run(PYTHON, "-c", LEAK.format(leaking), resources=limits, **runtime)
    logs = [fleet.folder() / "logs" / f"{number}.log" for number in range(runtime["replicas"])]
    until(lambda: all(log.read_text() for log in logs) and fleet.look().reason == "MemoryLimit")
    base = fleet.bases[process_key(BOT)]
    step = action(process_key(BOT), Verb.RESTART, desired=fields, seen=fleet.look(), base=base)
    return replace(step, drift_class=Class.STUCK_PROGRESS, reason="MemoryLimit"), fleet.pids()


def test_one_over_its_memory_limit_waits_only_for_an_unready_sibling_that_is_new(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, (first, second) = over_limit(fleet, "0", replicas=2)
    step = replace(step, instances=(str(second),))
    with pytest.raises(NotYet, match="1 to be replaced once its other replicas are Ready"):
        fleet.driver.apply(step, "intent")
    assert fleet.pids() == [first, second]
    monkeypatch.setattr(apply, "age_of", lambda _: 122.0)
    fleet.driver.apply(step, "intent")
    assert first not in fleet.pids()
    assert second in fleet.pids()


def test_of_several_over_their_memory_limit_as_many_go_at_once_as_may_be_down(fleet: Fleet) -> None:
    step, before = over_limit(fleet, "012", replicas=3, update={"maxUnavailable": 2})
    done = fleet.driver.apply(step, "intent")
    assert done.message.endswith("1 to follow")
    assert set(fleet.pids()) & set(before) == {before[2]}


def test_scaling_starts_and_stops_only_the_difference(fleet: Fleet) -> None:
    fleet.run(*SLEEP, replicas=2)
    first, second = fleet.pids()
    fleet.apply(fleet.fields(*SLEEP, replicas=3), Verb.UPDATE)
    assert fleet.pids()[:2] == [first, second]
    assert len(fleet.pids()) == 3
    fleet.apply(fleet.fields(*SLEEP, replicas=1), Verb.UPDATE)
    assert fleet.pids() == [first]


def test_an_extra_replica_is_stopped_and_the_recorded_one_kept(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    with subprocess.Popen(SLEEP, env=environment_of(pid), start_new_session=True) as extra:
        try:
            seen = until(lambda: (found := fleet.look()).reason == "ExtraReplica" and found)
            assert seen.fields is not None
            assert seen.fields.value["replicas"] == 2
            fleet.apply(fields, Verb.UPDATE)
            assert extra.wait(10) == -signal.SIGTERM
            assert fleet.pids() == [pid]
        finally:
            kill(extra.pid)


def test_facts_survive_a_round_trip_and_refuse_nonsense() -> None:
    host = this_host()
    known = (ReplicaHandle(0, 12, 34, "ab"),)
    assert decode(encode(host, known)) == Handle(host, known)
    assert decode(None) == Handle()
    assert decode(process_fields := encode(host, known)).here(host._replace(boot="other")) == Handle()
    assert process_fields.value["replicas"] == [[0, 12, 34, "ab"]]


@pytest.mark.parametrize("pidfds", [True, False])
def test_a_wait_of_any_length_ends_with_the_process(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, pidfds: bool
) -> None:
    """Longer than poll() can count, and on a kernel without pidfds: how it ended is still ours to tell."""
    if not pidfds:
        monkeypatch.setattr("gitops_agent.drivers.local.stop.open_pidfd", lambda *_: None)
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    proc = ProcessTable().one(pid)
    assert proc is not None
    killer = threading.Timer(0.2, kill, (pid,))
    killer.start()
    wait_gone([proc], 25 * 86400.0, ProcessTable(), lambda: None)
    killer.join()
    assert not alive(pid)
    # Its runner knows how it ended, and tells a moment after the process itself is gone.
    until(lambda: "killed by signal 9" in fleet.look().message)


def test_a_long_exec_probe_does_not_overflow_either(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    assert fleet.driver.exec(BOT, ["true"], 25 * 86400.0).ok


@pytest.mark.parametrize(
    ("command", "runtime", "words"),
    [
        (("no-such-program",), {}, "was not found"),
        (("/no/such/program",), {}, "was not found"),
        (("./notes.txt",), {"workdir": "HERE"}, "cannot be executed"),
        (("sleep", "301"), {"workdir": "/no/such/folder"}, "is not a folder"),
        (
            ("sleep", "301"),
            {"env": [{"name": "A", "valueFrom": {"secretRef": {"provider": "env", "name": "NOT_SET_ANYWHERE"}}}]},
            "NOT_SET_ANYWHERE",
        ),
    ],
)
def test_a_spec_that_cannot_start_costs_nothing_that_runs(
    fleet: Fleet, tmp_path: Path, command: tuple[str, ...], runtime: dict[str, object], words: str
) -> None:
    (tmp_path / "notes.txt").write_text("not a program")
    if runtime.get("workdir") == "HERE":
        runtime = {**runtime, "workdir": str(tmp_path)}
    fleet.run("sleep", "300")
    before = fleet.pids()
    with pytest.raises(ApplyError, match=words):
        fleet.apply(fleet.fields(*command, **runtime), Verb.RESTART)
    assert fleet.pids() == before
