"""The plan for people, from its JSON shape: by agent, what, why, the difference, the guards. Pure."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from gitops_agent.model.quantity import counted
from gitops_agent.report.render import PLAIN, Style, page
from gitops_agent.report.words import Shape, findings_text, in_words, own_name, short
from gitops_agent.support.text import clipped, escape_control

_SHOWN_LINES = 12  # of difference, of one action
_SHOWN_CHARACTERS = 160  # of one value
_CUT = "… marks what was cut; --output json shows all of it."
_SIGNS = {"create": ("+", "green"), "delete": ("-", "red"), "stop": ("-", "red")}
DIGESTS = ("/config", "/spec")
"""Fields that are digests of others, for machines: a difference in them says nothing to people."""

_GUARDS = {
    "absence": "The bound on what comes back at once",
    "action_cap": "The cap of actions per minute",
    "backoff": "The pause after a failure",
    "breaker": "The rest of a driver that failed too often",
    "dependencies": "A dependency that is not Ready",
    "empty_source": "The guard against an empty source",
    "failed_tree": "The memory of a tree that failed",
    "freeze": "A freeze",
    "handover": "An agent that runs until the new one is ready",
    "hook_ready": "An agent whose hooks wait until it is Ready",
    "lease": "Another gitops-agent",
    "mass_change": "The guard against mass changes",
    "mass_delete": "The guard against mass deletion",
    "mass_drift": "The guard against mass drift",
    "observe_mode": "Observe mode",
    "oscillation": "The guard against repairs that do not last",
    "own_wave": "The wave after a freeze, a pause or an outage",
    "paused": "A pause",
}


def plan_text(shape: Shape, style: Style = PLAIN) -> str:
    """The whole plan."""
    verdicts = [verdict for verdict in shape["verdicts"] if verdict["effect"] != "pass"]
    listed = [finding for verdict in verdicts for finding in verdict["findings"]]
    # What stops the plan comes before what it would do, so that it is seen without scrolling.
    blocks = ["\n".join([f"plan for {short(shape['commit'])}, digest {shape['digest']}", *_systems(shape)])]
    held = [finding for finding in shape["findings"] if finding["code"] in ("PlanHeld", "PlanPartial")]
    complete = all(finding["code"] != "PlanPartial" for finding in held)
    blocks.append(findings_text(held, style))
    listed += held
    blocks += [_verdict(each, style) for each in verdicts]
    is_cut = False
    for agent, grouped in groupby(shape["actions"], key=itemgetter("agent")):
        actions = list(grouped)
        shown_of = [_action(action, style) for action in actions]
        is_cut = is_cut or any(cut for _, cut in shown_of)
        head = style.paint(escape_control(agent), "bold") + _where(actions)
        blocks.append("\n".join([head, *(line for lines, _ in shown_of for line in lines)]))
    if not shape["actions"]:
        blocks.append(
            "nothing to do: live is as desired" if complete else "nothing to do where it could be looked"
        )
    blocks.append(findings_text([finding for finding in shape["findings"] if finding not in listed], style))
    blocks.append(style.paint(_CUT, "dim") if is_cut else "")
    return page([*blocks, _totals(shape["summary"]) if shape["actions"] else ""], style)


def _systems(shape: Shape) -> list[str]:
    """One line for each driver that says which live system it would change."""
    known = {each["driver"]: each["system"] for each in shape["actions"] if each["system"]}
    return [escape_control(f"{driver}: {system}") for driver, system in sorted(known.items())]


def _where(actions: Sequence[Shape]) -> str:
    """Where an agent would be changed, by driver and namespace: `` in remote@south/acme``."""
    places = dict.fromkeys(f"{each['driver']}/{each['namespace']}" for each in actions if each["namespace"])
    return escape_control(f" in {', '.join(places)}") if places else ""


def _totals(summary: dict[str, int]) -> str:
    held = summary["held"]
    parts = [f"{count} to {verb}" for verb, count in summary.items() if count and verb != "held"]
    return ", ".join(parts) + (f"; {held} held by a guard" if held else "")


def _action(action: Shape, style: Style) -> tuple[list[str], bool]:
    """The lines of an action, and whether something in them was cut."""
    verb = action["verb"]
    sign, colour = _SIGNS.get(verb, ("~", "yellow"))
    why = escape_control(action["message"]) or in_words(action["reason"])
    what = escape_control(own_name(action["resource"]))
    tags = [escape_control(action["reason"]), action["class"]]
    if action["held"]:
        tags.append("held")
    elif action["decision"] != "repair":
        tags.append(f"{action['confidence']} confidence: {action['decision']}")
    head = f"  {style.paint(f'{sign} {verb}', colour)} {what}: {why}"
    first, changes = f"{head} {style.paint('[' + ', '.join(tags) + ']', 'dim')}", list(_difference(action))
    lines = [first, *(style.paint(line, colour) for line, colour in changes[:_SHOWN_LINES])]
    if len(changes) > _SHOWN_LINES:
        lines.append(style.paint(f"      … and {len(changes) - _SHOWN_LINES} more lines", "dim"))
    # A value as JSON never ends in this sign by itself.
    return lines, len(changes) > _SHOWN_LINES or any(line.endswith("…") for line, _ in changes)


def _difference(action: Shape) -> Iterator[tuple[str, str]]:
    """What changes, line by line, each with its colour."""
    if action["verb"] == "delete":
        return
    for step in action["patch"]:
        path, is_add = step["path"], step["op"] == "add"
        # What adds a field without content says nothing.
        if path in DIGESTS or (is_add and step.get("value") in (None, "", [], {})):
            continue
        if "before" in step and not is_add:
            yield f"      - {escape_control(path)}: {shown(step['before'], _SHOWN_CHARACTERS)}", "red"
        if step["op"] != "remove":
            value = shown(step.get("value"), _SHOWN_CHARACTERS)
            yield f"      + {escape_control(path)}: {value}", "green"


def shown(value: Any, limit: int) -> str:
    """A value as JSON on one line, cut to so many characters."""
    return clipped(escape_control(json.dumps(value, ensure_ascii=False)), limit)


def _verdict(verdict: Shape, style: Style) -> str:
    held = f"holds {counted(len(verdict['held']), 'action')}"
    word = "blocks the commit" if verdict["effect"] == "block" else held
    name = _GUARDS.get(verdict["guard"]) or f"The guard {in_words(verdict['guard'])}"
    head = style.paint(f"{name} {word}", "bold", "yellow")
    return "\n".join(filter(None, [head, findings_text(verdict["findings"], style)]))
