"""The plan for people: by agent, what, why, the difference, and which guard would stop it. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from gitops_agent.model.fields import Fields
from gitops_agent.model.plan import Action, Decision, Effect, Plan, Verb, Verdict
from gitops_agent.model.quantity import counted
from gitops_agent.report.json_shapes import count_verbs
from gitops_agent.report.table import PLAIN, Style
from gitops_agent.report.words import findings_text, in_words, short
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import clipped, escape_control

_STEPS = 12  # lines of difference shown of one action
_VALUE = 160  # characters shown of one value
_SIGNS = {Verb.CREATE: ("+", "green"), Verb.DELETE: ("-", "red"), Verb.STOP: ("-", "red")}
_MISSING = object()
_DIGESTS = ("/config", "/spec")  # of other fields, for machines: a difference in them says nothing to people
_GUARDS = {
    "action_cap": "The cap of actions per pass",
    "backoff": "The pause after a failure",
    "breaker": "The rest of a driver that failed too often",
    "dependencies": "A dependency that is not Ready",
    "empty_source": "The guard against an empty source",
    "failed_tree": "The memory of a tree that failed",
    "freeze": "A freeze",
    "host_restart": "The bound on what comes back at once after a restart of the host",
    "mass_change": "The guard against mass changes",
    "mass_delete": "The guard against mass deletion",
    "mass_drift": "The guard against mass drift",
    "observe_mode": "Observe mode",
    "oscillation": "The guard against repairs that do not last",
    "paused": "A pause",
}


def plan_text(plan: Plan, style: Style = PLAIN, redactor: Redactor | None = None) -> str:
    """The whole plan. Values of the difference are redacted here, where their field names are still known."""
    mask = (redactor or Redactor()).tree
    ruled = [verdict for verdict in plan.verdicts if verdict.effect is not Effect.PASS]
    told = {finding for verdict in ruled for finding in verdict.findings}
    # What stops the plan comes before what it would do: nobody should have to scroll for it.
    blocks = [f"plan for {short(plan.commit)}, digest {plan.digest}", *(_verdict(each, style) for each in ruled)]
    blocks.append(_actions(plan, style, mask) if plan.actions else "nothing to do: live is as desired")
    others = [finding for finding in plan.findings if finding not in told]
    if others:
        blocks.append(findings_text(others, style))
    if plan.actions:
        blocks.append(_totals(plan))
    return "\n\n".join(blocks)


def _actions(plan: Plan, style: Style, mask: Callable[..., Any]) -> str:
    lines: list[str] = []
    for agent, actions in groupby(plan.actions, key=lambda action: action.key.agent):
        lines += ["", style.paint(escape_control(str(agent)), "bold")]
        for action in actions:
            lines += _action(action, plan, style, mask)
    return "\n".join(lines[1:])


def _totals(plan: Plan) -> str:
    counts = count_verbs(plan)
    held = counts.pop("held")
    parts = [f"{count} to {verb}" for verb, count in counts.items() if count]
    return ", ".join(parts) + (f"; {held} held by a guard" if held else "")


def _action(action: Action, plan: Plan, style: Style, mask: Callable[..., Any]) -> list[str]:
    sign, colour = _SIGNS.get(action.verb, ("~", "yellow"))
    why = mask(escape_control(action.message)) or in_words(action.reason)
    what = escape_control(f"{action.key.kind}/{action.key.id}")
    head = f"  {style.paint(f'{sign} {action.verb}', colour)} {what}: {why}"
    tags = [escape_control(action.reason), str(action.drift_class)]
    if action.key in plan.held:
        tags.append("held")
    elif action.decision is not Decision.REPAIR:
        tags.append(f"{action.confidence} confidence: {action.decision}")
    return [f"{head} {style.paint('[' + ', '.join(tags) + ']', 'dim')}", *_difference(action, style, mask)]


def _difference(action: Action, style: Style, mask: Callable[..., Any]) -> list[str]:
    if action.verb is Verb.DELETE:
        return []
    lines: list[str] = []
    for step in action.patch:
        if step.get("path") not in _DIGESTS and not _is_silent(step):
            lines += _step(step, action, style, mask)
    if len(lines) > _STEPS:
        return [*lines[:_STEPS], style.paint(f"      … and {len(lines) - _STEPS} more lines", "dim")]
    return lines


def _is_silent(step: Mapping[str, Any]) -> bool:
    """Whether it adds a field that says nothing: none, or an empty list."""
    return step.get("op") == "add" and step.get("value") in (None, "", [], {})


def _step(step: Mapping[str, Any], action: Action, style: Style, mask: Callable[..., Any]) -> list[str]:
    path = str(step.get("path", ""))
    before = step["before"] if "before" in step else _before(path, action)
    lines = []
    if step.get("op") != "add" and before is not _MISSING:
        lines.append(style.paint(f"      - {escape_control(path)}: {_value(before, path, mask)}", "red"))
    if step.get("op") != "remove":
        lines.append(
            style.paint(f"      + {escape_control(path)}: {_value(step.get('value'), path, mask)}", "green")
        )
    return lines


def _value(value: Any, path: str, mask: Callable[..., Any]) -> str:
    name = path.rsplit("/", 1)[-1]
    return clipped(escape_control(json.dumps(mask(value, name), ensure_ascii=False)), _VALUE)


def _before(path: str, action: Action) -> Any:
    """What the patch replaces: from live, or from base where live does not show the field."""
    for leg in (action.live, action.base):
        if leg is not None and (found := _at(leg, path)) is not _MISSING:
            return found
    return _MISSING


def _at(fields: Fields, path: str) -> Any:
    """The value a JSON pointer names."""
    value: Any = fields.value
    for raw in path.split("/")[1:]:
        part = raw.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            return _MISSING
    return value


def _verdict(verdict: Verdict, style: Style) -> str:
    held = f"holds {counted(len(verdict.held), 'action')}"
    word = "blocks the commit" if verdict.effect is Effect.BLOCK else held
    name = _GUARDS.get(verdict.guard) or f"The guard {in_words(verdict.guard)}"
    head = style.paint(f"{name} {word}", "bold", "yellow")
    return "\n".join([head, *([findings_text(verdict.findings, style)] if verdict.findings else [])])
