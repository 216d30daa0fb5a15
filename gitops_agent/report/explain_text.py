"""``explain AGENT`` in plain words, from its JSON shape: desired, live, done, in the way, next. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from gitops_agent.model.quantity import ago, ahead, counted, epoch, span
from gitops_agent.report.render import PLAIN, Style, page
from gitops_agent.report.status_text import attach_commands, instances_of, ready_condition, where_text
from gitops_agent.report.words import (
    Shape,
    as_of,
    clause,
    findings_text,
    hands_off_text,
    in_words,
    own_name,
    sentence,
    short,
)
from gitops_agent.support.text import clipped, escape_control

SHOWN_ACTIONS = 8
_SHOWN_FINDINGS = 5
_SHOWN_CHARACTERS = 400  # of one message
_TURNED_DOWN = ("Blocked", "Invalid", "Refused")
_SHOWN_AS_FAILURE = ("Backoff", "BackOff")
_ENDS = ("delete", "release", "forget")


def explain_text(shape: Shape, style: Style = PLAIN, *, now: float, everything: bool = False) -> str:
    """Prose under five headings, each line a whole sentence (escaped here, once, for all of them)."""
    agent, done = shape["status"], _done(shape, everything)
    sections: dict[str, Iterable[str]] = {"Gone": [gone_text(shape)], "Done": done}
    if shape["findings"]:
        sections = {"Not in Git": _undeclared(shape), "Done": done}
    if agent is not None:
        sections = {
            "Desired": _desired(shape, agent),
            "Live": _live(agent, now),
            "Done": done,
            "In the way": _in_the_way(shape, agent, now),
            "Next": _next(shape, agent, now),
        }
    blocks = [style.paint(escape_control(shape["agent"]), "bold") + style.paint(as_of(shape), "dim")]
    for title, sentences in sections.items():
        lines = [f"  {line}" for each in sentences for line in escape_control(each, lines=True).split("\n")]
        blocks.append("\n".join([style.paint(title, "bold"), *lines]))
    return page(blocks, style)


def _undeclared(shape: Shape) -> Iterator[str]:
    """What is live of an agent that no document declares."""
    yield f"No document declares {shape['agent']}, and something of it is there:"
    yield from map(_resource, shape["undeclared"])
    yield from _holds(shape)


def gone_text(shape: Shape) -> str:
    """What became of an agent that is no longer there, in one sentence."""
    if shape["undeclared"]:
        name = shape["agent"]
        return f"No document declares {name}, and something of it is there: gitops-agent explain {name}."
    last = next((action for action in shape["actions"] if action["verb"] in _ENDS), None)
    if last is None:
        return f"{shape['agent']} is no longer declared, and nothing of it is left."
    how = "released, and left in place (deletionPolicy: Retain)," if last["verb"] == "release" else "deleted"
    return f"{shape['agent']} was {how} by commit {short(last['commit'])} at {last['at']}."


def _desired(shape: Shape, agent: Shape) -> Iterator[str]:
    where = f" at {agent['origin']}" if agent["origin"] else ""
    yield f"It should be {agent['lifecycle']}{where}, as of commit {short(agent['observedCommit'])}."
    if (commit := shape["enforced"]) is not None:
        yield (
            f'That commit is "{_line(commit["subject"])}" by {_line(commit["author"])},'
            f" {commit['committedAt']}; it is {commit['phase']}."
        )
    if agent["appliedCommit"] != agent["observedCommit"]:
        runs = (
            f"It still runs {short(agent['appliedCommit'])}" if agent["appliedCommit"] else "It was never started"
        )
        yield f"{runs}: what that commit asks of it waits."
    if text := hands_off_text(agent):
        yield sentence(f"It is {_line(text)}")
    head = shape["newest"]
    if head is not None and head["commit"] != agent["observedCommit"]:
        yield f"The newest commit {short(head['commit'])} is {head['phase']} and is not enforced here."
    if head is not None and any(each["type"] == "Halted" for each in agent["conditions"]):
        yield (
            f"That commit failed its gate: {clause(_line(head['summary']))}. Its rollout goes on once all that it"
            f" reached is Ready and stays so; else push a fix or a revert, or gitops-agent retry"
            f" {short(head['commit'])}."
        )


def _live(agent: Shape, now: float) -> Iterator[str]:
    if (ready := ready_condition(agent)) is not None:
        word, since = "Ready" if ready["status"] else "not Ready", ready["lastTransitionTime"]
        yield f"It is {word} since {since} ({ago(epoch(since), now)}): {_because(ready)}."
    yield from map(_resource, agent["resources"])
    yield from (
        sentence(_line(str(each["live"]["note"]))) for each in agent["resources"] if "note" in each["live"]
    )
    yield from (_progress(each, now) for each in agent.get("progress", ()))
    yield from (f"attach: {command}" for command in attach_commands(agent))
    if not agent["resources"]:
        yield "Nothing of it is meant to exist."


def _resource(resource: Shape) -> str:
    parts = [resource["state"]]
    if resource["health"]:
        parts.append(f"health {resource['health']}")
    if instances := instances_of([resource]):
        parts.append(f"{instances[0][0]} {', '.join(value for _, value in instances)}")
    return f"{own_name(resource['key'])} ({where_text(resource)}): {', '.join(parts)}."


def _progress(report: Shape, now: float) -> str:
    """How the heartbeat, the turn and the tool calls of one running copy stand."""
    parts = [f"heartbeat {ago(epoch(report['heartbeatAt']), now)}"]
    if report["turn"] is not None:
        parts.append(f"turn {report['turn']} for {span(now - epoch(report['turnSince']))}")
    calls = [f"{_line(call['name'])} for {span(now - epoch(call['since']))}" for call in report["calls"]]
    parts.append(f"tool calls in progress: {', '.join(calls)}" if calls else "no tool call in progress")
    return f"{report['instance']}: {'; '.join(parts)}."


def _done(shape: Shape, everything: bool) -> Iterator[str]:
    actions = shape["actions"]
    if not actions:
        yield "Nothing has been done to it yet."
    shown = len(actions) if everything else SHOWN_ACTIONS
    for action in actions[:shown]:
        yield _action(action)
        # Where there was more than one source: alone it says no more than the reason.
        if len(action["evidence"]) > 1:
            reports = "; ".join(f"{each['source']}: {_line(each['said'])}" for each in action["evidence"])
            yield sentence(f"Evidence at {max(each['at'] for each in action['evidence'])}: {reports}")
    if len(actions) > shown:
        more = counted(len(actions) - shown, "earlier action")
        yield f"… and {more}: gitops-agent explain {shape['agent']} --all"


def _action(action: Shape) -> str:
    what = f"{action['at']} {action['verb']} {own_name(action['resource'])}"
    why = clause(_line(action["message"])) or in_words(action["reason"])
    result = action["result"] or "outcome not known yet"
    took = f" in {span(action['seconds'])}" if action["seconds"] is not None else ""
    answer = f": {_own(action['resource'], action['outcome'])}" if action["outcome"] else ""
    reason, commit = action["reason"], short(action["commit"])
    return sentence(f"{what} because {why} [{reason}], commit {commit}: {result}{took}{answer}")


def _in_the_way(shape: Shape, agent: Shape, now: float) -> Iterator[str]:
    failing = _failing(shape, agent)
    found = [*_turned_down(shape, agent), *_failures(failing), *_conditions(shape, failing), *_holds(shape)]
    yield from found or [_not_ready(agent, now) or "Nothing."]
    if shape["lastOutput"]:
        yield f"Its last output (more: gitops-agent logs {shape['agent']}):"
        yield from (f"  | {_line(line)}" for line in shape["lastOutput"])


def _not_ready(agent: Shape, now: float) -> str:
    """What keeps an agent from being Ready where nothing else does, such as a probe that has not answered."""
    ready = ready_condition(agent)
    if ready is None or ready["status"]:
        return ""
    since = ready["lastTransitionTime"]
    return f"Not Ready since {since} ({ago(epoch(since), now)}): {_because(ready)}."


def _turned_down(shape: Shape, agent: Shape) -> Iterator[str]:
    """A newest commit that is not enforced, and every reason for it."""
    head = shape["newest"]
    if head is None or head["commit"] == agent["observedCommit"] or head["phase"] not in _TURNED_DOWN:
        return
    yield (
        f"The newest commit {short(head['commit'])} is {head['phase']}: nothing it asks for is done, and"
        f" {short(agent['observedCommit'])} stays in force."
    )
    yield from (findings_text([finding]) for finding in head["findings"][:_SHOWN_FINDINGS])
    if len(head["findings"]) > _SHOWN_FINDINGS:
        yield f"… and {len(head['findings']) - _SHOWN_FINDINGS} more: gitops-agent status"


def _failing(shape: Shape, agent: Shape) -> list[Shape]:
    """What failed and still waits. A Ready agent that nothing is owed to only keeps its count for a while."""
    return [] if agent["ready"] and agent["nextTryAt"] is None else shape["attempts"]


def _failures(failing: Sequence[Shape]) -> Iterator[str]:
    for attempt in failing:
        times = "once" if attempt["failures"] == 1 else f"{attempt['failures']} times in a row"
        code = f" [{'CannotApply' if attempt['permanent'] else 'Backoff'}]" if attempt["stalled"] else ""
        error = _own(attempt["resource"], attempt["error"])
        yield sentence(f"{own_name(attempt['resource'])} failed {times}{code}: {error}")


def _conditions(shape: Shape, failing: Sequence[Shape]) -> Iterator[str]:
    conditions = shape["status"]["conditions"]
    errors = [attempt["error"] for attempt in failing if attempt["error"]]
    # Why it is not Ready is said under Live, what a finding says below; what is stuck is not stalled besides.
    known = {(each["code"], each["code"]) for each in shape["findings"]}
    known |= {("Drifted", each["reason"]) for each in conditions if each["type"] == "Ready" and not each["status"]}
    known |= {("Stalled", each["reason"]) for each in conditions if each["type"] == "Stuck"}
    for condition in conditions:
        # A failure that was listed above stalls the agent: the same once more.
        repeats = any(error in condition["message"] for error in errors)
        repeats = repeats or (condition["type"], condition["reason"]) in known
        if condition["status"] and condition["type"] not in ("Ready", "Reconciling") and not repeats:
            yield f"{condition['type']} since {condition['lastTransitionTime']}: {_because(condition)}."


def _holds(shape: Shape) -> Iterator[str]:
    """Observe mode, a pause, a freeze, a dependency, a source that is silent: what the findings say, each once.
    Where they send people to look is here."""
    here = f" (gitops-agent explain {shape['agent']})"
    texts = dict.fromkeys(
        f"{sentence(_line(finding['summary']))} {sentence(finding['detail'].replace(here, ''))}"
        f" [{finding['code']}]"
        for finding in shape["findings"]
        if finding["code"] not in _SHOWN_AS_FAILURE
    )
    yield from (text[:1].upper() + text[1:] for text in texts)


_STAYS = {
    "Paused": "while it is paused",
    "ObserveMode": "because its document asks to observe it only",
    "Frozen": "until the freeze ends",
    "MassDrift": "until the freeze ends",
}
_WAITS = {
    "WaitingForDependency": "It goes on as soon as what it depends on is Ready.",
    "HandoverWaits": "It moves by itself, as said above.",
    "ObserveFailed": "It is looked at as soon as its live system answers; nothing is done to it until then.",
    "LeaseHeld": "It goes on as soon as the other gitops-agent lets go of it.",
    "RolloutHeld": "It keeps what it runs, and is repaired by that, until the rollout goes on.",
}
_RESTS = {
    "Running": "Nothing is due; it is observed with every pass and repaired when it drifts.",
    "Stopped": "Nothing is due; it stays stopped, and is stopped again when it is started elsewhere.",
    "Retired": "Nothing is due; it stays retired.",
}
_ALONE = "No gitops-agent is running, so nothing is noticed or done until one is: gitops-agent run (or once)."


def _next(shape: Shape, agent: Shape, now: float) -> Iterator[str]:
    """What is under way, and what happens to it next: the first that holds. While no gitops-agent runs, nothing
    happens by itself."""
    stays, alone = _stays(shape, agent), shape["running"] is False
    under_way = [] if alone else [_under_way(each, now) for each in shape["actions"] if each["result"] is None]
    yield from under_way
    if stays or not alone:
        follows = stays or _tried_again(shape, agent, now) or _waits(shape, agent) or _moves(agent)
        yield from filter(None, [follows or ("" if under_way else _rests(shape, agent))])
    if alone:
        yield _ALONE


def _under_way(action: Shape, now: float) -> str:
    """What was begun and has not ended: which hook, or which verb on what."""
    kind, _, name = own_name(action["resource"]).partition("/")
    what = f"The hook {name}" if kind == "hook" else f"{action['verb'].capitalize()} {kind}/{name}"
    return f"{what} has been running since {action['at']} ({ago(epoch(action['at']), now)})."


def _stays(shape: Shape, agent: Shape) -> str:
    """That it is not acted on, where that is so, and until when."""
    codes = [each["code"] for each in shape["findings"] if each["code"] in _STAYS]
    if hands_off_text(agent):
        codes.append("Paused" if agent["pause"] else "ObserveMode")
    down = agent["lifecycle"] == "Running" and not agent["ready"]
    return f"It {'stays down' if down else 'is left as it is'} {_STAYS[codes[0]]}." if codes else ""


def _waits(shape: Shape, agent: Shape) -> str:
    """What it waits for, where that is another agent, another gitops-agent or a rollout."""
    codes = [*(each["code"] for each in shape["findings"]), *(each["reason"] for each in agent["conditions"])]
    return next((_WAITS[code] for code in codes if code in _WAITS), "")


def _tried_again(shape: Shape, agent: Shape, now: float) -> str:
    failing = _failing(shape, agent)
    at = agent["nextTryAt"] or min(filter(None, (each["nextTryAt"] for each in failing)), default=None)
    if at is None:
        return ""
    hopeless = ", and regularly after that, but will fail until that is fixed, here or by a commit"
    is_hopeless = failing and all(attempt["permanent"] for attempt in failing)
    return f"It is tried again {ahead(epoch(at), now)} ({at}){hopeless if is_hopeless else ''}."


def _moves(agent: Shape) -> str:
    """How an agent that nothing is tried on becomes as desired: by itself, or by people."""
    reasons = {each["type"]: each["reason"] for each in agent["conditions"] if each["status"]}
    if "Stuck" in reasons:
        return "It is left alone until it makes progress again, or people decide as said above."
    if reasons.get("Stalled") == "HealthTimeout":
        return "It is Ready as soon as its checks pass; otherwise it waits for a fix or a revert."
    if agent["ready"] and reasons.get("Stalled") in ("Backoff", "CannotApply"):
        return "It runs again, and is held to fail until it has stayed Ready for a minute."
    if "Stalled" in reasons:
        return "It waits for people: what they can do is said above."
    if agent["ready"]:
        return ""
    if "Reconciling" in reasons:
        return "It is on its way, and is looked at until it is Ready."
    ready = ready_condition(agent)
    if ready is None or ready["reason"] == "Unknown":
        return "It is looked at again soon."
    return "It is Ready as soon as what is said above is mended: where it runs, or by a fix or a revert in Git."


def _rests(shape: Shape, agent: Shape) -> str:
    head = shape["newest"]
    if head is not None and head["commit"] != agent["observedCommit"] and head["phase"] == "Reconciling":
        return f"It follows {short(head['commit'])} in a later wave, once those before are Ready and stay so."
    return _RESTS[agent["lifecycle"]]


def _because(condition: Shape) -> str:
    message = clause(_line(condition["message"]))
    return f"{message or in_words(condition['reason'])} [{condition['reason']}]"


def _own(resource: str, text: str) -> str:
    """What a driver answered about a resource, without the name of the resource in front of it."""
    return _line(text).removeprefix(f"{resource}: ").rstrip(".")


def _line(text: str) -> str:
    return clipped(text.strip(), _SHOWN_CHARACTERS)
