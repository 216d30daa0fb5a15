"""The statuses of agents after a pass. Pure steps of ``summarize``."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gitops_agent.model.agent import Agent
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import MAX_DELAY_SECONDS
from gitops_agent.model.passes import Observed, PassRecord
from gitops_agent.model.plan import Action, Effect
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds
from gitops_agent.model.snapshot import agents_in
from gitops_agent.model.state import Bases
from gitops_agent.model.status import AgentStatus, ConditionType
from gitops_agent.plan.context import is_paused
from gitops_agent.plan.reasons import Hold, ReasonCode
from gitops_agent.rollout import deadlines
from gitops_agent.status.conditions import AgentView, agent_status, ended, halted, out_of_sight
from gitops_agent.status.summary import Summary


def agent_conditions(summary: Summary) -> Summary:
    """With the statuses that changed, the deadlines that began and ended, and agents that are gone left out."""
    record, state, now = summary.record, summary.state, summary.now
    known, rollout = state.status.agents, state.rollout
    good = rollout.enforced or record.snapshot.revision.sha
    # An agent that waits for another, for a lease or for its turn has not begun: its time starts when it may.
    waiting = record.held_by("dependencies", "lease", "absence", "action_cap")
    # One that moved and is Ready only waits until the old one may go: that has no deadline.
    moving = record.held_by("handover")
    bases, touched = state.reconcile.bases, {action.key.agent for action, _ in record.executed}
    changed: list[AgentStatus] = []
    lasting: list[Base] = []
    starting: list[AgentKey] = []
    left_out = summary.left_out
    # The next copies of an agent are a step forward: each has the whole time to become Ready.
    stopping = {a.key.agent for a, _ in record.executed if a.reason == ReasonCode.REPLICAS_FOLLOW}
    for view in _views(summary):
        key = view.agent.key
        previous = known.get(key)
        status = agent_status(view, previous, rollout.released.get(key, good), now.wall)
        owing = bool(view.pending) and not view.held and key in rollout.judged_agents
        if (status.ready and (not owing or key in moving)) or key in waiting:
            stopping.add(key)
        elif not view.unreachable:
            starting.append(key)
        elif key in left_out:  # no agent's time runs while we cannot look: it has all of it when it is seen again
            stopping.add(key)
        if status is not previous and status != previous:
            changed.append(status)
        touches = key in touched or previous is None or not previous.ready
        if touches and status.ready and not any(action.key.kind == Kind.HOOK for action in view.pending):
            lasting += [base for each in view.agent.resources if (base := bases.get(each.key)) is not None]
    became_ready = any(each.ready and (each.agent not in known or not known[each.agent].ready) for each in changed)
    removed, over = _left(summary)
    changed += over
    since = deadlines.started(rollout.unready_since, starting, {*stopping, *removed}, now.active)
    summary = _established(replace(summary, became_ready=became_ready), lasting)
    final = deadlines.final_since(rollout.final_since, record.live.health, since, now.active)
    if since is not rollout.unready_since or final is not rollout.final_since:
        summary = summary.with_rollout(unready_since=since, final_since=final)
    if removed and any(key in state.control.retried_at for key in removed):
        kept = {key: at for key, at in state.control.retried_at.items() if key not in removed}
        summary = summary.with_state(control=replace(summary.state.control, retried_at=kept))
    return _with_statuses(summary, changed, removed)


def _established(summary: Summary, bases: Iterable[Base]) -> Summary:
    """With what agents consist of that were Ready once: from now on its loss is one, whatever its commit became.
    A hook asks whether its agent was there before it, so an agent that still owes one is not."""
    young = {base.key: replace(base, established=True) for base in bases if not base.established}
    return summary.with_reconcile(bases=summary.state.reconcile.bases.updated(young)) if young else summary


def halted_agents(summary: Summary) -> Summary:
    """With the condition Halted on every agent that a failed gate holds back, looked at in this pass or not."""
    agents = summary.state.status.agents
    rollout = summary.state.rollout.rollout if summary.is_halted else None
    held = frozenset(rollout.behind) if rollout is not None else frozenset[AgentKey]()
    changed = [
        halted(agents[key], rollout if key in held else None, summary.now.wall)
        for key in agents.having(ConditionType.HALTED) ^ held
        if key in agents
    ]
    return _with_statuses(summary, changed, ())


def _with_statuses(summary: Summary, changed: Sequence[AgentStatus], removed: Sequence[AgentKey]) -> Summary:
    if not changed and not removed:
        return summary
    status = summary.state.status
    return summary.with_state(status=replace(status, agents=status.agents.updated(changed, removed)))


def _views(summary: Summary) -> Iterator[AgentView]:
    record, bases, attempts = summary.record, summary.state.reconcile.bases, summary.state.reconcile.attempts
    live, since, hidden = record.live, summary.state.rollout.unready_since, summary.hidden
    # What is neither desired nor on record is of no driver that its agent names.
    unseen = {key.agent: {"": why} for key, why in live.observed.unseen.items()}
    frozen = record.frozen
    held = {key.agent for verdict in record.plan.verdicts if verdict.for_people for key in verdict.held}
    timed = [
        verdict for verdict in record.plan.verdicts if verdict.guard != "handover"
    ]  # that tries nothing again
    due_at = {key.agent: at for verdict in timed for key, at in verdict.due_at.items()}
    blocking, repeated = _blocking(record), record.held_by("oscillation")
    waits = dict.fromkeys(record.held_by("lease"), str(Hold.LEASE_HELD))
    waits |= dict.fromkeys(record.held_by("dependencies"), str(Hold.WAITING_FOR_DEPENDENCY))
    moves = {
        each.address: each.summary
        for verdict in record.plan.verdicts
        for each in verdict.findings
        if each.code == Hold.HANDOVER_WAITS
    }
    returning = summary.state.reconcile.returning
    back = (
        dict.fromkeys((*returning.released, *returning.waiting), returning.cause) if returning is not None else {}
    )
    known = summary.state.rollout.rollout
    left = dict.fromkeys(known.left, known.commit) if known is not None else {}
    rollout = known if summary.is_halted else None
    behind = dict.fromkeys(rollout.behind, rollout) if rollout is not None else {}
    # A hook that takes its time changes nothing about its agent.
    busy = {action.key.agent for action in record.running if action.key.kind != Kind.HOOK}
    owed: dict[AgentKey, list[Action]] = {}
    for action in record.pending:
        owed.setdefault(action.key.agent, []).append(action)
    for agent in agents_in(record.snapshot, live.scope):
        key = agent.key
        yield AgentView(
            agent=agent,
            seen=live.observed.seen,
            bases=bases,
            health=live.health.get(key),
            pending=owed.get(key, ()),
            attempts=[attempts[each.key] for each in agent.resources if each.key in attempts] if attempts else (),
            unreachable=(_not_asked(agent, live.observed, bases) or unseen.get(key, {})) if key in hidden else {},
            deadline_passed=deadlines.overdue(since, agent, summary.policy, summary.now.active),
            held=key in held,
            frozen=key in frozen,
            busy=key in busy,
            halted=behind.get(key),
            due_at=due_at.get(key),
            longest_delay=longest_delay(summary, key) if attempts else MAX_DELAY_SECONDS,
            blocked_by=blocking.get(key, ""),
            repeated=key in repeated,
            waits=waits.get(key, ""),
            moves=moves.get(str(key), "") if moves else "",
            returning=back.get(key, ""),
            left=left.get(key, ""),
            pause=agent.pause if agent.pause is not None and is_paused(agent, summary.now.wall) else None,
        )


def _blocking(record: PassRecord) -> dict[AgentKey, str]:
    """The agents of which a guard holds what a commit asks for until people decide, with its code."""
    blocks = [verdict for verdict in record.plan.verdicts if verdict.effect is Effect.BLOCK and verdict.findings]
    return {key.agent: verdict.findings[0].code for verdict in blocks for key in verdict.held}


def longest_delay(summary: Summary, agent: AgentKey) -> float:
    """The most seconds that a next try of an agent may be away."""
    return seconds(limits_of(summary.policy, agent.tenant).backoff.longest)


def _left(summary: Summary) -> tuple[list[AgentKey], list[AgentStatus]]:
    """Of the agents looked at that left Git: those of which nothing is on record any more; and the statuses of
    those that run no more, while something of them is (a hook, as a rule), or that cannot be looked at."""
    known, scope, agents = summary.state.status.agents, summary.record.live.scope, summary.record.snapshot.agents
    absent = {key for key in (known if scope is None else scope) if key not in agents and key in known}
    if not absent:
        return [], []
    bases = summary.state.reconcile.bases
    removed = absent - {key.agent for key, base in bases.items() if not base.retained}
    hidden = (absent - removed) & summary.hidden
    over = absent - removed - hidden - {key.agent for key in bases if key.kind == Kind.RUNTIME}
    open_ = {action.key.agent: action for action in reversed(summary.record.pending)}
    made = [ended(known[key], open_.get(key), summary.now.wall) for key in sorted(over)]
    made += [out_of_sight(known[key], summary.now.wall) for key in sorted(hidden)]
    return sorted(removed), [status for status in made if status != known[status.agent]]


def _not_asked(agent: Agent, observed: Observed, bases: Bases) -> dict[str, str]:
    """The drivers of an agent that could not be asked, or not about it, and why."""
    known = [(each.key, each.driver) for each in agent.resources]
    known += [(key, bases[key].driver) for key in bases.within(frozenset({agent.key}))]
    found = ((driver, observed.unreachable.get(driver) or observed.unseen.get(key)) for key, driver in known)
    return {driver: why for driver, why in found if why}
