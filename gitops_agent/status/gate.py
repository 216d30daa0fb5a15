"""The gate of a rollout: how far the newest commit has got, and whether its next wave may follow. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Class, Decision
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import AgentStatus
from gitops_agent.plan.context import is_hands_off
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.reasons import ONLY_REPORTED, ReasonCode
from gitops_agent.rollout import deadlines
from gitops_agent.rollout import state as transitions
from gitops_agent.rollout.waves import gated
from gitops_agent.status.summary import Summary


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the newest commit has got. ``open_agents``: those that it changed (or one that it superseded before
    that was judged) and that are not Ready, and those with actions still to be done that a commit asks for.
    ``failure``: why its gate failed, "" when it did not (yet); ``for_people``: but not for certain. ``frozen``: a
    freeze holds back some of what is to be done. ``rollout``: its waves."""

    open_agents: frozenset[AgentKey]
    failure: str
    for_people: bool
    frozen: bool
    rollout: Rollout | None

    @property
    def gate_is_open(self) -> bool:
        """Whether the next wave may follow: what the waves so far have changed is as it should be.
        What the commit creates counts for the commit, not for the gate: a new agent may have to wait for the port
        of an old one that goes with a later wave."""
        if self.rollout is None:
            return not self.open_agents
        return self.open_agents.isdisjoint(self.rollout.moving)


def progress_of(summary: Summary) -> Progress:
    """How far the newest commit has got after a pass."""
    record, state, wall = summary.record, summary.state, summary.now.wall
    agents, statuses, rollout = record.snapshot.agents, state.status.agents, state.rollout.rollout
    # An agent that waits for a later wave may still suffer from an earlier commit: this one has not reached it.
    later = frozenset(rollout.waiting) if rollout is not None else frozenset[AgentKey]()
    # What an agent owes that this commit did not move, an earlier one left: it is inherited, and fails no gate.
    own = state.rollout.judged_agents - later
    open_ = (action for action in (*record.pending, *record.running) if action.key.agent in own)
    owed = [a for a in open_ if is_from_commit(a) and not is_hands_off(agents.get(a.key.agent), wall)]
    # Of an agent that left Git, only what is still to be taken away counts.
    unready = {
        key
        for key in state.rollout.judged_agents - later
        if key in agents and key in statuses and not (statuses[key].ready or is_hands_off(agents[key], wall))
    }
    late = set(deadlines.late(state.rollout.unready_since, agents, summary.policy, summary.now.active))
    # What only people can decide does not get better with time; what an earlier commit left is its own.
    asking = (a for a in record.pending if a.decision not in (Decision.REPAIR, Decision.WAIT))
    doubtful = (a for a in asking if a.reason not in ONLY_REPORTED)
    late.update(a.key.agent for a in doubtful if a.drift_class is not Class.LAG)
    late.update(_waiting_in_vain(summary, late))
    # All may be Ready, and the end of a one-shot effect is not known. It may have been our own end that
    # interrupted it, so taking the commit back by ourselves would be a guess.
    in_doubt = [action.reason == ReasonCode.HOOK_UNKNOWN for action in owed if action.key.agent in late]
    frozen_agents = record.held_by("freeze", "mass_drift")
    frozen = any(action.key.agent in frozen_agents for action in owed)
    open_agents = frozenset(unready | {action.key.agent for action in owed})
    failure = rollout.failed if rollout is not None else ""  # found before a crash could write the record
    if not (failure or frozen or late.isdisjoint(open_agents)):
        failure = _why(sorted(late & open_agents), statuses)
    return Progress(open_agents, failure, not unready and bool(in_doubt) and all(in_doubt), frozen, rollout)


def with_gate(summary: Summary, progress: Progress) -> Summary:
    """With the gate opened, shut or failed by how far the commit has got."""
    rollout, now = summary.state.rollout, summary.now
    if progress.failure:
        rollout = transitions.after_failure(rollout, progress.failure, now, for_people=progress.for_people)
    if rollout.rollout is not None and not rollout.rollout.done:
        rollout = replace(rollout, rollout=gated(rollout.rollout, now.active, ready=progress.gate_is_open))
    return summary if rollout == summary.state.rollout else summary.with_state(rollout=rollout)


def with_shut_gate(summary: Summary) -> Summary:
    """With a gate that was open and has to be found open again: what was Ready may have died unseen."""
    rollout = summary.state.rollout.rollout
    if rollout is None or rollout.passed_at is None:
        return summary
    return summary.with_rollout(rollout=gated(rollout, summary.now.active, ready=False))


def _waiting_in_vain(summary: Summary, late: Collection[AgentKey]) -> list[AgentKey]:
    """Agents that wait for one that will not become Ready by itself: late, or not ours to act on for now."""
    waiting, agents = summary.record.held_by("dependencies"), summary.record.snapshot.agents
    if not waiting:
        return []
    known, wall = summary.state.status.agents, summary.now.wall
    unready = (key for key in agents if key not in known or not known[key].ready)
    hopeless = {*late, *(key for key in unready if is_hands_off(agents[key], wall))}
    found: list[AgentKey] = []
    while more := [
        key
        for key in waiting
        if key not in hopeless and any(other in hopeless for other in agents[key].depends_on)
    ]:
        hopeless.update(more)
        found += more
    return found


def _why(late: Sequence[AgentKey], statuses: Mapping[AgentKey, AgentStatus]) -> str:
    status = statuses.get(late[0])
    message = ""
    if status is not None and status.conditions:
        stalled = next((c for c in status.conditions if c.type == "Stalled"), status.conditions[0])
        message = f"{stalled.reason}: {stalled.message}"
    more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
    is_ready = status is not None and status.ready  # it may be Ready, and a hook of it has failed
    return f"{late[0]} {'has failed' if is_ready else 'is not Ready'}: {message}{more}"
