"""The pure parts: what a document asks, marks, matching, judging."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.local.handle import Handle, ReplicaHandle
from gitops_agent.drivers.local.lookalikes import has_environment, runs_command
from gitops_agent.drivers.local.marks import Marks, read_marks
from gitops_agent.drivers.local.memory_limit import MemoryLimits, delegated_parent
from gitops_agent.drivers.local.process_tree import build_tree, split_extras, tree_of
from gitops_agent.drivers.local.procfs import Host, ProcessInfo
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.drivers.process import PLUGIN
from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from tests.drivers.conftest import agent_document
from tests.support.plugins import compiled

pytestmark = pytest.mark.unit

AGENT = AgentKey("acme", "bot")
COMMAND = ["python", "-m", "bot"]


def made(document: AgentDocument) -> tuple[Resource, ...]:
    return compiled(PLUGIN, AGENT, document)


def fields(spec: dict[str, Any] | None = None, **runtime: Any) -> dict[str, Any]:
    (resource,) = made(agent_document(AGENT, spec=spec, **{"command": COMMAND, **runtime}))
    return resource.fields.value


def test_the_resource_carries_everything_a_start_needs() -> None:
    env = [
        {"name": "LEVEL", "value": "info"},
        {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "T"}}},
    ]
    found = fields(env=env, replicas=2, resources={"limits": {"memory": "64Mi"}})
    assert found["env"] == [
        {"name": "LEVEL", "value": "info"},
        {"name": "TOKEN", "secretRef": {"provider": "env", "name": "T"}},
    ]
    assert (found["command"], found["workdir"], found["replicas"]) == (COMMAND, None, 2)
    assert (found["state"], found["memoryLimit"], found["reload"]) == ("Running", 64 * 2**20, "Restart")
    assert found["stop"] == {"signal": "SIGTERM", "grace": 10.0}


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["other"]},
        {"workdir": "/srv"},
        {"env": [{"name": "A", "value": "b"}]},
        {"reload": "Hot"},
        {"spec": {"instructions": "Be kind."}},
        {"spec": {"tools": [{"name": "crm"}]}},
    ],
)
def test_what_needs_a_restart_changes_the_spec(change: dict[str, Any]) -> None:
    assert fields(**change)["spec"] != fields()["spec"]


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"stop": {"signal": "SIGINT", "grace": "1s"}},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"minUptime": "9s"},
        {"spec": {"probes": {"liveness": {"http": {"port": 80}}}}},
        {"spec": {"heartbeat": {"staleAfter": "5s"}}},
        {"spec": {"lifecycle": "Stopped"}},
        {"spec": {"description": "New words"}},
    ],
)
def test_what_needs_none_does_not(change: dict[str, Any]) -> None:
    assert fields(**change)["spec"] == fields()["spec"]


def test_hot_reload_keeps_the_bundle_out_of_the_spec() -> None:
    assert fields(reload="Hot")["spec"] == fields(reload="Hot", spec={"instructions": "Be kind."})["spec"]


def test_stopped_is_absence_and_retired_is_nothing() -> None:
    (stopped,) = made(agent_document(AGENT, spec={"lifecycle": "Stopped"}, command=COMMAND))
    assert stopped.stopped
    assert (stopped.fields.value["replicas"], stopped.fields.value["state"]) == (0, "Stopped")
    assert made(agent_document(AGENT, spec={"lifecycle": "Retired"}, command=COMMAND)) == ()
    assert made(agent_document(AGENT, driver="kubernetes", image="x")) == ()


@pytest.mark.parametrize(
    ("runtime", "sentence"),
    [
        ({"command": []}, "needs command"),
        ({"workdir": "here"}, "runtime.workdir 'here' is relative"),
        ({"image": "busybox"}, "runtime.image means nothing"),
        ({"stop": {"signal": "SIGKILL"}}, "runtime.stop.signal 'SIGKILL' is none of SIGTERM, SIGINT"),
        ({"stop": {"grace": "1h1ms"}}, "at most 1h"),
        ({"env": [{"name": "MANAGED_AGENT_OWNER", "value": "me"}]}, "are set by gitops-agent"),
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "more than once"),
        (
            {"env": [{"name": "A", "valueFrom": {"secretRef": {"provider": "file", "name": "../x"}}}]},
            "needs an absolute path",
        ),
        (
            {
                "env": [
                    {"name": "A", "valueFrom": {"secretRef": {"provider": "env", "name": "GITOPS_AGENT_TOKEN"}}}
                ]
            },
            "settings of ours",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(runtime: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fields(**runtime)


def test_a_grace_that_nobody_waits_for_is_not_waited_for() -> None:
    longest = fields(stop={"grace": "1h"})
    assert Desired.of(Fields.of(longest)).stop[1] == 3600.0
    older = Fields.of({**longest, "stop": {"signal": "SIGTERM", "grace": 25 * 86400.0}})
    assert Desired.of(older).stop[1] == 3600.0, "recorded before there was a limit"


def test_desired_reads_back_what_the_compiler_wrote() -> None:
    (resource,) = made(agent_document(AGENT, command=COMMAND, replicas=4))
    desired = Desired.of(resource.fields)
    assert (desired.command, desired.replicas, desired.stop[1]) == (tuple(COMMAND), 4, 10.0)


def environ(**values: str) -> bytes:
    return b"".join(f"{name}={value}\0".encode() for name, value in values.items())


def test_marks_are_read_back() -> None:
    block = environ(
        PATH="/bin", MANAGED_AGENT_OWNER="prod/acme/bot", MANAGED_AGENT_REPLICA="3", MANAGED_AGENT_SPEC="af"
    )
    assert read_marks(block) == Marks("prod", AGENT, 3, "af")


@pytest.mark.parametrize(
    "owner",
    ["", "prod", "prod/acme", "prod/../bot", "prod/acme/../../etc", "prod/acme/bot/x", "prod/acme/Bot", "a/b/c\n"],
)
def test_marks_that_we_would_never_write_are_none(owner: str) -> None:
    block = environ(MANAGED_AGENT_OWNER=owner, MANAGED_AGENT_REPLICA="0", MANAGED_AGENT_SPEC="af")
    assert read_marks(block) is None


@given(st.binary(max_size=300))
def test_no_environment_breaks_the_reader(noise: bytes) -> None:
    read_marks(noise)
    read_marks(b"MANAGED_AGENT_OWNER=" + noise)


@pytest.mark.parametrize(
    ("found", "declared", "same"),
    [
        (("python", "-m", "bot"), ("python", "-m", "bot"), True),
        (("/usr/bin/python3", "/srv/bot", "-v"), ("./bot", "-v"), True),
        (("python", "-m", "other"), ("python", "-m", "bot"), False),
        (("python", "-m", "bot", "--debug"), ("python", "-m", "bot"), False),
        (("sleep", "9"), ("sleep", "300"), False),
        (("bot: waiting for work",), ("python", "-m", "bot"), True),
        ((), ("python",), True),
    ],
)
def test_command_lines_match_behind_an_interpreter(
    found: tuple[str, ...], declared: tuple[str, ...], same: bool
) -> None:
    assert runs_command(found, declared) is same


@given(st.lists(st.text(min_size=1), min_size=1), st.lists(st.text(min_size=1), max_size=3))
def test_a_declared_command_always_matches_itself(command: list[str], interpreter: list[str]) -> None:
    assert runs_command([*interpreter, *command], command)


def test_environments_compare_literals_only() -> None:
    declared = [{"name": "A", "value": "1"}, {"name": "B", "secretRef": {"provider": "env", "name": "X"}}]
    assert has_environment({"A": "1", "B": "anything"}, declared)
    assert not has_environment({"A": "2"}, declared)


def proc(
    pid: int, *, ppid: int = 1, session: int | None = None, replica: int | None = 0, state: str = "S"
) -> ProcessInfo:
    marks = None if replica is None else Marks("me", AGENT, replica, "aa")
    return ProcessInfo(pid, state, ppid, pid, session if session is not None else pid, pid * 10, 100, marks)


def table(*procs: ProcessInfo) -> dict[int, ProcessInfo]:
    return {one.pid: one for one in procs}


def test_only_marked_session_leaders_without_marked_ancestors_are_replicas() -> None:
    sweep = table(
        proc(1, replica=None),
        proc(10),
        proc(11, ppid=10, session=10),
        proc(12, ppid=10),  # a tool in a session of its own
        proc(13, ppid=11),  # and one below that
        proc(20, replica=1),
        proc(30, state="Z"),
    )
    tree = build_tree(sweep, "me", {})
    assert [replica.proc.pid for replica in tree.ours[AGENT]] == [10, 20]
    assert build_tree(sweep, "you", {}).ours == {}
    assert [one.pid for one in build_tree(sweep, "you", {}).others[AGENT]] == [10, 20]
    first = tree.ours[AGENT][0]
    assert [one.pid for one in tree_of(first, tree.ours[AGENT], tree)] == [10, 11, 12, 13]


def test_facts_make_an_unmarked_process_ours_only_by_pid_and_start() -> None:
    sweep = table(proc(10, replica=None), proc(11, replica=None))
    handle = Handle(Host("b", "n"), (ReplicaHandle(0, 10, 100, "aa"), ReplicaHandle(1, 11, 999, "aa")))
    (replica,) = build_tree(sweep, "me", {AGENT: handle}).ours[AGENT]
    assert (replica.proc.pid, replica.known) == (10, True)


def test_of_two_the_recorded_one_counts_and_a_daemon_is_not_extra() -> None:
    sweep = table(proc(10), proc(20), proc(30))
    handle = Handle(Host("b", "n"), (ReplicaHandle(0, 20, 200, "aa"),))
    replicas = build_tree(sweep, "me", {AGENT: handle}).ours[AGENT]
    lines = {10: ("bot",), 20: ("bot",), 30: ("tool",)}
    first, extra = split_extras(replicas, lambda pid: lines[pid])
    assert [replica.proc.pid for replica in first] == [20]
    assert [replica.proc.pid for replica in extra] == [10]


pids = st.integers(min_value=1, max_value=30)


@given(
    st.lists(st.builds(proc, pids, ppid=pids, session=pids, replica=st.sampled_from([None, 0, 1])), max_size=30)
)
def test_every_marked_process_belongs_to_at_most_one_replica(procs: list[ProcessInfo]) -> None:
    tree = build_tree(table(*procs), "me", {})
    replicas = tree.ours.get(AGENT, ())
    leaders = {replica.proc.pid for replica in replicas}
    for replica in replicas:
        members = {one.pid for one in tree_of(replica, replicas, tree)}
        assert replica.proc.pid in members
        escaped = members - tree.below(replica.proc.pid)
        assert not escaped & (leaders - {replica.proc.pid})


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[[str], Path]:
    """Make a folder that stands for a control group, and one for ``/proc/self`` that says we are in it."""

    def make(own: str) -> Path:
        (tmp_path / "cgroup").write_text(f"4:memory:/v1\n0::{own}\n")
        (tmp_path / "mountinfo").write_text(f"1 2 0:3 / {tmp_path}/fs rw - cgroup2 cgroup rw\n")
        group = tmp_path / "fs" / own.lstrip("/")
        group.mkdir(parents=True)
        return group

    return make


def mark_as_delegated(group: Path) -> None:
    """As systemd does, or as far as we may."""
    for name in ("trusted.delegate", "user.delegate"):
        try:
            os.setxattr(group, name, b"1")
        except OSError:
            continue
        return
    pytest.skip("this file system keeps no extended attributes")


def test_a_group_is_used_only_where_the_machine_delegated_one(
    tmp_path: Path, simulated: Callable[[str], Path]
) -> None:
    own = simulated("/system.slice/bot.service")
    # Writable, but neither marked nor the border between two users: it is not ours.
    assert delegated_parent(tmp_path) is None
    mark_as_delegated(own)
    assert delegated_parent(tmp_path) == own
    assert delegated_parent(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("own", "marked", "used"),
    [
        ("/bot.service/main", "bot.service", True),  # DelegateSubgroup=main
        ("/user.service/bot.service", "user.service", False),  # what is delegated is the user's own systemd
        ("/bot.service/replica.me.acme.bot.0", "bot.service", False),  # an agent that runs gitops-agent itself
        ("/bot.service/replica.me.acme.bot.0", "bot.service/replica.me.acme.bot.0", False),
    ],
)
def test_what_is_above_our_group_is_used_only_if_we_are_a_part_of_it(
    tmp_path: Path, simulated: Callable[[str], Path], own: str, marked: str, used: bool
) -> None:
    simulated(own)
    group = tmp_path / "fs" / marked
    mark_as_delegated(group)
    assert delegated_parent(tmp_path) == (group if used else None)


def test_a_simulated_group_with_a_memory_controller_gets_limit_and_process(tmp_path: Path) -> None:
    groups = MemoryLimits("me", tmp_path)
    known = ReplicaHandle(0, 4711, 0, "")
    assert groups.confine(AGENT, known, 1000)
    made = tmp_path / "replica.me.acme.bot.0"
    assert (made / "memory.max").read_text() == "1000"
    assert groups.confines(AGENT, 0, 4711)
    assert not groups.confines(AGENT, 0, 1)
    assert not groups.killed(AGENT, 0)
    (made / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert groups.killed(AGENT, 0)
    assert not groups.confine(AGENT, known, None), "Git asks for no limit any more"
    assert (made / "memory.max").read_text() == "max"
    assert not groups.confines(AGENT, 0, 4711)
    assert not MemoryLimits("me", None).confine(AGENT, known, 1000)
    assert not MemoryLimits("me", tmp_path / "missing").confine(AGENT, known, 1000)


def test_memory_is_watched_in_a_simulated_group_without_a_memory_controller(tmp_path: Path) -> None:
    groups = MemoryLimits("me", tmp_path)
    procs = groups.birthplace(AGENT, 0)
    assert procs is not None
    Path(procs).write_text("10\n")
    tree = build_tree(table(proc(10)), "me", {})
    (replica,) = tree.ours[AGENT]
    assert groups.members(AGENT, 0) == {10}
    assert groups.over([replica], 50, tree) == [replica]


def test_a_simulated_group_counts_anew_for_each_start(tmp_path: Path) -> None:
    groups = MemoryLimits("me", tmp_path)
    assert groups.birthplace(AGENT, 0) is not None
    first = (tmp_path / "replica.me.acme.bot.0").stat().st_ctime_ns
    assert groups.birthplace(AGENT, 0) is not None
    assert (tmp_path / "replica.me.acme.bot.0").stat().st_ctime_ns > first
