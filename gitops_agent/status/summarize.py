"""What a pass means for agents and commits: a list of same-shaped pure steps, each adding the part it owns.

The order is data: agents before the commit that is judged by them, the gate before what it holds, findings last.
All of it is written in one transaction at the end of the pass, so that no reader sees one part without the other.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from gitops_agent.model.control import Control, ControlVerb, freezes
from gitops_agent.model.passes import Now, PassRecord, PassResult, ProposalProgress, SourceResult
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.state import State
from gitops_agent.model.status import HealthState, Phase
from gitops_agent.proposals.import_live import update_imports
from gitops_agent.proposals.revert import propose_if_due, revert_finding
from gitops_agent.reconcile.pace import charged
from gitops_agent.reconcile.retry import after_round
from gitops_agent.status.agents import agent_conditions, halted_agents
from gitops_agent.status.commit import commit_phase
from gitops_agent.status.findings import agent_of, current_findings
from gitops_agent.status.requeue import MIN_REQUEUE_SECONDS, STABLE_AFTER_SECONDS, is_busy, next_run
from gitops_agent.status.standing import fleet_standing
from gitops_agent.status.summary import Summary, Terms

Step = Callable[[Summary], Summary]


def summarize(record: PassRecord, state: State, now: Now, terms: Terms) -> Summary:
    """The state that a pass leaves, with everything it means; nothing is written here."""
    summary = Summary(record, state, now, terms, state.status.agents)
    for step in STEPS:
        summary = step(summary)
    return summary


def idle(source: SourceResult, state: State, now: Now) -> PassResult:
    """The result while nothing is desired yet (no commit was ever good): touch nothing, say why."""
    state = replace(state, status=replace(state.status, last_pass=now.wall, active_seconds=now.active))
    return _result(source, state)


def finished(summary: Summary, waits: Iterable[float | None], proposals: ProposalProgress) -> PassResult:
    """The result of a pass. ``waits``: when parts outside the state need the next one."""
    own = MIN_REQUEUE_SECONDS if proposals.reverting else None
    wait = next_run(summary, (own, proposals.wait, *waits))
    return replace(
        _result(summary.record.source, summary.state),
        record=summary.record,
        busy=proposals.reverting or proposals.reverted or is_busy(summary),
        frozen=bool(summary.record.frozen),
        wait=0.0 if proposals.reverted else wait,  # what we pushed ourselves is looked at without a rest
        source_changed=proposals.reverted,
    )


def _result(source: SourceResult, state: State) -> PassResult:
    """What every pass can say of its source, its newest commit and what was found."""
    problem = (source.unavailable,) if source.unavailable else ()
    found = tuple(dict.fromkeys((*problem, *current_findings(state))))
    return PassResult(state, found, bool(problem), source.retry_after)


def mark_started(state: State, source: SourceResult, now: Now) -> State:
    """The state in which the newest commit has begun, before anything is done about it."""
    sha = source.target.revision.sha if source.target is not None else ""
    record = state.commits.records.get(sha)
    if record is None or record.phase is not Phase.PENDING or record.started_at is not None:
        return state
    begun = replace(record, started_at=now.wall)
    return replace(state, commits=state.commits.updated([begun]))


# -- the steps


def drop_old_attempts(summary: Summary) -> Summary:
    """Without the retry states of agents that have been healthy for long enough."""
    health, attempts, now = summary.record.live.health, summary.state.reconcile.attempts, summary.now.wall
    old = {
        key
        for key, attempt in attempts.items()
        if now > attempt.next_at + STABLE_AFTER_SECONDS
        and (found := health.get(key.agent)) is not None
        and found.state in (HealthState.HEALTHY, HealthState.STOPPED)
    }
    if not old:
        return summary
    return summary.with_reconcile(attempts={key: each for key, each in attempts.items() if key not in old})


def update_circuits(summary: Summary) -> Summary:
    """With the circuits of drivers opened and closed by what became of the actions."""
    known, limits = summary.state.reconcile.circuits, partial(limits_of, summary.policy)
    after = after_round(known, summary.record.executed, limits, summary.now.wall)
    return summary if after == known else summary.with_reconcile(circuits=after)


def take_off_unbegun(summary: Summary) -> Summary:
    """With what was allowed and not begun off the account of the cap: the next pass may begin it."""
    record, debts = summary.record, summary.state.reconcile.debts
    begun = {id(action) for action in (*record.running, *(action for action, _ in record.executed))}
    unbegun = [action for action in record.plan.allowed if id(action) not in begun]
    left = charged(debts, unbegun, summary.policy, summary.now, sign=-1)
    return summary if left == debts else summary.with_reconcile(debts=left)


def freeze_if_tripped(summary: Summary) -> Summary:
    """With a freeze for every guard that doubts the desired state or what we observe, until people have looked."""
    plan, now, control = summary.record.plan, summary.now.wall, summary.state.control
    tripped = [verdict for verdict in plan.verdicts if verdict.freeze]
    if not tripped:
        return summary
    known, new = {each.target for each in freezes(control.controls, now)}, list[Control]()
    for verdict in tripped:
        if verdict.freeze not in known:
            by, why = f"guard {verdict.guard}", "; ".join(finding.summary for finding in verdict.findings)
            new.append(Control(ControlVerb.FREEZE, verdict.freeze, by, now, why, plan=plan.digest))
    return summary.with_state(control=replace(control, controls=(*control.controls, *new))) if new else summary


def proposals_due(summary: Summary) -> Summary:
    """With the commits that we are to push: the answer to a failed gate, and what live decided."""
    state, record, now = summary.state, summary.record, summary.now
    proposals = propose_if_due(state, record, now) if summary.terms.may_push else state.proposals
    proposals = update_imports(proposals, record, now, hold_seconds=summary.terms.import_hold_seconds)
    return summary if proposals == state.proposals else summary.with_state(proposals=proposals)


def reverts_reported(summary: Summary) -> Summary:
    """With what became of each revert on the record of the commit that failed."""
    records = summary.state.commits.records
    news = [
        replace(record, findings=(*record.findings, finding))
        for revert in summary.state.proposals.reverts.values()
        if revert.finished
        and (record := records.get(revert.failed)) is not None
        and record.phase.terminal  # not one that a person asked to try again
        and (finding := revert_finding(revert)) not in record.findings
    ]
    return summary.with_state(commits=summary.state.commits.updated(news)) if news else summary


def findings(summary: Summary) -> Summary:
    """With everything that was found, and when the pass ended."""
    record, status, now = summary.record, summary.state.status, summary.now
    shown = record.decision.blocked or record.plan
    # What an earlier pass found about agents that this one did not look at.
    looked_at = {str(key) for key in record.live.scope or ()}
    earlier = status.findings if record.live.scope is not None else ()
    kept = (each for each in earlier if (agent := agent_of(each)) and agent not in looked_at)
    found = tuple(dict.fromkeys((*kept, *shown.findings, *record.plan.findings)))
    found = status.findings if found == status.findings else found  # the very same need not be written again
    status = replace(status, findings=found, last_pass=now.wall, active_seconds=now.active)
    return summary.with_state(status=status)


STEPS: tuple[Step, ...] = (
    drop_old_attempts,
    update_circuits,
    take_off_unbegun,
    freeze_if_tripped,
    agent_conditions,
    commit_phase,
    halted_agents,
    fleet_standing,
    proposals_due,
    reverts_reported,
    findings,
)
