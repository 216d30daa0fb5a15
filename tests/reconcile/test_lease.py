"""Leases: never two at once, also when holders are killed, stopped, or have their files taken away."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gitops_agent.errors import UsageError
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Result
from gitops_agent.model.plan import Class, Decision, Effect, Verb
from gitops_agent.reconcile.executor import Executor, ExecutorContext
from gitops_agent.reconcile.leases import host_leases
from gitops_agent.reconcile.leases.holder import LeaseHolder
from gitops_agent.reconcile.leases.host_leases import Holder, HostLeases
from gitops_agent.settings import build_settings, default_lease_dir
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import MemoryDriver, config_key, runtime_key
from tests.reconcile.make import ONE, THREE, TWO, action, bring_up, plan
from tests.support.fleet import until

unit = pytest.mark.unit


def leases(folder: Path, state: str = "/var/lib/one", *, source: str = "", wait: float = 5.0) -> HostLeases:
    """One gitops-agent called prod; each state directory follows a source of its own unless we say otherwise."""
    holder = Holder("prod", state, source or f"source of {state}", os.getpid(), 86400.0)
    return HostLeases(folder, holder, wait=wait)


def token(folder: Path, agent: AgentKey) -> int:
    """The fencing token of the lease on file; 0 when there is none."""
    path = folder / "prod" / "agents" / f"{agent.tenant}.{agent.name}"
    return int(json.loads(path.read_bytes())["token"]) if path.exists() else 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


# ----- two of one name


@unit
def test_the_second_is_told_who_acts_and_goes_on_when_that_one_ends(folder: Path) -> None:
    with leases(folder, "/var/lib/two") as second:
        with leases(folder) as first:
            assert first.claim([ONE, TWO]) == {}
            assert first.holds(ONE)
            refused = second.claim([ONE, THREE])
            assert refused == {
                ONE: "acted on by another gitops-agent (instance prod, state directory /var/lib/one, "
                f"pid {os.getpid()}, since 1970-01-02 00:00:00 UTC); this one waits"
            }
            assert (second.holds(ONE), second.holds(THREE)) == (False, True)
            assert first.claim([ONE, TWO]) == {}, "kept"
            assert THREE in first.claim([THREE])
            before = token(folder, ONE)
        assert second.claim([ONE, TWO]) == {}
        assert token(folder, ONE) > before > 0, "also after a lease was given back"
    assert not first.holds(ONE)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["lock"]


@unit
def test_other_instances_are_no_business_of_ours(folder: Path) -> None:
    other = Holder("staging", "/var/lib/one", "", os.getpid(), 86400.0)
    with leases(folder) as prod, HostLeases(folder, other) as staging:
        assert prod.claim([ONE]) == staging.claim([ONE]) == {}


@unit
def test_what_was_not_claimed_is_not_held_and_nothing_is_written_for_it(folder: Path) -> None:
    with leases(folder) as mine:
        assert mine.claim([]) == {}
        assert not mine.holds(ONE)
        assert list((folder / "prod" / "agents").iterdir()) == []


@unit
def test_of_two_that_follow_the_same_source_the_elder_acts_on_everything(folder: Path) -> None:
    a, b, c = leases(folder, "/a", source="main"), leases(folder, "/b", source="main"), leases(folder, "/c")
    with a as first, b as second, c as third:
        assert "state directory /a" in second.claim([ONE])[ONE], "though nobody holds it yet"
        assert "state directory /a" in second.senior_holder()
        assert first.senior_holder() == third.senior_holder() == ""
        assert third.claim([ONE]) == {}, "one that follows something else may be meant"
        assert "state directory /c" in first.claim([ONE])[ONE]
        assert first.claim([TWO]) == {}
    with leases(folder, "/b", source="main") as second:
        assert second.claim([TWO]) == {}
        assert second.senior_holder() == ""


# ----- the fence


@unit
def test_who_lost_its_lease_no_longer_acts(folder: Path) -> None:
    """Something cleans the folder up while a gitops-agent lives: another may go ahead, so this one must stop."""
    with leases(folder) as first, leases(folder, "/var/lib/two") as second:
        assert first.claim([ONE, TWO]) == {}
        for path in (folder / "prod" / "holders").iterdir():
            path.unlink()
        assert second.claim([ONE]) == {}
        assert (first.holds(ONE), second.holds(ONE)) == (False, True)
        assert "state directory /var/lib/two" in first.claim([ONE])[ONE]
        assert first.claim([TWO]) == {}, "what nobody took meanwhile is taken again"


@unit
def test_a_folder_that_vanishes_is_made_again(folder: Path) -> None:
    with leases(folder) as first, leases(folder, "/var/lib/two") as second:
        assert first.claim([ONE]) == {}
        shutil.rmtree(folder)
        assert not first.holds(ONE)
        assert second.claim([ONE]) == {}
        assert ONE in first.claim([ONE])


@unit
@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"holder": 1}', b'{"holder": "x", "token": "y"}', b"\xff\x00"]
)
def test_a_damaged_lease_is_nobodys(folder: Path, damage: bytes) -> None:
    with leases(folder) as first, leases(folder, "/var/lib/two") as second:
        first.claim([ONE])
        (folder / "prod" / "agents" / "acme.one").write_bytes(damage)
        assert not first.holds(ONE)
        assert second.claim([ONE]) == {}


@unit
@pytest.mark.parametrize(
    "damage", [b"", b"{}", b'{"instance":"","state_dir":"","source":"","pid":1,"since":1e300}']
)
def test_who_says_nothing_of_itself_is_alive_all_the_same(folder: Path, damage: bytes) -> None:
    with leases(folder) as first, leases(folder, "/var/lib/two") as second:
        first.claim([ONE])
        (file,) = (path for path in (folder / "prod" / "holders").iterdir() if b"/one" in path.read_bytes())
        file.write_bytes(damage)
        assert second.claim([ONE])[ONE].startswith("acted on by another gitops-agent that cannot be identified")


# ----- a folder that does not do


@unit
def test_a_folder_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    us = os.geteuid()
    monkeypatch.setattr(host_leases.os, "geteuid", lambda: us + 1)
    with (
        pytest.raises(UsageError, match=f"a folder of user id {us}, and we are {us + 1}") as caught,
        leases(folder),
    ):
        pass
    assert str(folder) in caught.value.message
    assert "--lease-dir" in caught.value.hint


@unit
def test_a_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="other users may write") as caught, leases(folder):
        pass
    assert f"chmod 700 {folder}" in caught.value.hint


@unit
def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="this is a link"), leases(folder):
        pass
    folder.unlink()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with leases(folder) as mine:
        (folder / "prod" / "agents" / "acme.one").symlink_to(victim)
        assert mine.claim([TWO]) == {}
        assert "cannot be taken" in mine.claim([ONE])[ONE]
        assert not mine.holds(ONE)
    assert victim.read_text() == "precious"


@unit
def test_what_is_in_the_way_of_the_folder_is_named(folder: Path) -> None:
    folder.write_text("in the way")
    with pytest.raises(UsageError, match="no lease can be kept here") as caught, leases(folder):
        pass
    assert "--lease-dir" in caught.value.hint


@unit
def test_without_the_lock_nothing_is_taken(folder: Path) -> None:
    """Somebody was stopped at the worst moment: others do not wait for it without end, and do not go ahead."""
    with leases(folder, wait=0.05) as mine:
        handle = os.open(folder / "prod" / "lock", os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert "another process has held" in mine.claim([ONE])[ONE]
        assert not mine.holds(ONE)
        with pytest.raises(UsageError, match="another process has held") as caught, leases(folder, wait=0.05):
            pass
        assert "continue or end it" in caught.value.hint
        os.close(handle)
        assert mine.claim([ONE]) == {}


@unit
def test_a_full_disk_gives_no_lease(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with leases(folder) as mine:
        assert mine.claim([ONE]) == {}
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # whoever writes is told that there is no room
        try:
            refused = mine.claim([ONE, TWO])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(refused) == [TWO]
        assert refused[TWO].startswith(f"its lease cannot be taken: {folder}: File too large")
        assert (mine.holds(ONE), mine.holds(TWO)) == (True, False)
        assert mine.claim([TWO]) == {}, "as soon as there is room"


@unit
def test_a_login_a_service_and_a_job_of_one_user_meet_without_being_told(tmp_path: Path) -> None:
    mine = default_lease_dir({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert mine == str(tmp_path / "gitops-agent")
    elsewhere = default_lease_dir({})
    assert str(os.geteuid()) in elsewhere
    for odd in ("", "relative", str(tmp_path / "missing"), "/proc/1/environ"):
        assert default_lease_dir({"XDG_RUNTIME_DIR": odd, "TMPDIR": str(tmp_path)}) == elsewhere
    assert build_settings({}, {"XDG_RUNTIME_DIR": str(tmp_path)}, {}).lease_dir == mine
    assert (
        build_settings({"leaseDir": "/a"}, {"GITOPS_AGENT_LEASE_DIR": "/b"}, {"lease_dir": "/c"}).lease_dir == "/c"
    )


# ----- in a pass


class ScriptedLeases:
    """Leases of which we say who has them."""

    def __init__(self, lost: Collection[AgentKey] = (), refused: Collection[AgentKey] = ()) -> None:
        self.lost = lost
        self.refused = refused
        self.claimed: list[set[AgentKey]] = []

    def claim(self, agents: Collection[AgentKey]) -> dict[AgentKey, str]:
        self.claimed.append(set(agents))
        return {agent: "acted on by another gitops-agent" for agent in agents if agent in self.refused}

    def holds(self, agent: AgentKey) -> bool:
        return agent not in self.lost


@unit
def test_an_effect_whose_lease_was_lost_meanwhile_does_not_happen(
    journal: SqlJournal, clock: FrozenClock, pool: ThreadPoolExecutor
) -> None:
    live = MemoryDriver(clock=clock)
    context = ExecutorContext({"memory": live}, journal, clock, Random(1), pool, leases=ScriptedLeases(lost=[ONE]))
    work = plan(*bring_up(ONE), *bring_up(TWO))
    _, executed = Executor(context).execute(journal.state(), work, PolicySpec(), "test")
    assert {key.agent for key in live.live} == {TWO}
    (lost,) = (outcome for act, outcome in executed if act.key.agent == ONE)
    assert (lost.result, lost.message) == (
        Result.SKIPPED,
        "its lease was lost since the plan was made; asked for again",
    )
    assert not any(key.agent == ONE for key in journal.state().reconcile.bases)


@unit
def test_what_is_refused_is_held_whole_for_a_while_and_not_for_people() -> None:
    adopt = action(config_key(ONE), Verb.ADOPT, Class.MISSING_INTERNAL)
    asked = action(runtime_key(THREE), decision=Decision.ASK)
    whole = plan(adopt, action(runtime_key(ONE)), *bring_up(TWO), asked)
    told = ScriptedLeases(refused=[ONE, THREE])
    leasing = LeaseHolder(told)
    trimmed = leasing.hold_unleased(whole)
    assert told.claimed == [{ONE, TWO}], "what nobody would do needs no lease"
    assert {act.key.agent for act in trimmed.allowed} == {TWO}, "not even an adoption is recorded"
    assert {act.decision for act in trimmed.actions if act.key.agent == ONE} == {Decision.WAIT}
    assert trimmed.digest == whole.digest
    (verdict,) = trimmed.verdicts
    assert (verdict.guard, verdict.effect, verdict.for_people) == ("lease", Effect.TRIM, False)
    (finding,) = trimmed.findings
    assert (finding.code, finding.address) == ("LeaseHeld", "acme/one")
    assert "--instance" in finding.detail
    assert leasing.waiting == {ONE}
    assert leasing.next_due() is not None

    told.refused = ()
    assert leasing.hold_unleased(whole) == whole
    assert (leasing.waiting, leasing.next_due()) == (frozenset(), None)


# ----- any order of events


class Contention(RuleBasedStateMachine):
    """Openings, claims, ends, deaths and cleaned-up files in any order; an entry that died is not looked at."""

    AGENTS = (ONE, TWO, THREE)

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.open: list[HostLeases] = []
        self.follows: dict[HostLeases, str] = {}
        self.tokens: dict[AgentKey, int] = {}

    def token(self, agent: AgentKey) -> int:
        return token(self.folder / "leases", agent)

    @rule(source=st.sampled_from(["main", "other", "third"]))
    @precondition(lambda self: len(self.open) < 4)
    def begin(self, source: str) -> None:
        new = leases(self.folder / "leases", f"/state/{len(self.open)}", source=source).__enter__()
        self.open.append(new)
        self.follows[new] = source

    @rule(who=st.integers(0, 3), agents=st.sets(st.sampled_from(AGENTS), min_size=1))
    @precondition(lambda self: self.open)
    def claim(self, who: int, agents: set[AgentKey]) -> None:
        mine = self.open[who % len(self.open)]
        before = {agent: self.token(agent) for agent in agents if mine.holds(agent)}
        refused = mine.claim(agents)
        for agent in agents:
            assert mine.holds(agent) is (agent not in refused)
            token = self.token(agent)
            if agent in refused:
                others = [other for other in self.open if other is not mine]
                same = any(self.follows[other] == self.follows[mine] for other in others)
                assert same or any(other.holds(agent) for other in others)
            elif agent not in before:
                assert token > self.tokens.get(agent, 0), "a token never comes back"
                self.tokens[agent] = token
            else:
                assert token == before[agent] or token > self.tokens[agent]
                self.tokens[agent] = token

    @rule(who=st.integers(0, 3), gracefully=st.booleans())
    @precondition(lambda self: self.open)
    def end(self, who: int, gracefully: bool) -> None:
        gone = self.open.pop(who % len(self.open))
        if gracefully:
            gone.__exit__(None, None, None)
        else:
            assert gone._handle is not None
            os.close(gone._handle)  # what the kernel does for a process that dies

    @rule(what=st.sampled_from(["holders/*", "agents/*"]))
    def clean_up(self, what: str) -> None:
        for path in (self.folder / "leases" / "prod").glob(what):
            path.unlink()

    @rule()
    @precondition(lambda self: self.open)
    def somebody_may_act(self) -> None:
        agent = AgentKey("acme", "new")
        assert any(agent not in each.claim([agent]) for each in self.open)

    @invariant()
    def never_two_at_once(self) -> None:
        for agent in self.AGENTS:
            assert sum(each.holds(agent) for each in self.open) <= 1

    def teardown(self) -> None:
        for each in self.open:
            each.__exit__(None, None, None)
        shutil.rmtree(self.folder)


TestContention = Contention.TestCase
TestContention.settings = settings(stateful_step_count=25)
TestContention.pytestmark = [unit]


# ----- real processes

WORKER = """
import json, os, sys
from pathlib import Path
from gitops_agent.model.key import AgentKey
from gitops_agent.reconcile.leases.host_leases import Holder, HostLeases

