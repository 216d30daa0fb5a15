"""How the fleet stands under its newest commit, also after the verdict on it. Pure.

The verdict says what became of the commit; an agent may die a week later. What holds now is on the record of the
newest commit, with what happened since, and changes only when there is something else to say: what is on its way
back is waited for first, and nothing in it moves by itself.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops_agent.model.control import frozen_scopes, git_freezes
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.state import AgentStatuses
from gitops_agent.model.status import (
    INHERITED,
    MAX_EVENTS,
    REPEATED_DRIFT,
    AgentStatus,
    CommitEvent,
    CommitRecord,
    Condition,
    ConditionType,
    EventKind,
    Phase,
    Standing,
)
from gitops_agent.plan.reasons import Hold
from gitops_agent.status.summary import Summary

_OPEN = (Phase.PENDING, Phase.RECONCILING, Phase.SUPERSEDED)
_STOPPED = (Phase.BLOCKED, Phase.INVALID, Phase.REFUSED)
_FOR_PEOPLE = frozenset(map(str, (Hold.MASS_DELETE, Hold.MASS_CHANGE, Hold.MASS_DRIFT, Hold.EMPTY_SOURCE)))
_ONE_SHOT = ("HookFailed", "HookUnknown")  # of an agent that runs as it should: the commit that called it says so
_IN_THE_WAY = (REPEATED_DRIFT, Hold.MASS_ABSENCE.value, Hold.HOST_RESTARTED.value)
"""Why agents are on their way for longer than a moment, so that the fleet is not as its commit says meanwhile."""
_NAMED = 3  # agents in one line
_LISTED = 3  # events of one kind and reason in one pass; more become one
_EVENT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One agent that is not as desired and not on its way there: what that means for the fleet (Degraded, or
    Blocked where people decide), why, and since which commit."""

    agent: AgentKey
    phase: Phase
    reason: str
    message: str = ""
    since: str = ""
    ready: bool = False


def obstacles(statuses: AgentStatuses, agents: Collection[AgentKey]) -> dict[AgentKey, Obstacle]:
    """Of some agents, those in the way of ``Converged``, found by the indexes, however large the fleet."""
    having = statuses.having
    doubtful = statuses.not_ready | having(ConditionType.STALLED) | having(ConditionType.FROZEN)
    found = (_obstacle(statuses[key]) for key in doubtful | having(ConditionType.RECONCILING) if key in agents)
    return {each.agent: each for each in found if each is not None}


def obstacles_of(summary: Summary) -> dict[AgentKey, Obstacle]:
    """Those after a pass. An agent that waits for others counts when nothing is on its way any more."""
    statuses, agents = summary.state.status.agents, summary.record.snapshot.agents
    found = obstacles(statuses, agents.keys())
    if not found and not on_their_way(summary):
        waiting = (statuses[key] for key in statuses.having(ConditionType.RECONCILING) & agents.keys())
        reasons = ((each, each.find(ConditionType.RECONCILING)) for each in waiting if not each.is_hands_off)
        found = {
            each.agent: Obstacle(each.agent, Phase.DEGRADED, why.reason, ready=each.ready)
            for each, why in reasons
            if why is not None
        }
    return found


def on_their_way(summary: Summary) -> frozenset[AgentKey]:
    """The agents that become as desired by themselves, without another one that would have to do so first."""
    statuses, agents = summary.state.status.agents, summary.record.snapshot.agents
    moving = statuses.having(ConditionType.RECONCILING) & agents.keys()
    return frozenset(key for key in moving if statuses[key].is_on_its_way)


def named(found: Mapping[AgentKey, Obstacle], head: str = "") -> str:
    """Who is in the way, why and since which commit: the first few, then how many more.
    ``head``: the commit that need not be named."""
    listed = sorted(found.values(), key=lambda each: (each.phase is not Phase.BLOCKED, each.agent))
    words = [
        f"{each.agent} {each.reason}" + (f" since {each.since[:10]}" if each.since not in ("", head) else "")
        for each in listed[:_NAMED]
    ]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(words) + more


def silent(summary: Summary) -> str:
    """Which drivers that hold something of the fleet could not be asked, in words; "" when all answered."""
    unreachable = summary.record.live.observed.unreachable
    if not unreachable:
        return ""
    agents, bases = summary.record.snapshot.agents.values(), summary.state.reconcile.bases.values()
    used = {each.driver for agent in agents for each in agent.resources} | {base.driver for base in bases}
    names = sorted(used & unreachable.keys())
    return f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not answer" if names else ""


