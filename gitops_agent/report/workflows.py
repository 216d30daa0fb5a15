"""What is in flight, at which checkpoint, and what is stuck: from what the journal holds, and nothing else. Pure.

A workflow is something that takes more than one step or more than one pass: an action that was begun, an agent
that is brought up or taken down, a hook, a rollout. What is stuck needs a person, and says the way out.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.control import Control
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Attempt, Intent, Result
from gitops_agent.model.plan import Verb
from gitops_agent.model.quantity import ahead, counted, iso_or_none
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Phase
from gitops_agent.report.json_shapes import age_shape, fields_shape
from gitops_agent.report.words import Shape, is_about, short

LONGEST_ACTION_SECONDS = 600.0
"""After which an action that was begun and has no outcome is taken for stuck."""

ENDS = frozenset({Verb.DELETE, Verb.STOP, Verb.FORGET, Verb.RELEASE})
"""The verbs that take something away."""

_REASONS = {Result.FAILED: "HookFailed", Result.UNKNOWN: "HookUnknown"}


class Sort(StrEnum):
    """What kind of workflow it is."""

    ACTION = "action"
    HOOK = "hook"
    PROVISIONING = "provisioning"
    TEARDOWN = "teardown"
    ROLLOUT = "rollout"
    COMMIT = "commit"
    FREEZE = "freeze"


@dataclass(frozen=True, slots=True)
class Workflow:
    """One of them. ``done`` are the checkpoints behind it, ``next`` the one ahead; ``message`` says what it waits
    for; ``way_out`` is empty where it goes on by itself."""

    sort: Sort
    subject: str
    stuck: bool
    done: tuple[str, ...] = ()
    next: str = ""
    since: float | None = None
    actor: str = ""
    commit: str = ""
    reason: str = ""
    message: str = ""
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowInputs:
    """What the journal holds. ``ending`` says whether the last thing done to an agent took something away.

    ``head`` is the newest commit, ``rollout_since`` when the rollout began, ``freezes`` are those in force.
    """

    now: float
    intents: Sequence[Intent] = ()
    bases: Mapping[ResourceKey, Base] = field(default_factory=dict)
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    statuses: Mapping[AgentKey, AgentStatus] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    rollout: Rollout | None = None
    ending: Callable[[AgentKey], bool] = lambda _: False
    journal_age: float | None = None
    head: CommitRecord | None = None
    rollout_since: float | None = None
    freezes: Sequence[Control] = ()


def workflows(known: WorkflowInputs) -> tuple[Workflow, ...]:
    """Everything in flight, what is stuck first."""
    found = [
        *_blocked(known),
        *_freezes(known),
        *_rollout(known),
        *_actions(known),
        *_hooks(known),
        *_agents(known),
    ]
    return tuple(sorted(found, key=lambda each: (not each.stuck, each.sort, each.subject)))


def stuck(known: WorkflowInputs) -> int:
    """How many workflows need a person."""
    return sum(each.stuck for each in workflows(known))


def workflows_shape(known: WorkflowInputs) -> Shape:
    """The answer of ``workflows``."""
    found = workflows(known)
    return {
        "stuck": sum(each.stuck for each in found),
        "workflows": list(map(_shape, found)),
        "hooks": hook_counts(known.bases),
        "journalAgeSeconds": age_shape(known.journal_age),
    }


def _shape(each: Workflow) -> Shape:
    known = fields_shape(each, "next", "actor", "commit", "reason", "way_out")
    return {
        "kind": str(each.sort),
        **fields_shape(each, "subject", "stuck", "message"),
        "done": list(each.done),
        "since": iso_or_none(each.since),
        **{name: value or None for name, value in known.items()},
    }


def hook_counts(bases: Mapping[ResourceKey, Base]) -> dict[str, int]:
    """How the hooks on record stand: called with what end, to be called again, or only written down."""
    states = Counter(_state(base) for key, base in bases.items() if key.kind == Kind.HOOK)
    return {state: states[state] for state in ("done", "failed", "unknown", "due", "recorded")}


def _state(base: Base) -> str:
    shot = OneShot.read(base.handle)
    if shot is None:
        return "recorded"
    return shot.result.value.lower() if shot.result else "due"


def _blocked(known: WorkflowInputs) -> Iterator[Workflow]:
    """The newest commit, while a guard stops it until a person has looked."""
    head = known.head
    if head is None or head.phase is not Phase.BLOCKED:
        return
    yield Workflow(
        Sort.COMMIT,
        short(head.sha),
        stuck=True,
        since=head.started_at,
        commit=head.sha,
        reason=next((each.code for each in head.findings), "Blocked"),
        message=head.summary,
        way_out=f"look with gitops-agent plan; then gitops-agent approve {head.plan}, or push a better commit",
    )


def _freezes(known: WorkflowInputs) -> Iterator[Workflow]:
    """Freezes that a guard set. One that a person set is known to that person."""
    for each in known.freezes:
        if each.plan:
            yield Workflow(
                Sort.FREEZE,
                each.target,
                stuck=True,
                since=each.at,
                actor=each.actor,
                reason="Frozen",
                message=each.reason,
                way_out=f"look with gitops-agent plan; then gitops-agent unfreeze --scope '{each.target}' "
                "--reason TEXT lifts it and approves what was stopped",
            )


def _rollout(known: WorkflowInputs) -> Iterator[Workflow]:
    rollout = known.rollout
    if rollout is None or rollout.done:  # once every agent follows the commit, the agents are listed themselves
        return
    waves = [f"wave {number + 1}" for number in range(len(rollout.waves))]
    waiting = counted(len(rollout.waiting), "agent")
    way_out = (
        f"gitops-agent rollback undoes the commit, gitops-agent retry {short(rollout.commit)} tries it again, "
        "or push a better one"
    )
    yield Workflow(
        Sort.ROLLOUT,
        short(rollout.commit),
        stuck=bool(rollout.failed),
        done=tuple(waves[: rollout.released]),
        next=next(iter(waves[rollout.released :]), ""),
        since=known.rollout_since,
        commit=rollout.commit,
        reason="GateFailed" if rollout.failed else "",
        message=f"{rollout.failed}; {waiting} wait" if rollout.failed else f"{waiting} wait for their wave",
        way_out=way_out if rollout.failed else "",
    )


def _actions(known: WorkflowInputs) -> Iterator[Workflow]:
    """What was begun and has no outcome yet."""
    for intent in known.intents:
        late = known.now - intent.at > _longest_seconds(intent)
        yield Workflow(
            Sort.ACTION,
            str(intent.action.key),
            stuck=late,
            next=str(intent.action.verb),
            since=intent.at,
            actor=intent.actor,
            commit=intent.commit,
            reason=intent.action.reason,
            message="begun, and its outcome is not written down yet",
            way_out="gitops-agent once (or a running daemon) settles it by looking" if late else "",
        )


def _longest_seconds(intent: Intent) -> float:
    fields = intent.action.desired or intent.action.base
    timeout = fields.value.get("timeout") if fields is not None and intent.action.key.kind == Kind.HOOK else None
    return timeout + 60.0 if isinstance(timeout, int | float) else LONGEST_ACTION_SECONDS


def _hooks(known: WorkflowInputs) -> Iterator[Workflow]:
    for key, base in known.bases.items():
        shot = OneShot.read(base.handle) if key.kind == Kind.HOOK else None
        if shot is None or shot.result is Result.DONE:
            continue
        about = next((each for each in known.findings if each.address == str(key)), None)
        retry = f"gitops-agent retry {key.agent} calls it once more, under the same idempotency key"
        yield Workflow(
            Sort.HOOK,
            str(key),
            stuck=shot.spent,
            next=key.id,
            since=base.applied_at,
            commit=base.commit,
            reason=_REASONS[shot.result] if shot.result else "HookDue",
            message=shot.said if shot.spent else "to be called again, as asked",
            way_out=(about.detail if about else retry) if shot.spent else "",
        )


def _agents(known: WorkflowInputs) -> Iterator[Workflow]:
    """The agents that are on their way up or down."""
    on_record: dict[AgentKey, set[ResourceKey]] = {}
    for key, base in known.bases.items():
        if not base.retained:
            on_record.setdefault(key.agent, set()).add(key)
    young = {key.agent for key, base in known.bases.items() if not base.established}
    failing = {key.agent for key in known.attempts}
    for agent, status in known.statuses.items():
        have = on_record.get(agent, set())
        missing = [each.key for each in status.resources if each.key not in have]
        if _is_leaving(status, have) or ((missing or agent in failing) and known.ending(agent)):
            # A hook that is all there is left is listed itself.
            if _is_given_up(status) or any(key.kind != Kind.HOOK for key in have):
                yield _teardown(known, status, have)
        elif missing or (agent in young and not status.ready):
            yield _provisioning(known, status, missing)


def _is_leaving(status: AgentStatus, have: set[ResourceKey]) -> bool:
    return _is_given_up(status) or (status.lifecycle is Lifecycle.RETIRED and bool(have))


def _is_given_up(status: AgentStatus) -> bool:
    return any(each.reason == "ProvisioningTimedOut" for each in status.conditions)


def _provisioning(known: WorkflowInputs, status: AgentStatus, missing: Sequence[ResourceKey]) -> Workflow:
    done = tuple(_name(each.key) for each in status.resources if each.key not in missing)
    return _of_agent(known, status, Sort.PROVISIONING, done, _name(missing[0]) if missing else "Ready")


def _teardown(known: WorkflowInputs, status: AgentStatus, have: set[ResourceKey]) -> Workflow:
    gone = tuple(_name(each.key) for each in reversed(status.resources) if each.key not in have)
    left = [each.key for each in reversed(status.resources) if each.key in have] or sorted(have)
    return _of_agent(known, status, Sort.TEARDOWN, gone, _name(left[0]) if left else "")


def _of_agent(
    known: WorkflowInputs, status: AgentStatus, sort: Sort, done: tuple[str, ...], following: str
) -> Workflow:
    stalled = next((each for each in status.conditions if each.type is ConditionType.STALLED), None)
    since = min((each.last_transition_at for each in status.conditions), default=None)
    held = _held(known, status.agent, following)
    explain = f"gitops-agent explain {status.agent} says more"
    return Workflow(
        sort,
        str(status.agent),
        stuck=stalled is not None,
        done=done,
        next=following,
        since=since,
        commit=status.observed_commit,
        reason=stalled.reason if stalled else held[0],
        message=stalled.message if stalled else held[1],
        way_out=f"{explain}; gitops-agent retry {status.agent} tries again at once" if stalled else "",
    )


def _held(known: WorkflowInputs, agent: AgentKey, following: str) -> tuple[str, str]:
    """The reason code and message of what the next checkpoint waits for: its next try, or a guard."""
    for key, attempt in known.attempts.items():
        if key.agent == agent and _name(key) == following:
            return "Backoff", f"{attempt.error.rstrip('.')}; tried again {ahead(attempt.next_at, known.now)}"
    about = next((each for each in known.findings if is_about(each, agent)), None)
    return (about.code, about.summary) if about else ("", "")


def _name(key: ResourceKey) -> str:
    return f"{key.kind}/{key.id}"
