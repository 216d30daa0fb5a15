"""When to run again: the one place that says it. Pure.

What waits for people (a pause, an approval, a doubt) wakes no pass.
"""

from collections.abc import Iterable, Iterator

from gitops_agent.model.control import EVERYTHING
from gitops_agent.model.pace import seconds_until_paid
from gitops_agent.model.plan import Decision
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds
from gitops_agent.model.status import ConditionType
from gitops_agent.rollout import deadlines
from gitops_agent.rollout.ends import next_end
from gitops_agent.rollout.waves import pause_left, recovery_left
from gitops_agent.status.agents import longest_delay
from gitops_agent.status.summary import Summary

MIN_REQUEUE_SECONDS = 0.25
"""How soon to look again while something is in progress and nothing says when it will be done."""

UNREACHABLE_REQUEUE_SECONDS = 5.0
"""How soon to look again when a driver could not be asked."""

MIN_CIRCUIT_REQUEUE_SECONDS = 1.0

STABLE_AFTER_SECONDS = 60.0
"""A healthy agent this long after its last permitted retry starts again with no failures on record."""

SHORTEST_WAIT_SECONDS = 0.01
"""No cause asks for less. A moment computed from two clocks may be a rounding error away, again and again."""

_RELEASED_BY_PROGRESS = ("dependencies", "handover", "hook_ready", "absence", "breaker")


def next_run(summary: Summary, others: Iterable[float | None]) -> float | None:
    """Seconds until there is something to do; None when nothing is foreseen.
    ``others``: what the parts outside the state ask for (probes, leases, proposals)."""
    known = [wait for wait in (*others, *_waits(summary)) if wait is not None]
    return max(SHORTEST_WAIT_SECONDS, min(known)) if known else None


def _waits(summary: Summary) -> Iterator[float | None]:
    record, state, now = summary.record, summary.state, summary.now
    yield record.directives.ends_in(now.wall)
    yield next_end(record.snapshot, now.wall)
    yield deadlines.next_deadline(state, summary.policy, now)
    yield _rollout_wait(summary)
    yield UNREACHABLE_REQUEUE_SECONDS if record.live.observed.is_partial else None
    yield MIN_REQUEUE_SECONDS if _is_in_progress(summary) else None
    # Failed actions are tried again.
    attempts, resting = state.reconcile.attempts, record.held_by("breaker", "oscillation")
    kept = {key for verdict in record.plan.verdicts if verdict.guard == "handover" for key in verdict.held}
    for action in record.pending:
        if action.key in attempts and action.key.agent not in resting and action.key not in kept:
            attempt = attempts[action.key]
            due = attempt.is_due(now.wall, longest_delay(summary, action.key.agent))
            yield MIN_REQUEUE_SECONDS if due else max(MIN_REQUEUE_SECONDS, attempt.next_at - now.wall)
    for verdict in record.plan.verdicts:
        yield from (max(MIN_REQUEUE_SECONDS, at - now.wall) for at in verdict.due_at.values())
    # What kept failing and is well now counts as well when it has stayed so.
    well = state.status.agents.having(ConditionType.STALLED) - state.status.agents.not_ready
    for key, attempt in attempts.items() if well else ():
        if attempt.stalled and key.agent in well:
            yield max(0.0, attempt.next_at + STABLE_AFTER_SECONDS - now.wall) + MIN_REQUEUE_SECONDS
    yield from _paces(summary)
    # Drivers that rest are given one action again.
    for circuit in state.reconcile.circuits.values() if record.held_by("breaker") else ():
        if circuit.open_until is not None:
            yield max(MIN_CIRCUIT_REQUEUE_SECONDS, circuit.open_until - now.wall)
    # An open commit degrades when the time of one of its agents is up, also if nothing happens until then.
    commit = state.commits.records.get(record.snapshot.revision.sha)
    if commit is not None and not commit.phase.terminal:
        since, final, agents = state.rollout.unready_since, state.rollout.final_since, record.snapshot.agents
        for left in deadlines.time_left(since, agents, summary.policy, now.active, final):
            yield max(MIN_REQUEUE_SECONDS, left)


def _rollout_wait(summary: Summary) -> float | None:
    """Seconds until the next wave may go, or until a gate that failed has recovered.
    A wave that was due in this pass and did not go, or a recovery that was over and changed nothing, does not wait
    for time (but for people: a newer commit is blocked, an approval was withdrawn, Git was answered)."""
    rollout, active = summary.state.rollout.rollout, summary.now.active
    if (recovering := recovery_left(rollout, active)) is not None:
        return recovering or None
    left = pause_left(rollout, active)
    overdue = rollout is not None and rollout.passed_at == summary.record.decision.overdue_since
    return None if left == 0.0 and overdue else left


def _paces(summary: Summary) -> Iterator[float]:
    """When the cap of actions has paid back one more, and when agents that come back are out of time for that."""
    reconcile, now, policy = summary.state.reconcile, summary.now, summary.policy
    capped = summary.record.held_by("action_cap")
    for scope in {None, *(key.tenant for key in capped)} if capped else ():
        cap = limits_of(policy, scope).actions_per_minute
        if wait := seconds_until_paid(reconcile.debts, now, scope or EVERYTHING, cap):
            yield max(MIN_REQUEUE_SECONDS, wait)
    # What is not in Git is ended when it is old enough.
    for action in summary.record.pending:
        seen = summary.record.live.observed.seen.get(action.key)
        if action.decision is Decision.QUARANTINE and seen is not None:
            least = seconds(limits_of(policy, action.key.agent.tenant).orphans.min_age)
            ages = (now.wall - each.started_at for each in seen.extra if each.started_at is not None)
            yield from (max(MIN_REQUEUE_SECONDS, least - age) for age in ages if age < least)
    if reconcile.returning is not None:
        released, agents = reconcile.returning.released, summary.record.snapshot.agents
        for left in deadlines.time_left(released, agents, policy, now.active):
            yield max(MIN_REQUEUE_SECONDS, left)


def is_busy(summary: Summary) -> bool:
    """Whether some agent is on its way, or a rollout will go on by itself.
    An agent that waits for another is not on its way, until all it waits for are Ready."""
    record, known, rollout = summary.record, summary.state.status.agents, summary.state.rollout.rollout
    if record.live.unanswered:  # its answer may change the picture, and comes by itself
        return True
    if rollout is not None and not (rollout.done or rollout.failed or record.decision.blocked):
        return True
    if pause_left(rollout, summary.now.active):  # its last wave bakes
        return True
    agents, waiting = record.snapshot.agents, record.held_by("dependencies")
    return any(
        key not in waiting or all(other in known and known[other].ready for other in agents[key].depends_on)
        for key in known.having(ConditionType.RECONCILING)
    )


def _is_in_progress(summary: Summary) -> bool:
    """Whether what this pass did releases what it held back or skipped."""
    record, attempts = summary.record, summary.state.reconcile.attempts
    progressed = summary.became_ready or bool(record.done)
    allowed = {action.key for action in record.plan.allowed}
    skipped = any(action.key in allowed and action.key not in attempts for action in record.pending)
    released = progressed and bool(record.held_by(*_RELEASED_BY_PROGRESS))
    return skipped or released
