"""The stable JSON of the command line, from model values. Text for people is rendered from it. Pure.

The contract is in ``schemas/*.json`` and ``docs/json.md``: keys are only ever added. The caller masks secrets in a
shape (``Redactor.tree``) before anything is printed, so that one place covers JSON and text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from gitops_agent.model.agent import Mode, Pause
from gitops_agent.model.control import Control
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, errors
from gitops_agent.model.health import OpenCall, Progress
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Evidence
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Decision, Plan, Verb, Verdict, Where
from gitops_agent.model.quantity import iso_or_none
from gitops_agent.model.state import State
from gitops_agent.model.status import AgentStatus, CommitEvent, CommitRecord, Condition, ResourceStatus, Standing
from gitops_agent.ports import ActionRecord
from gitops_agent.report.words import Shape
from gitops_agent.support.gc import gc_paused

NOTHING = object()
"""Where there is no value, which is something else than null."""

_NOWHERE = Where("")

_KEYS: Mapping[type, str] = {
    Action: "agent=key.agent resource=key class=drift_class driver verb reason message confidence decision",
    ActionRecord: "at driver verb reason message confidence actor commit result outcome "
    "resource=key class=drift_class plan_digest=plan before after seconds=duration evidence",
    AgentStatus: "agent ready lifecycle conditions observed_commit applied_commit resources origin next_try_at "
    "progress mode pause",
    Attempt: "failures error permanent stalled next_try_at=next_at",
    CommitEvent: "at kind subject text",
    CommitRecord: "commit=sha phase cause summary subject author changed committed_at seen_at started_at "
    "finished_at reverts rolls_back_to rolled_back_by now since_verdict",
    Condition: "type status reason message last_transition_time=last_transition_at observed_commit",
    Control: "verb target actor at reason until",
    Evidence: "source said at",
    OpenCall: "name since",
    Progress: "instance heartbeat_at=at turn turn_since calls",
    Finding: "severity code address summary detail",
    Pause: "reason until",
    ResourceStatus: "key driver state health live",
    Standing: "phase since ready total on_their_way cause frozen",
    Verdict: "guard effect held findings",
}
"""The keys of each kind of object in their order, each named like the attribute it shows, or ``key=attribute``."""


def to_json(value: Any) -> Any:
    """A model value, or a tuple of them, as JSON has it: objects by ``_KEYS``, names as text."""
    convert = _CONVERTERS.get(type(value))
    return value if convert is None else convert(value)


def shaper(keys: str) -> Callable[[Any], Shape]:
    """A function that makes the JSON object of a value. ``keys``: as in ``_KEYS``. In JSON ``next_try_at`` is
    ``nextTryAt``, and moments are text."""
    readers = []
    for key, _, attribute in (each.partition("=") for each in keys.split()):
        name = re.sub("_(.)", lambda match: match[1].upper(), key)
        is_moment = bool(re.search("(^|_)(at|since)$|^until$", attribute or key))
        readers.append((name, attrgetter(attribute or key), is_moment))

    def shape_of(value: Any) -> Shape:
        shape = {}
        for name, read, is_moment in readers:
            part = read(value)
            # Written out: a call of ``to_json`` for each part takes half as long again in a fleet of 10,000.
            convert = iso_or_none if is_moment else _CONVERTERS.get(type(part))
            shape[name] = part if convert is None else convert(part)
        return shape

    return shape_of


_CONVERTERS: Mapping[type, Callable[[Any], Any]] = {
    **{kind: shaper(keys) for kind, keys in _KEYS.items()},
    AgentKey: str,
    ResourceKey: str,
    Fields: attrgetter("value"),
    MappingProxyType: dict,
    tuple: lambda values: list(map(to_json, values)),
    frozenset: lambda names: sorted(map(str, names)),
}


def findings_shape(findings: Iterable[Finding]) -> list[Shape]:
    """Findings in the order given."""
    return list(map(to_json, findings))


def validate_shape(findings: Sequence[Finding], compared_with: str | None = None) -> Shape:
    """The answer of ``validate``. ``compared_with``: the commit that the folder was compared with, in words."""
    return {"valid": not errors(findings), "comparedWith": compared_with, "findings": findings_shape(findings)}


def count_verbs(plan: Plan) -> dict[str, int]:
    """How many actions of each verb a plan wants done, every verb named, and how many of these guards hold.
    What is only reported (ambiguities, orphans, questions) is not counted: nothing would be touched."""
    wanted = [a for a in plan.actions if a.decision is Decision.REPAIR or a.key in plan.held]
    counts = Counter(action.verb for action in wanted)
    return {**{str(verb): counts[verb] for verb in Verb}, "held": sum(a.key in plan.held for a in wanted)}


def plan_shape(plan: Plan) -> Shape:
    """The answer of ``plan``."""
    return {
        "commit": plan.commit,
        "digest": plan.digest,
        "blocked": plan.blocked,
        "summary": count_verbs(plan),
        "actions": [_action(action, plan) for action in plan.actions],
        "findings": findings_shape(plan.findings),
        "verdicts": to_json(plan.verdicts),
    }


def _action(action: Action, plan: Plan) -> Shape:
    where = plan.where.get(action.key, _NOWHERE)
    return {
        **to_json(action),
        "system": where.system,
        "namespace": where.namespace,
        "patch": [_step(step, action) for step in action.patch],
        "held": action.key in plan.held,
    }


def _step(step: Mapping[str, Any], action: Action) -> Shape:
    """One step of a patch, with what it replaces or removes."""
    if step["op"] == "add" or "before" in step:
        return dict(step)
    before = value_at(str(step["path"]), action.live, action.base)
    return dict(step) if before is NOTHING else {**step, "before": before}


def value_at(pointer: str, *sides: Fields | None) -> Any:
    """What the first side that has it shows at a JSON pointer; ``NOTHING`` when none has.
    Live does not show every field: where it is silent, our record says what we last applied."""
    from jsonpointer import JsonPointerException, resolve_pointer

    for fields in sides:
        if fields is not None:
            try:
                return resolve_pointer(fields.value, pointer)
            except JsonPointerException:
                continue
    return NOTHING


@gc_paused()
def status_shape(
    instance: str,
    state: State,
    statuses: Iterable[AgentStatus],
    findings: Iterable[Finding],
    now: float | None = None,
    *,
    running: bool | None = None,
) -> Shape:
    """The answer of ``status`` and ``once``: the newest commit seen, the last good one, and some agents.
    ``now``: None where the state was written just now. ``running``: whether a process works with that journal."""
    return {
        "instance": instance,
        "commit": state.source.head,
        "enforced": state.rollout.enforced,
        "phase": state.head.phase if state.head else None,
        "summary": state.head.summary if state.head else "",
        "now": to_json(state.standing),
        "rollout": rollout_shape(state),
        "agents": list(map(to_json, sorted(statuses, key=attrgetter("agent")))),
        "findings": findings_shape(findings),
        "journalAgeSeconds": age_shape(state, now),
        "running": running,
    }


def hands_off_shape(status: AgentStatus) -> Shape:
    """That an agent is not acted on, where that is so: its pause, or that it is only observed."""
    observed = {"mode": str(status.mode)} if status.mode is Mode.OBSERVE else {}
    return observed if status.pause is None else {**observed, "pause": to_json(status.pause)}


def age_shape(state: State, now: float | None) -> float | None:
    """How old the journal was, to the millisecond; None when it was written just now."""
    last = state.status.last_pass
    return None if now is None or last is None else round(max(0.0, now - last), 3)


def rollout_shape(state: State) -> Shape | None:
    """The rollout of the newest commit; None when every agent follows it already and has proven itself."""
    rollout = state.rollout.rollout
    if rollout is None or rollout.commit != state.source.head or not rollout.is_on_trial:
        return None
    return {
        "commit": rollout.commit,
        "waves": [len(wave) for wave in rollout.waves],
        "released": rollout.released,
        "waiting": len(rollout.waiting),
        "failed": rollout.failed or None,
        "onFailure": rollout.on_failure,
    }


def history_shape(records: Iterable[CommitRecord], state: State | None = None) -> Shape:
    """The answer of ``history``, in the order given (the journal gives newest first). ``state``: the agents that
    are Ready now are counted in it."""
    shapes = list(map(commit_shape, records))
    for shape in shapes:
        if state is not None and shape["commit"] == state.source.head:
            shape["now"] = to_json(state.standing)
    return {"commits": shapes}


def commit_shape(record: CommitRecord) -> Shape:
    """One commit of ``history``."""
    began, ended = record.started_at, record.finished_at
    return {
        **to_json(record),
        "planDigest": record.plan or None,
        "seconds": None if began is None or ended is None else round(ended - began, 3),
        "findings": findings_shape(record.findings),
    }


def explanation_shape(
    agent: AgentKey,
    state: State,
    enforced: CommitRecord | None,
    entries: Iterable[ActionRecord],
    findings: Iterable[Finding],
    now: float,
) -> Shape:
    """The answer of ``explain``. ``enforced``: the commit that its desired state comes from. ``findings``: those
    about this agent and the source; those of a newest commit that is not enforced are in its record."""
    attempts = sorted((key, each) for key, each in state.reconcile.attempts.items() if key.agent == agent)
    return {
        "agent": str(agent),
        "status": to_json(state.status.agents.get(agent)),
        "enforced": commit_shape(enforced) if enforced else None,
        "newest": {**commit_shape(state.head), "now": to_json(state.standing)} if state.head else None,
        "actions": list(map(to_json, entries)),
        "attempts": [{"resource": str(key), **to_json(attempt)} for key, attempt in attempts],
        "findings": findings_shape(findings),
        "lastOutput": [],
        "undeclared": [],
        "running": None,
        "journalAgeSeconds": age_shape(state, now),
    }


def control_shape(
    controls: Iterable[Control], meaning: str, approved: Mapping[str, str] = MappingProxyType({}), *, running: bool
) -> Shape:
    """The answer of ``freeze``, ``unfreeze``, ``approve`` and ``retry``."""
    shape: Shape = {"controls": list(map(to_json, controls)), "meaning": meaning, "running": running}
    return {**shape, "approved": [{"agent": agent, "verb": verb} for agent, verb in sorted(approved.items())]}
