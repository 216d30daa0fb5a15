"""What is in flight, at which checkpoint, and what is stuck: from what the journal holds, and nothing else. Pure.

A workflow is something that takes more than one step or more than one pass: an action that was begun, an agent
that is brought up or taken down, a hook, a rollout. What is stuck needs a person, and says the way out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.control import freezes
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Intent, Result
from gitops_agent.model.plan import Verb
from gitops_agent.model.quantity import ago, ahead, counted, epoch
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import ReconcileState, State
from gitops_agent.model.status import AgentStatus, ConditionType, Phase
from gitops_agent.ports import JournalReader
from gitops_agent.report.json_shapes import age_shape, shaper
from gitops_agent.report.render import PLAIN, Cell, Column, Style, page, table
from gitops_agent.report.words import Shape, as_of, is_about, own_name, sentence, short
from gitops_agent.support.text import escape_control

_LONGEST_ACTION_SECONDS = 600.0  # after which an action that was begun and has no outcome is taken for stuck
_TAKING_AWAY = frozenset({Verb.DELETE, Verb.STOP, Verb.FORGET, Verb.RELEASE})
_APPROVABLE = ("MassDelete", "MassChange")
_HOLDS = (*_APPROVABLE, "EmptySource", "FailedBefore", "Frozen", "MassDrift")
_shape_of = shaper("kind subject stuck message done since next actor commit reason way_out")
_REASONS = {Result.FAILED: "HookFailed", Result.UNKNOWN: "HookUnknown"}


@dataclass(frozen=True, slots=True)
class Workflow:
    """One of them. ``done`` are the checkpoints behind it, ``next`` the one ahead; ``message`` says what it waits
    for; ``way_out`` is empty where it goes on by itself."""

    kind: Literal["action", "hook", "provisioning", "teardown", "rollout", "commit", "freeze", "agent"]
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
    """What the journal holds, and the findings that hold now."""

    state: State
    findings: Sequence[Finding]
    journal: JournalReader
    now: float


def workflows(known: WorkflowInputs) -> tuple[Workflow, ...]:
    """Everything in flight, what is stuck first."""
    kinds = (_blocked, _freezes, _rollout, _actions, _hooks, _agents, _stuck_agents)
    found = (each for kind in kinds for each in kind(known))
    return tuple(sorted(found, key=lambda each: (not each.stuck, each.kind, each.subject)))


def stuck(known: WorkflowInputs) -> int:
    """How many workflows need a person."""
    return sum(each.stuck for each in workflows(known))


def workflows_shape(known: WorkflowInputs) -> Shape:
    """The answer of ``workflows``."""
    found = workflows(known)
    return {
        "stuck": sum(each.stuck for each in found),
        "workflows": list(map(_shape, found)),
        "hooks": hook_counts(known.state.reconcile),
        "journalAgeSeconds": age_shape(known.state, known.now),
    }


def _shape(each: Workflow) -> Shape:
    # What a workflow does not have is null; only a message may be without content.
    shape = _shape_of(each)
    return {key: None if value == "" and key != "message" else value for key, value in shape.items()}


def hook_counts(reconcile: ReconcileState) -> dict[str, int]:
    """How hooks stand: being called, called with what end, to be called again, or only written down."""
    running = {key for key in _begun(reconcile) if key.kind == Kind.HOOK}
    ended = [base for key, base in reconcile.bases.items() if key.kind == Kind.HOOK and key not in running]
    shots = [OneShot.read(base.handle) for base in ended]
    states = Counter("recorded" if shot is None else (shot.result or "due").lower() for shot in shots)
    states["running"] = len(running)
    return {state: states[state] for state in ("running", "done", "failed", "unknown", "due", "recorded")}


def _begun(reconcile: ReconcileState) -> frozenset[ResourceKey]:
    """The resources with an effect that was begun and has no outcome yet."""
    return frozenset(intent.action.key for intent in reconcile.open_intents.values())


def _blocked(known: WorkflowInputs) -> Iterator[Workflow]:
    """The newest commit, while a guard stops it until a person has looked."""
    head = known.state.head
    if head is None or head.phase is not Phase.BLOCKED:
        return
    holds = [each for each in head.findings if each.code in _HOLDS]
    approvable = any(each.code in _APPROVABLE for each in holds)
    approve = f"look with gitops-agent plan; then gitops-agent approve {head.plan}, or push a better commit"
    yield Workflow(
        "commit",
        short(head.sha),
        stuck=True,
        since=head.started_at,
        commit=head.sha,
        reason=next((each.code for each in (*holds, *head.findings)), "Blocked"),
        message=head.summary,
        # Not everything that stops a commit is released by an approval: the finding itself says what does.
        way_out=approve if approvable else next((each.detail for each in holds), "look with gitops-agent plan"),
    )


def _freezes(known: WorkflowInputs) -> Iterator[Workflow]:
    """Freezes that a guard set. One that a person set is known to that person."""
    for each in freezes(known.state.control.controls, known.now):
        if each.plan:
            yield Workflow(
                "freeze",
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
    rollout = known.state.rollout.rollout
    if rollout is None or not rollout.is_on_trial:  # once it is proven, the agents are listed themselves
        return
    followed = known.journal.commit_record(rollout.commit)
    waves = [f"wave {number + 1}" for number in range(len(rollout.waves))]
    way_out = (
        f"gitops-agent rollback undoes the commit, gitops-agent retry {short(rollout.commit)} tries it again, "
        "or push a better one"
    )
    yield Workflow(
        "rollout",
        short(rollout.commit),
        stuck=bool(rollout.failed),
        done=tuple(waves[: rollout.released]),
        next=next(iter(waves[rollout.released :]), ""),
        since=followed.started_at if followed else None,
        commit=rollout.commit,
        reason="GateFailed" if rollout.failed else "",
        message=_why_waiting(rollout),
        way_out=way_out if rollout.failed else "",
    )


def _why_waiting(rollout: Rollout) -> str:
    count = len(rollout.waiting)
    waiting = f"{counted(count, 'agent')} {'waits' if count == 1 else 'wait'}" if count else ""
    if rollout.failed:
        return "; ".join(filter(None, (rollout.failed.rstrip("."), waiting)))
    return f"{waiting} for a later wave" if waiting else "its last wave has to stay Ready"


def _actions(known: WorkflowInputs) -> Iterator[Workflow]:
    """What was begun and has no outcome yet."""
    for intent in known.state.reconcile.open_intents.values():
        late, key = known.now - intent.at > _longest_seconds(intent), intent.action.key
        is_hook = key.kind == Kind.HOOK
        yield Workflow(
            "hook" if is_hook else "action",
            str(key),
            stuck=late,
            next=key.id if is_hook else str(intent.action.verb),
            since=intent.at,
            actor=intent.actor,
            commit=intent.commit,
            reason=intent.action.reason,
            message="called, and has not answered yet"
            if is_hook
            else "begun, and its outcome is not written down yet",
            way_out="gitops-agent once (or a running daemon) settles it by looking" if late else "",
        )


def _longest_seconds(intent: Intent) -> float:
    fields = intent.action.desired or intent.action.base
    timeout = fields.value.get("timeout") if fields is not None and intent.action.key.kind == Kind.HOOK else None
    return timeout + 60.0 if isinstance(timeout, int | float) else _LONGEST_ACTION_SECONDS


def _hooks(known: WorkflowInputs) -> Iterator[Workflow]:
    """The hooks that are to be called again, or that people have to decide on."""
    begun = _begun(known.state.reconcile)
    for key, base in known.state.reconcile.bases.items():
        shot = OneShot.read(base.handle) if key.kind == Kind.HOOK else None
        if shot is None or shot.result is Result.DONE or key in begun:
            continue
        about = next((each for each in known.findings if each.address == str(key)), None)
        retry = f"gitops-agent retry {key.agent} calls it once more, under the same idempotency key"
        yield Workflow(
            "hook",
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
    for key, base in known.state.reconcile.bases.items():
        if not base.retained:
            on_record.setdefault(key.agent, set()).add(key)
    young = {key.agent for key, base in known.state.reconcile.bases.items() if not base.established}
    failing = {key.agent for key in known.state.reconcile.attempts}
    for agent, status in known.state.status.agents.items():
        have = on_record.get(agent, set())
        missing = [each.key for each in status.resources if each.key not in have]
        given_up = any(each.reason == "ProvisioningTimedOut" for each in status.conditions)
        leaving = given_up or (status.lifecycle is Lifecycle.RETIRED and bool(have))
        if leaving or ((missing or agent in failing) and _is_ending(known.journal, agent)):
            # A hook that is all there is left is listed itself.
            if given_up or any(key.kind != Kind.HOOK for key in have):
                left = [each.key for each in reversed(status.resources) if each.key in have] or sorted(have)
                yield _of_agent(known, status, "teardown", missing[::-1], left)
        elif missing or (agent in young and not status.ready):
            built = [each.key for each in status.resources if each.key in have]
            yield _of_agent(known, status, "provisioning", built, missing)


def _stuck_agents(known: WorkflowInputs) -> Iterator[Workflow]:
    """The agents that are alive and make no progress."""
    agents = known.state.status.agents
    for key in sorted(agents.having(ConditionType.STUCK)):
        status = agents[key]
        condition = next(each for each in status.conditions if each.type is ConditionType.STUCK)
        about = (each for each in known.findings if each.code == condition.reason and is_about(each, key))
        way_out = next((each.detail for each in about), f"gitops-agent explain {key} says how far it has got")
        yield Workflow(
            "agent",
            str(key),
            stuck=True,
            since=condition.last_transition_at,
            commit=status.observed_commit,
            reason=condition.reason,
            message=condition.message,
            way_out=way_out,
        )


def _is_ending(journal: JournalReader, agent: AgentKey) -> bool:
    """Whether the last thing done to an agent took something away."""
    return any(entry.verb in _TAKING_AWAY for entry in journal.entries(agent=agent, limit=1))


def _of_agent(
    known: WorkflowInputs,
    status: AgentStatus,
    kind: Literal["provisioning", "teardown"],
    done: Sequence[ResourceKey],
    left: Sequence[ResourceKey],
) -> Workflow:
    names = [own_name(str(key)) for key in left]
    following = names[0] if names else "Ready" if kind == "provisioning" else ""
    stalled = next((each for each in status.conditions if each.type is ConditionType.STALLED), None)
    reason, message = (stalled.reason, stalled.message) if stalled else _held(known, status.agent, following)
    name = str(status.agent)
    way_out = f"gitops-agent explain {name} says more; gitops-agent retry {name} tries again at once"
    return Workflow(
        kind,
        name,
        stuck=stalled is not None,
        done=tuple(own_name(str(key)) for key in done),
        next=following,
        since=min((each.last_transition_at for each in status.conditions), default=None),
        commit=status.observed_commit,
        reason=reason,
        message=message,
        way_out=way_out if stalled else "",
    )


def _held(known: WorkflowInputs, agent: AgentKey, following: str) -> tuple[str, str]:
    """The reason code and message of what the next checkpoint waits for: its end, its next try, or a guard."""
    if any(key.agent == agent and own_name(str(key)) == following for key in _begun(known.state.reconcile)):
        return "", "under way"
    for key, attempt in known.state.reconcile.attempts.items():
        if key.agent == agent and own_name(str(key)) == following:
            return "Backoff", f"{attempt.error.rstrip('.')}; tried again {ahead(attempt.next_at, known.now)}"
    about = next((each for each in known.findings if is_about(each, agent)), None)
    return (about.code, about.summary) if about else ("", "")


# -- for people


def workflows_text(shape: Shape, style: Style = PLAIN, *, now: float) -> str:
    """A table of what is in flight, what is stuck first, each of those with its way out."""
    found, age = shape["workflows"], as_of(shape)
    if not found:
        return page([f"Nothing is in flight.{age}\n{_hooks_line(shape)}"], style)
    blocks = [f"{counted(len(found), 'workflow')} in flight, {shape['stuck']} stuck{age}"]
    columns = (
        Column("KIND", itemgetter("kind")),
        Column("SUBJECT", itemgetter("subject"), folds=True),
        Column("CHECKPOINT", _checkpoint, drop=1, folds=True),
        Column("SINCE", lambda each: ago(epoch(each["since"]), now) if each["since"] else "-", drop=2),
        Column("STATE", _state_cell, folds=True),
    )
    blocks.append(table(columns, found, style))
    blocks += [_way_out(each, style) for each in found if each["stuck"]]
    return page([*blocks, _hooks_line(shape)], style)


def _checkpoint(each: Shape) -> str:
    done, following = len(each["done"]), each["next"]
    return (
        ", ".join(filter(None, (f"{done} done" if done else "", f"next {following}" if following else ""))) or "-"
    )


def _state_cell(each: Shape) -> Cell:
    if each["stuck"]:
        return Cell(f"stuck: {each['reason'] or ''}", ("bold", "red"))
    return Cell(each["message"] or "in flight")


def _way_out(each: Shape, style: Style) -> str:
    subject = style.paint(escape_control(each["subject"]), "bold")
    message, way_out = (sentence(escape_control(each[name] or "")) for name in ("message", "wayOut"))
    return f"{subject}: {message}\n    {way_out}"


def _hooks_line(shape: Shape) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in shape["hooks"].items() if count)
    return f"Hooks: {counts}." if counts else "No hook is on record."
