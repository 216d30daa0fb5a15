"""Retries: what a person asks to be tried again gets a fresh start, each request once. Pure."""

from collections.abc import Collection
from dataclasses import replace

from gitops_agent.model.control import ControlVerb
from gitops_agent.model.key import AgentKey
from gitops_agent.model.one_shot import due_again
from gitops_agent.model.passes import Now
from gitops_agent.model.state import State
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.rollout import state as transitions


def handle_retries(state: State, now: Now) -> State:
    """The state after the retries that were asked for since the last handled control."""
    control = state.control
    new = [each for each in control.controls if each.seq > control.handled_seq]
    if not new:
        return state
    for each in new:
        if each.verb is ControlVerb.RETRY:
            state = (
                _retry_agent(state, each.target, now) if "/" in each.target else _retry_commit(state, each.target)
            )
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
        state = replace(state, rollout=replace(state.rollout, unready_since=since))
    return state


def _retry_agent(state: State, target: str, now: Now) -> State:
    agent = AgentKey.parse(target)
    state = start_afresh(state, {agent})
    if again := due_again(state.reconcile.bases.values(), agent):
        bases = {**state.reconcile.bases, **{base.key: base for base in again}}
        state = replace(state, reconcile=replace(state.reconcile, bases=bases))
    retried = {**state.control.retried_at, agent: now.wall}
    return replace(state, control=replace(state.control, retried_at=retried))


def _retry_commit(state: State, sha: str) -> State:
    record = state.commits.records.get(sha)
    rollout = transitions.after_retry(state.rollout, sha, record.tree if record is not None else "")
    state = replace(state, rollout=rollout)
    # A commit that converged is not judged once more.
    if record is None or record.phase is not Phase.DEGRADED:
        return state
    if rollout.rollout is None or rollout.rollout.commit != sha:
        return state
    moving = frozenset(rollout.rollout.moving)
    state = replace(state, rollout=replace(rollout, judged_agents=rollout.judged_agents | moving))
    return start_afresh(replace(state, commits=state.commits.updated([reopened(record)])), moving)


def reopened(record: CommitRecord) -> CommitRecord:
    """The record of a commit that a person asked to try again."""
    return replace(record, phase=Phase.RECONCILING, finished_at=None, summary="tried again", findings=())