def inherited(sha: str, who: str) -> Finding:
    """The finding on a commit that is Degraded by what it found."""
    detail = (
        "The changes of this commit itself are all in, and nothing is reverted for it. It is Converged as soon as "
        "these agents are Ready; gitops-agent explain AGENT says what is wrong with them."
    )
    return Finding(Severity.WARNING, INHERITED, sha[:10], f"not Ready before this commit: {who}", detail)


def fleet_standing(summary: Summary) -> Summary:
    """With how the fleet stands now on the record of the newest commit, and what happened since its verdict."""
    record = summary.state.head
    if record is None:
        return summary
    records = summary.state.commits.records.values() if record.now is None else ()  # looked through once for each
    past = [each for each in records if each.now is not None and each is not record]
    if past:  # an older commit keeps its verdict, and what happened while it was the newest
        older = summary.state.commits.updated(replace(each, now=None) for each in past)
        summary = summary.with_state(commits=older)
    if record.phase in _OPEN:
        return _with_record(summary, replace(record, now=None)) if record.now is not None else summary
    found = obstacles_of(summary)
    if record.cause == INHERITED and not found and not on_their_way(summary):
        record = _lifted(record)
    standing = _standing(summary, record, found)
    events = tuple(_events(summary, record.now, found)) if record.now is not None else ()
    if record.now is not None and not events and _only_moves(summary, record.now, standing):
        standing = record.now
    since = (*events, *record.since_verdict)[:MAX_EVENTS] if events else record.since_verdict
    return _with_record(summary, replace(record, now=standing, since_verdict=since))


def _with_record(summary: Summary, record: CommitRecord) -> Summary:
    commits = summary.state.commits.updated([record])
    return summary if commits is summary.state.commits else summary.with_state(commits=commits)


def _lifted(record: CommitRecord) -> CommitRecord:
    """A commit whose own changes were in, now that what it inherited is Ready as well."""
    kept = tuple(finding for finding in record.findings if finding.code != INHERITED)
    done = record.summary.partition("; inherited: ")[0]
    return replace(record, phase=Phase.CONVERGED, cause="", summary=done, findings=kept)


def _standing(summary: Summary, record: CommitRecord, found: Mapping[AgentKey, Obstacle]) -> Standing:
    statuses, before = summary.state.status.agents, record.now
    phase = _phase(record, found)
    is_same = before is not None and before.phase is phase
    since = before.since if before is not None and is_same else _began(record, before, summary.now.wall)
    frozen = dict(_freezes(summary))
    cause, moving = _cause(record, found, frozen, silent(summary)), statuses.on_their_way
    return Standing(phase, since, statuses.ready, len(statuses), cause, tuple(frozen), moving)


def _only_moves(summary: Summary, before: Standing, after: Standing) -> bool:
    """Whether nothing differs but the count, and only by agents that have not come to rest: they are on their way
    back, or fail again and again. Otherwise every restart in a crash loop would rewrite the note twice."""
    statuses = summary.state.status.agents
    restless = _restless(statuses)
    moved = (statuses.not_ready ^ summary.before.not_ready) | (_restless(summary.before) - restless)
    same = replace(after, ready=before.ready, on_their_way=before.on_their_way) == before
    return same and bool(restless) and moved <= restless


def _restless(statuses: AgentStatuses) -> frozenset[AgentKey]:
    return statuses.having(ConditionType.RECONCILING) | statuses.having(ConditionType.STALLED)


def _began(record: CommitRecord, before: Standing | None, wall: float) -> float:
    """Since when a phase holds that is new: since the verdict, where there was none before."""
    return record.finished_at if before is None and record.finished_at is not None else wall


def _phase(record: CommitRecord, found: Mapping[AgentKey, Obstacle]) -> Phase:
    if record.phase in _STOPPED:
        return record.phase
    if any(each.phase is Phase.BLOCKED for each in found.values()):
        return Phase.BLOCKED
    return Phase.DEGRADED if found else record.phase


def _cause(
    record: CommitRecord, found: Mapping[AgentKey, Obstacle], frozen: Mapping[str, str], silent: str
) -> str:
    """Why it is not Converged, for people: the commit's own reason, then the others, which drivers are silent, and
    freezes."""
    own = "" if record.is_in else record.summary
    others = {key: each for key, each in found.items() if str(key) not in own}
    freezes = [f"frozen ({scope}): {why}" if why else f"frozen ({scope})" for scope, why in frozen.items()]
    return "; ".join(filter(None, (own, named(others, record.sha), silent if found else "", *freezes)))


