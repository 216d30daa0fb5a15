"""The gate of a rollout: how far the newest commit has got, and whether its next wave may follow. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gitops_agent.model.control import frozen_scopes, is_frozen
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Class, Decision
from gitops_agent.model.rollout import Rollout, Run
from gitops_agent.model.status import AgentStatus, CommitRecord, Phase
from gitops_agent.plan.context import is_hands_off
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.handover import is_left
from gitops_agent.plan.reasons import ONLY_REPORTED, ReasonCode
from gitops_agent.plan.sight import out_of_sight
from gitops_agent.rollout import deadlines
from gitops_agent.rollout import state as transitions
from gitops_agent.rollout.exits import excused, exits, replaced, runs_after, same_run
from gitops_agent.rollout.waves import gated, recovery_left
from gitops_agent.status.summary import Summary

GATE_RECOVERED = "GateRecovered"
"""The code of the finding on a commit whose gate failed and opened after all."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the newest commit has got. ``open_agents``: those that it changed (or one that it superseded before
    that was judged) and that are not Ready, and those with actions still to be done that a commit asks for.
    ``failure``: why its gate failed, "" when it did not (yet); ``for_people``: but not for certain. ``frozen``:
    the agents it is judged by that a freeze covers. ``left_out``: those that hold no gate. ``rollout``: its waves.
    ``runs``: those of the released agents now; ``restarted``: some of them are not the ones that were first seen.
    """

    open_agents: frozenset[AgentKey]
    failure: str
    for_people: bool
    frozen: frozenset[AgentKey]
    rollout: Rollout | None
    runs: Mapping[AgentKey, Run] = field(default_factory=dict)
    restarted: bool = False
    left_out: frozenset[AgentKey] = frozenset()

    @property
    def gate_is_open(self) -> bool:
        """Whether the next wave may follow: what the waves so far have changed is as it should be.
        What the commit creates counts for the commit, not for the gate: a new agent may have to wait for the port
        of an old one that goes with a later wave."""
        if self.rollout is None or not self.rollout.is_on_trial:
            return not self.open_agents
        return (self.open_agents - self.left_out).isdisjoint(self.rollout.moving)

    @property
    def is_frozen(self) -> bool:
        """Whether a freeze alone keeps the commit from going on."""
        return bool(self.frozen) and self.open_agents <= self.frozen


def progress_of(summary: Summary) -> Progress:
    """How far the newest commit has got after a pass."""
    record, state, wall = summary.record, summary.state, summary.now.wall
    agents, statuses, rollout = record.snapshot.agents, state.status.agents, state.rollout.rollout
    # An agent that waits for a later wave may still suffer from an earlier commit: this one has not reached it.
    later = frozenset(rollout.waiting) if rollout is not None else frozenset[AgentKey]()
    # What an agent owes that this commit did not move, an earlier one left: it is inherited, and fails no gate.
    judged = state.rollout.judged_agents | _judged_again(rollout, state.reconcile.bases.values())
    own = judged - later
    open_ = (action for action in (*record.pending, *record.running) if action.key.agent in own)
    owed = [a for a in open_ if is_from_commit(a) and not is_hands_off(agents.get(a.key.agent), wall)]
    # Of an agent that left Git, only what is still to be taken away counts.
    unready = {
        key
        for key in own
        if key in agents and key in statuses and not (statuses[key].ready or is_hands_off(agents[key], wall))
    }
    # How an agent does to which something is still to be done says nothing about what the commit makes of it.
    owing = {action.key.agent for action in owed}
    final = {key: at for key, at in state.rollout.final_since.items() if key not in owing}
    late = set(deadlines.late(state.rollout.unready_since, agents, summary.policy, summary.now.active, final))
    # What only people can decide does not get better with time; what an earlier commit left is its own.
    asking = (a for a in record.pending if a.decision not in (Decision.REPAIR, Decision.WAIT))
    doubtful = (a for a in asking if a.reason not in ONLY_REPORTED)
    late.update(a.key.agent for a in doubtful if a.drift_class is not Class.LAG)
    late.update(_waiting_in_vain(summary, late))
    # All may be Ready, and the end of a one-shot effect is not known. It may have been our own end that
    # interrupted it, so taking the commit back by ourselves would be a guess.
    in_doubt = [action.reason == ReasonCode.HOOK_UNKNOWN for action in owed if action.key.agent in late]
    scopes = frozen_scopes(record.snapshot.policy, record.directives.freezes, wall)
    held = record.frozen
    frozen = frozenset(key for key in judged if key in held or is_frozen(key, scopes))
    late -= frozen  # what is frozen is left out of gates
    # Nothing is known of what could not be looked at, not even that it went with its document: it holds the
    # commit, and fails no gate.
    hidden = summary.hidden
    late -= hidden
    behind = {key.agent for key in out_of_sight(state.reconcile.bases, record.live.observed.unreachable)}
    unseen = {key for key in (hidden | behind) & own if not is_hands_off(agents.get(key), wall)}
    open_agents = frozenset(unready | unseen | owing)
    failure = rollout.failed if rollout is not None else ""  # found before a crash could write the record
    # What was moved away from there and is Ready elsewhere has still to go: that is for the commit to wait for.
    left_out = frozenset(behind - hidden - unready - owing)
    if not failure:  # what has failed is not well because nobody sees it, or acts on it
        left_out |= summary.left_out | frozen
    if not (failure or late.isdisjoint(open_agents)):
        waiting = record.held_by("dependencies")  # the cause is not in one that merely waits
        failure = _why(sorted(late & open_agents, key=lambda key: (key in waiting, key)), statuses)
    for_people = not unready and bool(in_doubt) and all(in_doubt)
    progress = Progress(open_agents, failure, for_people, frozen, rollout, left_out=left_out)
    unfinished = {action.key.agent for action in (*owed, *record.running)}
    return (
        progress
        if rollout is None or not rollout.is_on_trial
        else _with_exits(progress, rollout, summary, unfinished)
    )


def _with_exits(progress: Progress, rollout: Rollout, summary: Summary, unfinished: set[AgentKey]) -> Progress:
    """The progress with what became of the runs of released agents: one that exited fails the gate."""
    agents, seen, failure = summary.record.snapshot.agents, summary.record.live.observed.seen, progress.failure
    gone, runs = _gone(summary, rollout, progress.frozen), runs_after(rollout, agents, seen, unfinished)
    anew = bool(gone) or any(key in runs and not same_run(run, runs[key]) for key, run in rollout.runs.items())
    progress = replace(progress, runs=runs, restarted=anew)
    if not gone or failure:
        return progress
    why = f"{min(gone)} did not stay up since its release: {gone[min(gone)]}"
    return replace(progress, failure=why, for_people=False)


def _judged_again(rollout: Rollout | None, bases: Iterable[Base]) -> frozenset[AgentKey]:
    """Those that must be Ready before a gate that failed opens after all: what was released, and what was last
    applied for this commit. What an earlier commit left is inherited."""
    if rollout is None or not rollout.failed:
        return frozenset()
    made = (each.key.agent for each in bases if each.commit == rollout.commit)
    return frozenset((*rollout.moving, *made))


def _gone(summary: Summary, rollout: Rollout, frozen: Collection[AgentKey]) -> dict[AgentKey, str]:
    """The released agents that exited since their release, or had to be started again, each with the reason."""
    record, explained = summary.record, summary.record.decision.explained
    under_way = {action.key.agent for action in record.running}
    others = replaced(rollout, record.snapshot.agents, record.live.observed.seen)
    others -= excused(record.executed, explained) | under_way
    why = {a.key.agent: f"{a.reason}: {a.message}" for a, _ in record.executed if a.key.kind == Kind.RUNTIME}
    started_again = {key: why.get(key, "it was started again") for key in others}
    # Of an agent that moves, what it leaves behind says nothing about what the commit has made.
    agents = record.snapshot.agents
    own = (a for a in record.plan.actions if a.key.agent not in agents or not is_left(a.key, agents[a.key.agent]))
    found = started_again | exits(rollout, own, summary.state.reconcile.bases, explained)
    return {key: text for key, text in found.items() if key not in frozen}


def with_gate(summary: Summary, progress: Progress) -> Summary:
    """With the gate opened, shut or failed by how far the commit has got."""
    rollout, now = summary.state.rollout, summary.now
    if progress.failure:
        rollout = transitions.after_failure(rollout, progress.failure, now, for_people=progress.for_people)
    if (waves := rollout.rollout) is not None and (waves.failed or waves.is_on_trial):
        waves = gated(waves, now.active, ready=progress.gate_is_open, anew=progress.restarted)
        rollout = replace(rollout, rollout=replace(waves, runs=progress.runs))
    return summary if rollout == summary.state.rollout else summary.with_state(rollout=rollout)


def with_recovery(summary: Summary, record: CommitRecord) -> Summary:
    """With a gate that failed opened after all: everything released has been Ready again for long enough, and
    nothing was reverted for it. What was wrong has passed, and may not have been in Git at all."""
    rollout, reverts = summary.state.rollout.rollout, summary.state.proposals.reverts
    revert = reverts.get(record.sha)
    answered = revert is not None and (bool(revert.branch) or not revert.finished)
    if rollout is None or answered or recovery_left(rollout, summary.now.active) != 0.0:
        return summary
    summary = summary.with_state(rollout=transitions.after_recovery(summary.state.rollout))
    if record.phase is not Phase.DEGRADED:
        return summary
    text = f"everything released has been Ready for {rollout.recovery:g} s, so the rollout goes on"
    finding = Finding(
        Severity.INFO, GATE_RECOVERED, record.sha[:10], text, f"It was held because {rollout.failed}"
    )
    opened = replace(record, phase=Phase.RECONCILING, finished_at=None, summary=text, findings=(finding,))
    return summary.with_state(commits=summary.state.commits.updated([opened]))


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
