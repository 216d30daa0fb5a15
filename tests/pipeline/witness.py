"""A witness of passes: what was really done to the live system, against what Git, people and the journal allow.

The live system writes down every effect with what was there before it. After a pass the witness asks of each
effect: which plan on record let it through, whose wish was it, was it frozen, was it one of too many losses, was
its wave released. The answers come from the repository and from what people said, not from the guards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.agent import Agent, DeletionPolicy, Resource
from gitops_agent.model.control import Control, approved_plans, covers, freezes
from gitops_agent.model.document import Freeze, PolicySpec
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Plan, Verb
from gitops_agent.model.quantity import epoch
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import State as JournalState
from gitops_agent.plan.context import is_hands_off
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.ports import Clock
from gitops_agent.testing.memory_driver import MemoryDriver, Thing

from .world import World

ENDS = (Verb.DELETE, Verb.STOP)


@dataclass(frozen=True)
class Effect:
    """One thing that was done, and what was there before."""

    action: Action
    intent: str
    before: Thing | None

    def __str__(self) -> str:
        return f"{self.action.verb} {self.action.key} ({self.action.reason})"


class Ledger(MemoryDriver):
    """A live system that writes down what is done to it."""

    def __init__(self, name: str = "memory", clock: Clock | None = None) -> None:
        super().__init__(name, clock)
        self.effects: list[Effect] = []

    def _apply(self, action: Action, intent: str) -> Applied:
        before = self.live.get(action.key)
        applied = super()._apply(action, intent)
        self.effects.append(Effect(action, intent, before))
        return applied

    @property
    def is_blind(self) -> bool:
        """Whether the next two looks fail: the most that one pass needs before it acts."""
        return len(self._unreachable) >= 2


@dataclass(frozen=True)
class State:
    """What the journal says between two passes."""

    enforced: str
    released: Mapping[AgentKey, str]
    rollout: Rollout | None
    bases: Mapping[ResourceKey, Base]
    earlier: PolicySpec
    ready: frozenset[AgentKey]

    def follows(self, agent: AgentKey) -> str:
        """The commit whose spec is in force for an agent."""
        return self.released.get(agent, self.enforced)


class Witness:
    """Watches the passes of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        assert isinstance(world.live, Ledger)
        self.live = world.live
        self.plans: list[Plan] = []
        self.snapshots: dict[str, Snapshot | None] = {}
        self.frozen_before: Sequence[Control] = ()
        self.seen = len(self.live.effects)
        self.watch()
        self.last = self.state()

    def watch(self) -> None:
        """See every plan that is written down; to be said again after each start."""
        journal: Any = self.world.journal
        commit = journal.commit

        def committed(state: JournalState, *, plans: Sequence[Plan] = (), **more: Any) -> JournalState:
            self.plans += plans
            written: JournalState = commit(state, plans=plans, **more)
            return written

        journal.commit = committed

    def state(self) -> State:
        journal: SqlJournal = self.world.journal
        state = journal.state()
        return State(
            enforced=journal.state().rollout.enforced or "",
            released=state.rollout.released,
            rollout=state.rollout.rollout,
            bases=dict(journal.state().reconcile.bases),
            earlier=state.rollout.converged_policy or PolicySpec(),
            ready=frozenset(key for key, status in journal.state().status.agents.items() if status.ready),
        )

    def check(self, *, unreachable: bool) -> None:
        """Everything that must be true of what happened since the last time."""
        effects, self.seen = self.live.effects[self.seen :], len(self.live.effects)
        before, self.last = self.last, self.state()
        for effect in effects:
            assert not unreachable, f"{effect}: nobody had looked"
            self.planned(effect)
            self.not_twice(effect)
            self.wished(effect, self.last)
            self.not_frozen(effect)
            self.not_before_its_wave(effect, self.last)
        self.not_too_many(effects, before)
        self.by_waves(before, self.last)
        self.reverted_once()

    # -- each effect

    def planned(self, effect: Effect) -> None:
        plan = self.plans[-1]
        entry = next(each for each in self.world.journal.entries(limit=50) if each.intent == effect.intent)
        assert entry.plan == plan.digest, f"{effect} is of another plan than the one on record"
        assert effect.action.key in {action.key for action in plan.allowed}, f"{effect} was held"
        assert effect.action.digest in self.world.journal.planned(plan.digest), f"{effect} is not on record"

    def not_twice(self, effect: Effect) -> None:
        action, before = effect.action, effect.before
        if action.verb is Verb.CREATE:
            assert before is None, f"{effect}: there was one already"
        if action.verb is Verb.RESTART:
            needed = before is None or before.reason or before.fields != action.desired
            assert needed, f"{effect}: nothing was wrong with it"

    def wished(self, effect: Effect, state: State) -> None:
        """It is what the spec in force for this agent asks for, that of an unreleased commit never."""
        action = effect.action
        wanted = self.resource(state.follows(action.key.agent), action.key)
        if action.verb is Verb.DELETE:
            assert wanted is None, f"{effect}: the spec in force wants it"
        elif action.verb is Verb.STOP:
            assert wanted is None or wanted.stopped, f"{effect}: the spec in force wants it to run"
        else:
            assert wanted is not None, f"{effect}: the spec in force does not want it"
            assert not wanted.stopped, f"{effect}: the spec in force wants it stopped"
            assert wanted.fields == action.desired, f"{effect}: the spec in force says something else"

    def not_before_its_wave(self, effect: Effect, state: State) -> None:
        """What a commit asks of an agent that a freeze or a pause covered waits for a wave of its own."""
        left = state.rollout.left if state.rollout is not None else ()
        asked = is_from_commit(effect.action) and effect.action.key.agent in left
        assert not asked, f"{effect}: its wave has not come"

    def is_frozen(self, agent: AgentKey) -> bool:
        controls = freezes(self.world.journal.state().control.controls, self.world.clock.now())
        scopes = [*(each.scope for each in self.by_git()), *(each.target for each in controls)]
        return any(covers(scope, agent) for scope in scopes)

    def not_frozen(self, effect: Effect) -> None:
        agent, journal, now = effect.action.key.agent, self.world.journal, self.world.clock.now()
        for each in self.by_git():
            assert not covers(each.scope, agent), f"{effect}: frozen by Git"
        for control in freezes(journal.state().control.controls, now):
            if covers(control.target, agent) and not control.actor.startswith("guard"):
                raise AssertionError(f"{effect}: frozen by an operator")
            if covers(control.target, agent) and control in self.frozen_before:
                assert effect.action.digest in self.approved(), f"{effect}: frozen by a guard"

    def by_git(self) -> Iterator[Freeze]:
        """The freezes of the newest valid commit, and of the newest that was seen."""
        now = self.world.clock.now()
        for sha in {self.world.journal.state().source.valid, self.world.journal.state().source.head} - {None}:
            found = self.snapshot(sha or "")
            each = found.policy.freeze if found is not None else None
            if each is not None and (each.until is None or epoch(each.until) > now):
                yield each

    def begin(self) -> None:
        """A pass is about to begin: what a guard froze before it was in force for it."""
        self.frozen_before = freezes(self.world.journal.state().control.controls, self.world.clock.now())

    # -- all of them

    def not_too_many(self, effects: list[Effect], before: State) -> None:
        """Of a commit that takes away too much, no loss that was not approved."""
        head = self.world.repository.commits[self.world.journal.state().source.head or ""]
        if head.errors:
            return
        sha = head.revision.sha
        lost = {base.key.agent for base in before.bases.values() if self.loses(base, sha)}
        fleet = {b.key.agent for b in before.bases.values() if b.key.kind == "runtime" and not b.retained}
        limits = [self.policy(sha).mass_delete, before.earlier.mass_delete]
        if len(lost) < min(each.min for each in limits):
            return
        if len(lost) <= min(each.ratio for each in limits) * len(fleet) + 1e-9:
            return
        for effect in effects:
            action = effect.action
            agent, kind = action.key.agent, action.key.kind
            # An earlier commit that was let through may still be finishing what it released.
            if action.verb in ENDS and kind == "runtime" and agent in lost and self.last.follows(agent) == sha:
                said = f"{effect}: one of {len(lost)} losses of {len(fleet)}, and nobody approved it"
                assert action.digest in self.approved(), said

    def loses(self, base: Base, sha: str) -> bool:
        if base.key.kind != "runtime" or base.retained or base.fields.value.get("stopped") or not base.established:
            return False
        wanted = self.resource(sha, base.key)
        if self.agent(sha, base.key.agent) is None:
            return base.deletion_policy is DeletionPolicy.DELETE
        return wanted is None or wanted.stopped

    def by_waves(self, before: State, after: State) -> None:
        """Nothing that was there follows a commit but wave by wave, and no wave before the last one is Ready."""
        old, new = before.rollout, after.rollout
        if new is None or new == old:
            return
        if old is not None and old.commit == new.commit:
            # What a freeze takes out of the waves, or puts back into them, moves none of the others.
            gone = set(new.moving) - set(old.moving)
            if not gone:
                return
            assert gone <= set(new.waves[new.released - 1]), "one wave at a time"
            assert not old.failed, "its gate had failed"
            judged = tuple(agent for agent in old.moving if agent in new.moving and not self.is_frozen(agent))
            for agent in judged:
                spec = self.agent(new.commit, agent)
                if spec is not None and not is_hands_off(spec, self.world.clock.now()):
                    assert agent in before.ready, f"{agent} was not Ready, and the next wave went"
            self.healthy(new.commit, judged)
            return
        assert new.released <= 1
        self.sized(new, before)
        moved = [agent for agent in self.there(before) - {*new.left} if self.moves(agent, before, after)]
        most = min(self.policy(new.commit).rollout.canary, before.earlier.rollout.canary)
        assert len(moved) <= most, f"{len(moved)} agents were moved at once: {moved}"

    def sized(self, rollout: Rollout, before: State) -> None:
        """No wave but the last moves more agents than the stricter of the two policies allows."""
        sections = (self.policy(rollout.commit).rollout, before.earlier.rollout)
        total = sum(map(len, rollout.waves))
        canary = min(each.canary for each in sections)
        second = max(1, min(ceil(int(each.second.rstrip("%")) * total / 100) for each in sections))
        for number, wave in enumerate(rollout.waves[:-1]):
            # The first may also hold agents that this commit leaves alone, to prove what an earlier one did.
            moved = [
                key for key in wave if self.agent(before.follows(key), key) != self.agent(rollout.commit, key)
            ]
            most = max(canary, second) if number else canary
            assert len(moved) <= most, f"wave {number} moves {len(moved)} agents, where {most} are allowed"

    def healthy(self, sha: str, agents: tuple[AgentKey, ...]) -> None:
        """No gate opens for an agent whose readiness probe cannot succeed."""
        fleet = self.world.repository.commits[sha].fleet
        for agent in agents:
            spec = fleet.get(agent.name, {})
            running = spec.get("lifecycle", "Running") == "Running" and not spec.get("reconcile")
            assert not (running and "probes" in spec), f"{agent} can never be Ready, and its gate opened"

    def there(self, state: State) -> set[AgentKey]:
        return {key.agent for key, base in state.bases.items() if not base.retained}

    def moves(self, agent: AgentKey, before: State, after: State) -> bool:
        old, new = self.agent(before.follows(agent), agent), self.agent(after.follows(agent), agent)
        return old != new and not is_hands_off(new, self.world.clock.now())

    def reverted_once(self) -> None:
        """Of one failed commit, one revert on the branch."""
        ours = Counter(
            self.world.repository.commits[sha].revision.parents[0]
            for sha in {sha for sha, branch in self.world.repository.pushed if branch == "main"}
        )
        assert not [sha for sha, count in ours.items() if count > 1], "a commit was reverted twice"

    # -- what people and Git say

    def approved(self) -> frozenset[str]:
        """The actions that people approved."""
        said = approved_plans(self.world.journal.state().control.controls)
        return frozenset[str]().union(*(self.world.journal.planned(digest) for digest in said))

    def snapshot(self, sha: str) -> Snapshot | None:
        if sha not in self.snapshots:
            commit = self.world.repository.commits.get(sha)
            broken = commit is None or commit.errors
            self.snapshots[sha] = None if broken or not commit else self.world.repository.load(commit.revision)
        return self.snapshots[sha]

    def agent(self, sha: str, agent: AgentKey) -> Agent | None:
        found = self.snapshot(sha)
        return found.agents.get(agent) if found else None

    def resource(self, sha: str, key: ResourceKey) -> Resource | None:
        agent = self.agent(sha, key.agent)
        return next((each for each in agent.resources if each.key == key), None) if agent else None

    def policy(self, sha: str) -> PolicySpec:
        found = self.snapshot(sha)
        return found.policy if found is not None else PolicySpec()
