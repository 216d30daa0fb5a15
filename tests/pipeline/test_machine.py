"""Commits, drift, freezes, approvals, crashes and clocks in any order: no agent twice, none lost, nothing taken
away without the verdict that allowed it, and in the end the fleet is what Git says.

``MACHINE_EXAMPLES`` and ``MACHINE_STEPS`` make it look deeper (``make campaign`` does); with ``MACHINE_NO_SHRINK``
the first story that fails is told as it is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.errors import SourceUnavailable, UsageError
from gitops_agent.model.control import Control, ControlVerb, freezes
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.passes import PassResult
from gitops_agent.model.quantity import iso
from gitops_agent.model.status import Phase
from gitops_agent.testing.faults import Crash
from gitops_agent.testing.memory_driver import runtime_key

from .repository import TENANT, key
from .test_crashes import Anywhere, check
from .witness import Ledger, Witness
from .world import World

NAMES = tuple(f"a{number}" for number in range(9))
names = st.sampled_from(NAMES)
some = st.lists(names, min_size=1, max_size=len(NAMES), unique=True)
after = st.integers(0, 3)
policies = st.sampled_from(range(10))
maybe = st.none() | st.none() | policies
scopes = st.sampled_from(("*", TENANT, f"{TENANT}/a0", f"{TENANT}/a4"))
BROKEN = {"readiness": {"exec": {"command": ["false"]}, "period": "2s"}}
BASE: dict[str, Any] = {"rollout": {"healthTimeout": "20s"}, "runtime": {"command": ["v0"]}}

MOST_PASSES_PER_MINUTE = 240
"""One every ``MIN_REQUEUE_SECONDS``, which is how often something under way is looked after."""

POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"massDelete": {"min": 2, "ratio": 0.1}},
    {"massDelete": {"min": 50, "ratio": 1.0}, "massDrift": {"min": 50, "ratio": 1.0}},
    {"massDrift": {"min": 2, "ratio": 0.1}},
    {"massChange": {"min": 3, "ratio": 0.2}},
    {"rollout": {"canary": 2, "second": "50%", "pause": "30s"}},
    {"rollout": {"onFailure": "Revert"}},
    {"rollout": {"onFailure": "ProposeRevert", "canary": 3}},
    {"actionsPerMinute": 20},
    {"rollout": {"bake": "10s", "recovery": "20s"}},
)

CHANGES: dict[str, dict[str, Any]] = {
    "slow": {"runtime": {"command": ["slow"], "minUptime": "5s"}},
    "brain": {"instructions": "Be brief."},
    "break": {"probes": BROKEN},
    "break all": {"probes": BROKEN, "runtime": {"command": ["typo"]}},
    "stop": {"lifecycle": "Stopped"},
    "retire": {"lifecycle": "Retired"},
    "retain": {"deletionPolicy": "Retain"},
    "pause": {"reconcile": {"paused": True}},
    "observe": {"reconcile": {"mode": "Observe"}},
    "depend": {"rollout": {"healthTimeout": "20s", "dependsOn": [f"{TENANT}/a8"]}},
}


class Machine(RuleBasedStateMachine):
    """One world and everything that may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(self.folder, Ledger)
        self.fleet: dict[str, dict[str, Any]] = dict.fromkeys(NAMES, BASE)
        self.policy: dict[str, Any] = {}
        self.number = 0
        self.result: PassResult | None = None

    @initialize(policy=st.sampled_from(POLICIES))
    def first(self, policy: dict[str, Any]) -> None:
        self.policy = policy
        self.push()
        assert self.world.converge().phase is Phase.CONVERGED
        self.witness = Witness(self.world)

    # -- Git

    def push(self) -> str:
        return self.world.repository.commit(self.fleet, policy=self.policy)

    @rule(some=some, after=after)
    def change(self, some: list[str], after: int = 0) -> None:
        self.number += 1
        for name in some:
            spec = self.fleet.get(name, BASE)
            self.fleet[name] = {**spec, "runtime": {"command": [f"v{self.number}"]}}
        self.push()
        self.go(after)

    @rule(some=some, how=st.sampled_from(sorted(CHANGES)), clean=st.booleans(), policy=maybe, after=after)
    def alter(self, some: list[str], how: str, clean: bool, policy: int | None = None, after: int = 0) -> None:
        self.govern(policy)
        for name in some:
            if name == "a8" and how == "depend":
                continue
            self.fleet[name] = {**(BASE if clean else self.fleet.get(name, BASE)), **CHANGES[how]}
        self.push()
        self.go(after)

    @rule(some=some, policy=maybe, after=after)
    def remove(self, some: list[str], policy: int | None = None, after: int = 0) -> None:
        self.govern(policy)
        self.fleet = {
            name: {**spec, "rollout": {"healthTimeout": "20s"}}
            for name, spec in self.fleet.items()
            if name not in some
        }
        self.push()
        self.go(after)

    @rule(some=some, after=after)
    def mend(self, some: list[str], after: int = 0) -> None:
        self.fleet = {**self.fleet, **dict.fromkeys(some, BASE)}
        self.push()
        self.go(after)

    @rule(policy=policies, after=after)
    def rule_otherwise(self, policy: int, after: int = 0) -> None:
        self.govern(policy)
        self.push()
        self.go(after)

    def govern(self, policy: int | None) -> None:
        """Another policy, in the commit to come; a freeze stays."""
        if policy is not None:
            freeze = {name: value for name, value in self.policy.items() if name == "freeze"}
            self.policy = {**POLICIES[policy], **freeze}

    @rule(scope=scopes, ends=st.booleans(), lift=st.booleans(), after=after)
    def freeze_by_git(self, scope: str, ends: bool, lift: bool, after: int = 0) -> None:
        self.policy = {name: value for name, value in self.policy.items() if name != "freeze"}
        if not lift:
            until = {"until": iso(float(int(self.world.clock.now()) + 100))} if ends else {}
            self.policy["freeze"] = {"scope": scope, "reason": "a look", **until}
        self.push()
        self.go(after)

    @rule(back=st.integers(1, 6), after=after)
    def go_back(self, back: int, after: int = 0) -> None:
        commits = [each for each in self.world.repository.commits.values() if not each.errors]
        earlier = commits[-min(back, len(commits))]
        self.fleet, self.policy = dict(earlier.fleet), dict(earlier.policy)
        self.push()
        self.go(after)

    @rule()
    def push_nonsense(self) -> None:
        self.world.repository.commit(self.fleet, policy=self.policy, broken="duplicate key")

    @rule(down=st.booleans())
    def unreachable(self, down: bool) -> None:
        self.world.repository.down = SourceUnavailable("no route to host") if down else None

    # -- the world

    @rule(some=some, after=after)
    def lose(self, some: list[str], after: int = 0) -> None:
        gone = [runtime_key(key(name)) for name in some]
        self.world.live.lose(each for each in gone if each in self.world.live.live)
        self.go(after)

    @rule(numbers=st.lists(st.integers(0, 30), min_size=1, max_size=4), after=after)
    def edit(self, numbers: list[int], after: int = 0) -> None:
        for each in self.picked(numbers):
            self.world.live.edit(
                each, **({"command": ["by hand"]} if each.kind == "runtime" else {"instructions": "by hand"})
            )
        self.go(after)

    @rule(numbers=st.lists(st.integers(0, 30), min_size=1, max_size=4), after=after)
    def suspend(self, numbers: list[int], after: int = 0) -> None:
        for each in self.picked(numbers):
            if each.kind == "runtime":
                self.world.live.ail(each, "Suspended", "Suspended")
        self.go(after)

    def picked(self, numbers: list[int]) -> list[ResourceKey]:
        live = sorted(self.world.live.live)
        return [live[number % len(live)] for number in numbers] if live else []

    @rule(times=st.integers(1, 4), after=after)
    def fail(self, times: int, after: int = 0) -> None:
        self.world.live.fail_next(times)
        self.go(after)

    @rule(times=st.integers(1, 4), after=after)
    def blind(self, times: int, after: int = 0) -> None:
        self.world.live.unreachable_next(times)
        self.go(after)

    @rule(seconds=st.sampled_from((0.3, 2.0, 6.0, 25.0, 400.0)))
    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule(seconds=st.sampled_from((3600.0, -3600.0)))
    def jump(self, seconds: float) -> None:
        self.world.clock.jump(seconds)

    # -- people

    @property
    def people(self) -> OperatorCommands:
        return OperatorCommands(self.world.journal, self.world.clock, Operator("ada", "host"))

    @rule(scope=scopes, ends=st.booleans(), after=after)
    def freeze(self, scope: str, ends: bool, after: int = 0) -> None:
        self.people.freeze(scope, "a look", "100s" if ends else None)
        self.go(after)

    @property
    def is_frozen(self) -> bool:
        return bool(freezes(self.world.journal.state().control.controls, self.world.clock.now()))

    @property
    def is_blocked(self) -> bool:
        return self.world.phase(self.world.journal.state().source.head or "") is Phase.BLOCKED

    @precondition(lambda self: self.is_frozen)
    @rule(after=after)
    def unfreeze(self, after: int = 0) -> None:
        self.people.unfreeze("*", "looked", everything=True)
        self.go(after)

    @precondition(lambda self: self.is_blocked)
    @rule(after=after)
    def approve(self, after: int = 0) -> None:
        record = self.world.journal.commit_record(self.world.journal.state().source.head or "")
        assert record is not None
        try:
            self.people.approve(record.plan, "meant")
        except UsageError:
            pass  # the plan of a freeze may be empty, and is not on record then
        self.go(after)

    @rule(number=st.integers(0, 40))
    def approve_something_else(self, number: int) -> None:
        plans = self.witness.plans
        digest = plans[-1 - number % len(plans)].digest if plans and number < 30 else f"{number:064}"
        said = Control(ControlVerb.APPROVE, digest, "eve@host", self.world.clock.now())
        self.world.journal.control(said)

    @rule(name=names, commit=st.booleans(), after=after)
    def retry(self, name: str, commit: bool, after: int = 0) -> None:
        target = self.world.journal.state().source.head if commit else f"{TENANT}/{name}"
        self.world.journal.control(Control(ControlVerb.RETRY, target or "", "ada@host", self.world.clock.now()))
        self.go(after)

    # -- us

    def run_pass(self, *some: str, fetch: bool = True) -> PassResult | None:
        unreachable = self.witness.live.is_blind
        self.witness.begin()
        try:
            self.result = self.world.run(*some, fetch=fetch)
        except Crash:
            self.result = None
        self.witness.check(unreachable=unreachable)
        return self.result

    @rule(times=st.integers(4, 8))
    def go(self, times: int) -> None:
        """Passes, with the time in between that each asks for."""
        for _ in range(times):
            result = self.run_pass()
            assert result is not None
            self.world.clock.advance(max(0.25, min(30.0, result.wait or 1.0)))

    @rule()
    def a_minute_of_our_own(self) -> None:
        """No cause, and no two of them, makes passes follow each other without a pause: each is run when the one
        before asked for it, and there are no more than if it always asked for the shortest rest."""
        count, end = 0, self.world.clock.monotonic() + 60.0
        while self.world.clock.monotonic() < end:
            result, count = self.run_pass(), count + 1
            assert result is not None
            assert count <= MOST_PASSES_PER_MINUTE, f"wait {result.wait}, {result.phase}, {result.findings[:3]}"
            self.world.clock.advance(60.0 if result.wait is None else result.wait)

    @rule(some=some, fetch=st.booleans())
    def event(self, some: list[str], fetch: bool) -> None:
        self.run_pass(*some, fetch=fetch)

    @rule(nth=st.integers(1, 60))
    def crash(self, nth: int) -> None:
        self.boot(Anywhere(nth))
        for _ in range(4):
            if self.run_pass() is None:
                break
            self.world.clock.advance(2)
        self.boot()

    def boot(self, injector: Anywhere | None = None) -> None:
        self.world.boot(injector)
        self.witness.watch()

    @invariant()
    def nothing_unexpected(self) -> None:
        assert self.world.unexpected == []

    # -- the end

    def teardown(self) -> None:
        try:
            if hasattr(self, "witness"):
                self.become_good()
        finally:
            self.world.shut()
            shutil.rmtree(self.folder)

    def become_good(self) -> None:
        """Nothing is in the way any more, and people do what they are asked for: the fleet is what Git says."""
        self.world.live.heal()
        self.world.repository.down = None
        self.lift_freeze_of_git()
        self.fleet = {name: {**BASE, "runtime": {"command": ["good"]}} for name in NAMES}
        self.policy = {}
        good = self.push()
        for _ in range(80):
            result = self.run_pass()
            assert result is not None
            if self.is_frozen:
                self.unfreeze()
            if self.is_blocked:
                self.approve()
            if result.phase is Phase.DEGRADED:
                self.retry("a0", True)
            done = result.phase is Phase.CONVERGED and not result.busy
            if done and not (result.record and result.record.plan.actions) and not result.executed:
                break
            self.world.clock.advance(max(4.0, result.wait or 60.0))
        check(self.world, good)

    def lift_freeze_of_git(self) -> None:
        """A commit that lifts a freeze may change nothing else."""
        self.run_pass()
        valid = self.world.repository.commits[self.world.journal.state().source.valid or ""]
        if "freeze" in valid.policy:
            self.fleet = dict(valid.fleet)
            self.policy = {name: value for name, value in valid.policy.items() if name != "freeze"}
            lifted = self.push()
            self.run_pass()
            assert self.world.journal.state().source.valid == lifted


DEEP = "MACHINE_EXAMPLES" in os.environ
Machine.TestCase.settings = settings(
    max_examples=int(os.environ.get("MACHINE_EXAMPLES", "10")),
    stateful_step_count=int(os.environ.get("MACHINE_STEPS", "25")),
    derandomize=not DEEP,  # the same stories in every `make test`; new ones are for campaigns
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Stage.generate] if "MACHINE_NO_SHRINK" in os.environ else list(Stage),
)
TestMachine = Machine.TestCase
TestMachine.pytestmark = [pytest.mark.timeout(0)]