def _obstacle(status: AgentStatus) -> Obstacle | None:
    if status.is_hands_off:
        return None
    known = {each.type: each for each in status.conditions}
    ready, stalled = known.get(ConditionType.READY), known.get(ConditionType.STALLED)
    why, phase = None, Phase.DEGRADED
    if (frozen := known.get(ConditionType.FROZEN)) is not None:
        why, phase = frozen, Phase.BLOCKED
    elif stalled is not None and not (status.ready and stalled.reason in _ONE_SHOT):
        # What it was given its time for says more than that the time is over.
        late = stalled.reason == "HealthTimeout" and ready is not None and not ready.status
        why, phase = ready if late else stalled, Phase.BLOCKED if stalled.reason in _FOR_PEOPLE else phase
    elif (moving := known.get(ConditionType.RECONCILING)) is not None:
        why = moving if moving.reason in _IN_THE_WAY else None
    elif not status.ready:
        why = ready
    if why is None:
        return None
    return Obstacle(status.agent, phase, _code(why), why.message, status.failing_since, status.ready)


def _code(why: Condition) -> str:
    """The reason of a condition; where that is "it was tried again and again", the code of what went wrong."""
    last = why.message.partition("last: ")[2].partition(":")[0] if why.reason == "Backoff" else ""
    return last if last.isalpha() and last[:1].isupper() else why.reason


# -- what happened since the verdict


def _freezes(summary: Summary) -> Iterator[tuple[str, str]]:
    """The scopes of the freezes in force after a pass, each once, with their reasons."""
    record, now = summary.record, summary.now.wall
    policy, others = record.snapshot.policy, record.directives.freezes
    tripped = {
        each.freeze: each.findings[0].summary for each in record.plan.verdicts if each.freeze and each.findings
    }
    reasons = {**tripped, **{each.target: each.reason for each in others}}
    reasons |= {scope: each.reason for scope, each in git_freezes(policy, now)}
    yield from ((scope, reasons[scope]) for scope in sorted({*frozen_scopes(policy, others, now), *tripped}))


def _events(summary: Summary, before: Standing, found: Mapping[AgentKey, Obstacle]) -> Iterator[CommitEvent]:
    """What a pass adds to the record, newest first: what ended comes before what began."""
    agents, at = summary.record.snapshot.agents.keys(), summary.now.wall
    frozen, known = dict(_freezes(summary)), obstacles(summary.before, agents)
    for scope in sorted(set(before.frozen) - frozen.keys()):
        yield CommitEvent(at, EventKind.THAWED, scope)
    for scope in sorted(frozen.keys() - set(before.frozen)):
        yield CommitEvent(at, EventKind.FROZEN, scope, frozen[scope][:_EVENT_CHARACTERS])
    recovered = {key: "" for key in known if key not in found and key in agents}
    yield from _of_agents(EventKind.RECOVERED, recovered, at)
    new = [each for key, each in found.items() if key not in known]
    for kind, held in ((EventKind.DIED, False), (EventKind.HELD, True)):
        mine = {each.agent: _words(each) for each in new if (each.ready or each.phase is Phase.BLOCKED) is held}
        yield from _of_agents(kind, mine, at)
    yield from _of_agents(EventKind.REPAIRED, dict(_repaired(summary, {*known, *found})), at)


def _repaired(summary: Summary, troubled: Collection[AgentKey]) -> Iterator[tuple[AgentKey, str]]:
    """The agents whose drift was repaired, and what it was. One that keeps failing is on record as such."""
    done = summary.record.done
    for action, _ in summary.record.executed:
        is_repair = action.key in done and action.drift_class.is_drift and action.verb.touches_live
        if is_repair and action.key.agent not in troubled:
            yield action.key.agent, action.reason


def _words(each: Obstacle) -> str:
    return (f"{each.reason}: {each.message}" if each.message else each.reason)[:_EVENT_CHARACTERS]


def _of_agents(kind: EventKind, texts: Mapping[AgentKey, str], at: float) -> Iterable[CommitEvent]:
    """One event for each agent; for very many one that says how many."""
    if len(texts) <= _LISTED:
        return [CommitEvent(at, kind, str(key), texts[key]) for key in sorted(texts)]
    listed: Sequence[AgentKey] = sorted(texts)
    reasons = sorted({text.partition(":")[0] for text in texts.values() if text})
    why = f": {', '.join(reasons[:_LISTED])}" if reasons else ""
    names = ", ".join(map(str, listed[:_LISTED]))
    text = f"{len(listed)} agents ({names} and {len(listed) - _LISTED} more){why}"
    return [CommitEvent(at, kind, "*", text)]