folder, state = sys.argv[1:]
agents = Path(folder) / "prod" / "agents"
me = Holder("prod", state, state, os.getpid(), 0.0)
with HostLeases(Path(folder), me) as mine:
    for line in sys.stdin:
        agent = AgentKey.parse(line.strip())
        refusal = mine.claim([agent]).get(agent)
        path = agents / f"{agent.tenant}.{agent.name}"
        print(refusal or json.loads(path.read_bytes())["token"], flush=True)
"""


class Worker:
    """A process that claims what it is told to."""

    def __init__(self, folder: Path, state: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), state],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def claim(self, agent: AgentKey) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{agent}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def worker(folder: Path, state: str) -> Iterator[Worker]:
    made = Worker(folder, state)
    with made.process:
        yield made
        made.process.kill()


def test_the_dead_hold_nothing_and_the_stopped_hold_everything(folder: Path) -> None:
    with worker(folder, "/state/a") as first, worker(folder, "/state/b") as second:
        token = int(first.claim(ONE))
        first.process.send_signal(signal.SIGSTOP)
        until(lambda: os.waitid(os.P_PID, first.process.pid, os.WSTOPPED | os.WNOWAIT), "stopped")
        assert f"pid {first.process.pid}" in second.claim(ONE), "it may go on at any moment"
        first.process.kill()
        first.process.wait()
        assert int(second.claim(ONE)) > token
        assert first.process.returncode == -signal.SIGKILL


ACTOR = """
import fcntl, json, os, sys
from pathlib import Path
from gitops_agent.model.key import AgentKey
from gitops_agent.reconcile.leases.host_leases import Holder, HostLeases

