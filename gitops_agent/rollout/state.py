"""How ``RolloutState`` changes: which spec each agent follows, and what becomes of a commit at its gate. Pure.

Every agent has its own enforced spec: that of the last good commit or, once a rollout has released the agent, that
of the commit being rolled out. Health, drift and restarts follow it, never the newest commit as such.
"""

from collections.abc import Collection
from dataclasses import replace

from gitops_agent.model.control import ControlVerb
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.one_shot import due_again
from gitops_agent.model.passes import Now, Scope, SourceResult
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import RolloutState, State
from gitops_agent.model.status import Phase
from gitops_agent.rollout.ends import ended_since

MOST_FAILED_TREES = 50


def is_under_way(state: RolloutState, target: Snapshot) -> bool:
    """Whether the waves of a commit have begun."""
    return state.rollout is not None and state.rollout.commit == target.revision.sha


def is_followed(state: RolloutState, target: Snapshot) -> bool:
    """Whether every agent follows a commit already, or its rollout was stopped by a gate."""
    rollout = state.rollout if is_under_way(state, target) else None
    return rollout is not None and (rollout.done or bool(rollout.failed))


def widened(scope: Scope, due: frozenset[AgentKey], state: State, source: SourceResult, now: Now) -> Scope:
    """A scope with the agents that a pass must look at too: those that are due, those on their way, those an open
    commit is judged by, those that the newest commit changes, unless its gate has failed, and those whose freeze
    or pause has ended since the last pass."""
    ended = frozenset() if scope is None else ended_since(state, source, now.wall)
    if scope is None or ended is None:
        return None
    open_ = ended | due | state.status.agents.not_ready | state.rollout.judged_agents
    if (rollout := state.rollout.rollout) is not None:
        if rollout.failed:  # whether what it released recovers
            open_ |= frozenset(rollout.moving)
        if rollout.left:  # the waves of what was left are not among what a commit changes
            open_ |= frozenset(rollout.waiting)
    settled = source.target is None or is_followed(state.rollout, source.target)
    return scope | open_ if settled else scope | open_ | source.changed


def policy_before(state: RolloutState, in_force: Snapshot | None) -> PolicySpec | None:
    """The policy of the last commit that converged, or of the one in force while none ever did."""
    if state.converged_policy is not None:
        return state.converged_policy
    return in_force.policy if in_force is not None else None


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
    if for_people:  # all are Ready: nothing is wrong with the tree, and going back to it is no second try
        return replace(state, rollout=held)
    return replace(state, rollout=held, failed_trees=tuple([*others, failed][-MOST_FAILED_TREES:]))


def after_recovery(state: RolloutState) -> RolloutState:
    """The state when a gate that failed opens after all: the tree is no longer one that failed."""
    rollout = state.rollout
    if rollout is None:
        return state
    left = tuple(each for each in state.failed_trees if each.tree != rollout.tree)
    judged = state.judged_agents | frozenset(rollout.moving)
    return replace(state, rollout=replace(rollout, failed=""), failed_trees=left, judged_agents=judged)


def after_convergence(state: RolloutState, target: Snapshot, *, forward: bool) -> RolloutState:
    """The state when a commit converged: its policy counts for the next; rolling forward clears what failed."""
    failed = () if forward else state.failed_trees
    return replace(state, converged=target.revision.sha, converged_policy=target.policy, failed_trees=failed)


# -- retries: what a person asks to be tried again gets a fresh start, each request once


def handle_retries(state: State, now: Now) -> State:
    """The state after the retries that were asked for since the last handled control."""
    control = state.control
    new = [each for each in control.controls if each.seq > control.handled_seq]
    if not new:
        return state
    for each in new:
        if each.verb is ControlVerb.RETRY:
            is_agent = "/" in each.target
            state = _retry_agent(state, each.target, now) if is_agent else _retry_commit(state, each.target)
    return replace(state, control=replace(state.control, handled_seq=new[-1].seq))


def start_afresh(state: State, agents: Collection[AgentKey]) -> State:
    """The state without the retry states and deadlines of some agents."""
    if not agents:
        return state
    attempts = {key: each for key, each in state.reconcile.attempts.items() if key.agent not in agents}
    if len(attempts) != len(state.reconcile.attempts):
        state = replace(state, reconcile=replace(state.reconcile, attempts=attempts))
    since = {key: at for key, at in state.rollout.unready_since.items() if key not in agents}
    if len(since) != len(state.rollout.unready_since):
        final = {key: at for key, at in state.rollout.final_since.items() if key not in agents}
        state = replace(state, rollout=replace(state.rollout, unready_since=since, final_since=final))
    return state


def _retry_agent(state: State, target: str, now: Now) -> State:
    agent = AgentKey.parse(target)
    state = start_afresh(state, {agent})
    if again := due_again(state.reconcile.bases.values(), agent):
        bases = state.reconcile.bases.updated({base.key: base for base in again})
        state = replace(state, reconcile=replace(state.reconcile, bases=bases))
    retried = {**state.control.retried_at, agent: now.wall}
    return replace(state, control=replace(state.control, retried_at=retried))


def _retry_commit(state: State, sha: str) -> State:
    """The state when a commit gets another try, whether its tree failed as this one or another."""
    record, known, rollout = state.commits.records.get(sha), state.rollout, state.rollout.rollout
    trees = {each.tree for each in known.failed_trees if each.commit == sha} | {record.tree if record else ""}
    left = tuple(each for each in known.failed_trees if each.tree not in trees)
    if rollout is None or rollout.commit != sha:
        return replace(state, rollout=replace(known, failed_trees=left))
    rollout = replace(rollout, failed="", passed_at=None)
    state = replace(state, rollout=replace(known, rollout=rollout, failed_trees=left))
    # A commit that converged is not judged once more.
    if record is None or record.phase is not Phase.DEGRADED:
        return state
    reopened = replace(record, phase=Phase.RECONCILING, finished_at=None, summary="tried again", findings=())
    moving = frozenset(rollout.moving)
    state = replace(state, rollout=replace(state.rollout, judged_agents=known.judged_agents | moving))
    return start_afresh(replace(state, commits=state.commits.updated([reopened])), moving)
