"""RolloutState: which spec is in force for each agent, and how a commit gets from one wave to the next.

Every agent has its own enforced spec: that of the last good commit or, once a rollout has released the agent, that
of the commit being rolled out. Health, drift and restarts follow it, never the newest commit as such. All of it is
in the journal, so a restart in the middle of a rollout goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

import orjson

from gitops_agent.model.agent import Agent
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.policy_merge import stricter
from gitops_agent.model.rollout import FailedTree, Rollout
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents
from gitops_agent.plan.context import is_hands_off
from gitops_agent.ports import Clock, Journal
from gitops_agent.rollout import waves
from gitops_agent.rollout.waves import Step, WaveCandidates

REMEMBERED = 50
"""How many trees that failed are remembered."""

Load = Callable[[str], Snapshot | None]


class RolloutState:
    """Keeps what is in force, in memory and in the journal (``enforced``, ``ahead``, ``rollout``, ``failed``)."""

    def __init__(self, journal: Journal, clock: Clock, load: Load) -> None:
        self._journal = journal
        self._clock = clock
        self._load = load
        self._mixed: Snapshot | None = None
        self._ahead: dict[AgentKey, str] | None = None
        self._rollout = waves.load_rollout(journal.get("rollout"))
        self._opened: float | None = None

    # -- what is in force

    @property
    def commit(self) -> str | None:
        """The last good commit: every agent follows it, except those a rollout has released since."""
        return self._journal.get("enforced")

    def ahead(self) -> Mapping[AgentKey, str]:
        """The agents that a rollout has released, with the commit whose spec is in force for them."""
        return self._released()

    @property
    def rollout(self) -> Rollout | None:
        """The newest rollout: under way, held, or done."""
        return self._rollout

    def standing(self) -> Snapshot | None:
        """The spec in force for every agent; None when nothing was ever enforced, or it cannot be read."""
        if self._mixed is None:
            sha = self.commit
            good = self._load(sha) if sha is not None else None
            self._mixed = good and replace(good, agents=self._overlaid(good))
        return self._mixed

    def is_in_force(self, target: Snapshot) -> bool:
        """Whether every agent follows a commit already, or its rollout was stopped by a gate."""
        rollout = self._rollout
        if rollout is None or rollout.commit != target.revision.sha:
            return False
        return rollout.done or bool(rollout.failed)

    def is_under_way(self, target: Snapshot) -> bool:
        """Whether the waves of a commit have begun."""
        return self._rollout is not None and self._rollout.commit == target.revision.sha

    def still_to_move(self, target: Snapshot | None, moved: frozenset[AgentKey]) -> frozenset[AgentKey]:
        """Those of the agents a commit moves that a pass must look at: none, once its gate has failed."""
        return frozenset() if target is None or self.is_in_force(target) else moved

    def policy_before(self) -> PolicySpec | None:
        """The policy of the last commit that converged, or of the one in force while none ever did."""
        text = self._journal.get("converged_policy")
        if text:
            return _policy(text)
        standing = self.standing()
        return standing.policy if standing is not None else None

    def _overlaid(self, good: Snapshot) -> Mapping[AgentKey, Agent]:
        agents = dict(good.agents)
        for key, sha in self._released().items():
            snapshot = self._load(sha)
            if snapshot is not None:  # what cannot be read any more says nothing: the last good spec stays
                _put(agents, key, snapshot)
        return agents

    def _released(self) -> dict[AgentKey, str]:
        if self._ahead is None:
            known: dict[str, list[list[str]]] = orjson.loads(self._journal.get("ahead") or "{}")
            self._ahead = {AgentKey(*key): sha for sha, keys in known.items() for key in keys}
        return self._ahead

    # -- the way of a commit

    def next_step(self, target: Snapshot, bases: Mapping[ResourceKey, Base]) -> Step:
        """How the rollout of a commit goes on now. Nothing has changed yet when this returns."""
        if self._rollout is not None and self._rollout.commit == target.revision.sha:
            return waves.proceed(self._rollout, self._moment())
        standing = self.standing()
        if standing is None:
            return waves.begin(target, target.policy, WaveCandidates(free=target.agents))
        changed, now = changed_agents(standing, target), self._clock.now()
        on_record = {key.agent for key, base in bases.items() if not base.retained} if changed else set()
        here = {key for key in on_record if not is_hands_off(target.agents.get(key), now)}
        gated = [
            key for key in changed & here if not asks_the_same(standing.agents.get(key), target.agents.get(key))
        ]
        ordered = waves.in_order(gated, standing.agents, target.agents, self._released())
        policy = stricter(target.policy, self.policy_before())
        touched = [key for key in self._touched() if key in here]
        before, after = standing.agents, target.agents
        proving = {key for key in gated if waves.proves(after.get(key), before.get(key))}
        return waves.begin(target, policy, WaveCandidates(ordered, changed.difference(gated), touched, proving))

    def _touched(self) -> tuple[AgentKey, ...]:
        """The agents that a rollout under way or held has reached."""
        return self._rollout.moving if self._rollout is not None and not self._rollout.done else ()

    def take(self, step: Step, target: Snapshot) -> Snapshot:
        """Make a step: what it releases follows the commit from now on. What is in force then."""
        if step.rollout != self._rollout or step.released:
            if step.rollout.done:
                self._follow(target, step.rollout)
            else:
                self._move(step, target)
        return self.seen_as(target)

    def seen_as(self, target: Snapshot) -> Snapshot:
        """What is in force, under the policy of a commit, and in its name once its rollout has begun."""
        standing = self.standing()
        assert standing is not None
        begun = self.is_under_way(target)
        return replace(
            standing,
            policy=target.policy,
            revision=target.revision if begun else standing.revision,
            findings=target.findings if begun else standing.findings,
        )

    def _follow(self, target: Snapshot, rollout: Rollout) -> None:
        """Every agent follows the commit."""
        values = {"enforced": target.revision.sha, "ahead": None, "rollout": waves.dump_rollout(rollout)}
        self._journal.put(values)
        self._mixed = target
        self._ahead, self._rollout = {}, rollout

    def _move(self, step: Step, target: Snapshot) -> None:
        standing = self.standing()
        assert standing is not None
        ahead = {**self._released(), **dict.fromkeys(step.released, target.revision.sha)}
        by_commit: dict[str, list[AgentKey]] = {}
        for key, sha in sorted(ahead.items()):
            by_commit.setdefault(sha, []).append(key)
        self._journal.put(
            {"ahead": orjson.dumps(_plain(by_commit)).decode(), "rollout": waves.dump_rollout(step.rollout)}
        )
        agents = dict(standing.agents)
        for key in step.released:
            _put(agents, key, target)
        self._mixed = replace(standing, agents=agents)
        self._ahead, self._rollout = ahead, step.rollout

    # -- at the gate

    def look_at_gate(self, *, ready: bool) -> None:
        """Whether all that was released is Ready."""
        if self._rollout is None or self._rollout.done:
            return
        looked = waves.gated(self._rollout, self._moment(), ready=ready)
        if looked.passed_at is None:
            self._opened = None
        elif self._rollout.passed_at is None:
            self._opened = self._clock.monotonic()
        self._keep(looked)

    def pause_left(self) -> float | None:
        """Seconds until the next wave may go, once the gate is open; None when nothing waits for that."""
        rollout = self._rollout
        if rollout is None or rollout.done or rollout.failed or rollout.passed_at is None:
            return None
        return waves.pause_left(rollout, self._moment())

    def _moment(self) -> float:
        """Now, on a wall clock that did not jump since we saw the gate open."""
        if self._rollout is None or self._rollout.passed_at is None or self._opened is None:
            return self._clock.now()
        return self._rollout.passed_at + self._clock.monotonic() - self._opened

    def fail(self, why: str, *, for_people: bool = False) -> None:
        """The gate failed: nothing further is released, and the tree is remembered.

        ``for_people``: what to do about it is theirs to say, whatever the policy asks for when a gate fails.
        """
        rollout = self._rollout
        if rollout is None or rollout.failed:
            return
        failed = FailedTree(rollout.tree, rollout.commit, why, self._clock.now())
        others = [each for each in self.failed() if each.tree != rollout.tree]
        self._journal.put({"failed": waves.dump_failed([*others, failed][-REMEMBERED:])})
        answer = "Hold" if for_people else rollout.on_failure
        self._keep(replace(rollout, failed=why, passed_at=None, on_failure=answer))

    def converged(self, target: Snapshot, *, forward: bool) -> None:
        """A commit converged: its policy counts for the next one. Rolling forward clears what failed before."""
        values = {"converged": target.revision.sha, "converged_policy": _policy_text(target)}
        self._journal.put({**values, "failed": None} if forward else values)

    def failed(self) -> tuple[FailedTree, ...]:
        """The trees that are not tried again by themselves."""
        return waves.load_failed(self._journal.get("failed"))

    def failed_before(self, target: Snapshot) -> FailedTree | None:
        """Whether a commit brings back a tree that failed as another commit."""
        tree, sha = target.revision.tree, target.revision.sha
        return next((each for each in self.failed() if each.tree == tree and each.commit != sha), None)

    def retry(self, sha: str, tree: str) -> None:
        """A person asks for another try of a commit, whether its tree failed as this commit or as another."""
        trees = {tree, *(each.tree for each in self.failed() if each.commit == sha)}
        if self._rollout is not None and self._rollout.commit == sha:
            self._keep(replace(self._rollout, failed="", passed_at=None))
        left = [each for each in self.failed() if each.tree not in trees]
        self._journal.put({"failed": waves.dump_failed(left)})

    def _keep(self, rollout: Rollout) -> None:
        if rollout != self._rollout:
            self._journal.put({"rollout": waves.dump_rollout(rollout)})
            self._rollout = rollout


def _put(agents: dict[AgentKey, Agent], key: AgentKey, snapshot: Snapshot) -> None:
    if key in snapshot.agents:
        agents[key] = snapshot.agents[key]
    else:
        agents.pop(key, None)


def _plain(by_commit: Mapping[str, Iterable[AgentKey]]) -> dict[str, list[list[str]]]:
    return {sha: [list(key) for key in keys] for sha, keys in by_commit.items()}


@lru_cache(2)  # asked for in every pass
def _policy(text: str) -> PolicySpec:
    return PolicySpec.model_validate_json(text)


def _policy_text(snapshot: Snapshot) -> str:
    return snapshot.policy.model_dump_json(by_alias=True, exclude_unset=True)