folder, log, me = sys.argv[1:]
agents = Path(folder) / "prod" / "agents"
names = [f"bot-{number}" for number in range(4)]
# Opened first, so that the kernel closes them first when we are killed.
effects = {name: os.open(f"{log}.{name}", os.O_RDWR | os.O_CREAT, 0o600) for name in names}
record = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
while True:
    with HostLeases(Path(folder), Holder("prod", me, me, os.getpid(), 0.0)) as mine:
        for name in names * 3:
            agent = AgentKey("acme", name)
            mine.claim([agent])
            if mine.holds(agent):
                fcntl.flock(effects[name], fcntl.LOCK_EX | fcntl.LOCK_NB)   # raises if two act at once
                token = json.loads((agents / f"acme.{name}").read_bytes())["token"]
                os.write(record, f"{name} {token} {me}\\n".encode())
                fcntl.flock(effects[name], fcntl.LOCK_UN)
"""


def test_many_processes_and_kill_never_two_at_once(folder: Path, tmp_path: Path) -> None:
    """Three processes contend; one after the other is killed in the middle of it and replaced."""
    log = tmp_path / "log"
    log.touch()

    def start(number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ACTOR, str(folder), str(log), f"actor-{number}"])

    def acted(who: str) -> bool:
        return who in log.read_text()

    actors = {number: start(number) for number in range(3)}
    try:
        for number in range(6):
            victim, next_ = actors[number], number + 3
            until(lambda n=number: acted(f"actor-{n}\n"), f"actor {number} acts")  # type: ignore[misc]
            assert victim.poll() is None, "two acted at once"
            victim.kill()
            victim.wait()
            actors[next_] = start(next_)
        assert all(actors[number].poll() is None for number in range(6, 9)), "two acted at once"
    finally:
        for actor in actors.values():
            actor.kill()
            actor.wait()
    owner: dict[tuple[str, int], str] = {}
    newest: dict[str, int] = {}
    for line in log.read_text().splitlines():
        name, token, who = line.split()
        assert int(token) >= newest.get(name, 0), "who lost its lease has acted"
        newest[name] = int(token)
        assert owner.setdefault((name, int(token)), who) == who, "one token, two holders"
    assert len(newest) == 4
