"""How ``RolloutState`` changes: which spec each agent follows, and what becomes of a commit at its gate. Pure.

Every agent has its own enforced spec: that of the last good commit or, once a rollout has released the agent, that
of the commit being rolled out. Health, drift and restarts follow it, never the newest commit as such.
"""

from dataclasses import replace

from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import Now, Scope, SourceResult
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.snapshot import Snapshot, with_agents_of
from gitops_agent.model.state import RolloutState, State
from gitops_agent.rollout import waves
from gitops_agent.rollout.waves import RolloutStep

MOST_FAILED_TREES = 50


def is_under_way(state: RolloutState, target: Snapshot) -> bool:
    """Whether the waves of a commit have begun."""
    return state.rollout is not None and state.rollout.commit == target.revision.sha


def is_followed(state: RolloutState, target: Snapshot) -> bool:
    """Whether every agent follows a commit already, or its rollout was stopped by a gate."""
    rollout = state.rollout
    if rollout is None or rollout.commit != target.revision.sha:
        return False
    return rollout.done or bool(rollout.failed)


def widened(scope: Scope, due: frozenset[AgentKey], state: State, source: SourceResult) -> Scope:
    """A scope with the agents that a pass must look at too: those that are due, those on their way, those an open
    commit is judged by, and those that the newest commit changes, unless its gate has failed."""
    if scope is None:
        return None
    open_ = due | state.status.agents.not_ready | state.rollout.judged_agents
    settled = source.target is None or is_followed(state.rollout, source.target)
    return scope | open_ if settled else scope | open_ | source.changed


def policy_before(state: RolloutState, in_force: Snapshot | None) -> PolicySpec | None:
    """The policy of the last commit that converged, or of the one in force while none ever did."""
    if state.converged_policy is not None:
        return state.converged_policy
    return in_force.policy if in_force is not None else None


def failed_before(state: RolloutState, revision: Revision) -> FailedTree | None:
    """The failure of a tree that a commit brings back as another commit."""
    same = (each for each in state.failed_trees if each.tree == revision.tree)
    return next((each for each in same if each.commit != revision.sha), None)


def seen_as(state: RolloutState, in_force: Snapshot, target: Snapshot) -> Snapshot:
    """What is in force, under the policy of a commit, and in its name once its rollout has begun."""
    begun = is_under_way(state, target)
    return replace(
        in_force,
        policy=target.policy,
        revision=target.revision if begun else in_force.revision,
        findings=target.findings if begun else in_force.findings,
    )


def after_step(state: RolloutState, step: RolloutStep, target: Snapshot) -> RolloutState:
    """The state when what a step releases follows the commit."""
    if step.rollout == state.rollout and not step.released:
        return state
    if step.rollout.done:
        return replace(state, enforced=target.revision.sha, released={}, rollout=step.rollout)
    released = {**state.released, **dict.fromkeys(step.released, target.revision.sha)}
    return replace(state, released=released, rollout=step.rollout)


def in_force_after(step: RolloutStep, in_force: Snapshot | None, target: Snapshot) -> Snapshot:
    """The spec in force for every agent once a step is made."""
    if in_force is None or step.rollout.done:
        return target
    return with_agents_of(in_force, target, step.released) if step.released else in_force


def after_gate(state: RolloutState, now: Now, *, ready: bool) -> RolloutState:
    """The state after a look at the gate: whether all that was released is Ready."""
    if state.rollout is None or state.rollout.done:
        return state
    return replace(state, rollout=waves.gated(state.rollout, now.active, ready=ready))


def after_failure(state: RolloutState, why: str, now: Now, *, for_people: bool = False) -> RolloutState:
    """The state when the gate failed: nothing further is released, and the tree is remembered.
    ``for_people``: what to do about it is theirs to say, whatever the policy asks for when a gate fails."""
    rollout = state.rollout
    if rollout is None or rollout.failed:
        return state
    failed = FailedTree(rollout.tree, rollout.commit, why, now.wall)
    others = [each for each in state.failed_trees if each.tree != rollout.tree]
    answer = "Hold" if for_people else rollout.on_failure
    held = replace(rollout, failed=why, passed_at=None, on_failure=answer)
    return replace(state, rollout=held, failed_trees=tuple([*others, failed][-MOST_FAILED_TREES:]))


def after_convergence(state: RolloutState, target: Snapshot, *, forward: bool) -> RolloutState:
    """The state when a commit converged: its policy counts for the next; rolling forward clears what failed."""
    failed = () if forward else state.failed_trees
    return replace(state, converged=target.revision.sha, converged_policy=target.policy, failed_trees=failed)


def after_retry(state: RolloutState, sha: str, tree: str) -> RolloutState:
    """The state when a person asks for another try of a commit, whether its tree failed as this one or another."""
    trees = {tree, *(each.tree for each in state.failed_trees if each.commit == sha)}
    rollout = state.rollout
    if rollout is not None and rollout.commit == sha:
        rollout = replace(rollout, failed="", passed_at=None)
    left = tuple(each for each in state.failed_trees if each.tree not in trees)
    return replace(state, rollout=rollout, failed_trees=left)


def pause_left(state: RolloutState, now: Now) -> float | None:
    """Seconds until the next wave may go, once the gate is open; None when nothing waits for that."""
    rollout = state.rollout
    if rollout is None or rollout.done or rollout.failed or rollout.passed_at is None:
        return None
    return waves.pause_left(rollout, now.active)
