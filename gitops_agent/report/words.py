"""Words and colours that several texts share: phases, shas, reason codes, findings. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import span
from gitops_agent.model.status import Phase
from gitops_agent.report.render import PLAIN, Style
from gitops_agent.support.text import escape_control

Shape = dict[str, Any]
"""A JSON object of the command line, as ``json_shapes`` makes it."""

_SEVERITY_COLOURS = {
    Severity.ERROR: ("bold", "red"),
    Severity.WARNING: ("yellow",),
    Severity.INFO: ("cyan",),
}
_PHASE_COLOURS = {
    Phase.CONVERGED: ("green",),
    Phase.RECONCILING: ("cyan",),
    Phase.PENDING: ("cyan",),
    Phase.SUPERSEDED: ("dim",),
    Phase.BLOCKED: ("yellow",),
}

_FILE = re.compile(r"\.[a-z]+$")
_LISTED_NAMES = 20  # agents named by one finding
_LISTED_COMMITS = 3  # that one commit takes back


def phase_colours(phase: str) -> tuple[str, ...]:
    """The colours a phase is shown in; what is not named is bad news."""
    return _PHASE_COLOURS.get(Phase(phase), ("bold", "red"))


def short(sha: str | None) -> str:
    """A sha as people write it."""
    return sha[:10] if sha else "-"


def own_name(resource: str) -> str:
    """``kind/id`` of a resource, without the agent in front."""
    return resource.partition(":")[2]


def in_words(code: str) -> str:
    """A reason code as words: ``ProcessGone`` reads ``process gone``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", escape_control(code)).lower()


def sentence(text: str) -> str:
    """A text that ends like a sentence: with one full stop, unless it ends in another mark already."""
    text = text.strip()
    if text.endswith(("?", "!", "…")):
        return text
    return f"{text.rstrip('.')}." if text else ""


# Words that are ordinary in the middle of a sentence; a name (Git) keeps its capital.
_ORDINARY = frozenset({"A", "An", "Fewer", "It", "Live", "More", "No", "The", "We"})


def clause(text: str) -> str:
    """A sentence to go on with after "because": no capital at its start, no full stop at its end."""
    text = text.strip()
    first = text.partition(" ")[0]
    lowered = text[:1].lower() + text[1:] if first in _ORDINARY else text
    return lowered.rstrip(".")


def rollback_words(undone: Sequence[str], back_to: str | None, undone_by: str | None) -> list[str]:
    """Which commits one takes back, and which one took it back. One that restores an earlier state says that:
    it may be a ``git revert``, or written by hand."""
    names = ", ".join(map(short, undone[:_LISTED_COMMITS])) + (" …" if undone[_LISTED_COMMITS:] else "")
    said = [f"back to the state of {short(back_to)}"] if back_to else []
    if names:
        said.append(f"undoes {names}" if back_to else f"reverts {names}")
    return [*said, f"undone by {short(undone_by)}"] if undone_by else said


def hands_off_text(agent: Shape) -> str:
    """Why an agent is not acted on, in words: ``paused until 2030-01-31T18:00:00Z: audit``; "" when it is."""
    if (pause := agent["pause"]) is not None:
        until = f"until {pause['until']}" if pause["until"] else "until the document says otherwise"
        return f"paused {until}: {pause['reason'] or 'no reason given'}"
    return "only observed (mode: Observe)" if agent["mode"] == "Observe" else ""


def ready_words(ready: int, total: int, on_their_way: int) -> str:
    """How many agents are Ready: ``4 of 6 ready, 1 on its way``. Those on their way are not Ready."""
    moving = f", {on_their_way} on {'its' if on_their_way == 1 else 'their'} way" if on_their_way else ""
    return f"{ready} of {total} ready{moving}"


def fleet_words(agents: Sequence[tuple[bool, str]], on_their_way: int, paused: int, observed: int) -> str:
    """How a fleet is, from ``(ready, lifecycle)`` of each agent: ``5 of 6 ready, 1 on its way; 1 stopped``.
    ``on_their_way``, ``paused``, ``observed``: how many come back by themselves, or are not acted on."""
    rests = Counter(lifecycle.lower() for ready, lifecycle in agents if ready and lifecycle != "Running")
    others = Counter({**rests, "paused": paused, "only observed": observed})
    more = ", ".join(f"{count} {word}" for word, count in others.items() if count)
    words = ready_words(sum(ready for ready, _ in agents), len(agents), on_their_way)
    return (f"{words}; {more}" if more else words) if agents else "no agents"


def as_of(shape: Shape) -> str:
    """How old the journal was, and that no process keeps it up to date; nothing when it was written just now."""
    age = shape["journalAgeSeconds"]
    alone = "; no gitops-agent is running" if shape.get("running") is False else ""
    return "" if age is None else f" (as of {span(age)} ago{alone})"


def is_about(finding: Finding, agent: AgentKey) -> bool:
    """Whether a finding is about this very agent (``tenant/name``) or one of its resources (``tenant/name:…``)."""
    return finding.address.partition(":")[0] == str(agent)


def findings_text(findings: Sequence[Shape], style: Style = PLAIN) -> str:
    """``file:line:col: error[Code]: summary``, the detail indented below; equal findings once."""
    unique = list({tuple(finding.items()): finding for finding in findings}.values())
    return "\n".join(_finding(address, finding, style) for address, finding in _merged(unique))


def _merged(findings: Sequence[Shape]) -> Iterator[tuple[str, Shape]]:
    """Neighbours that say the same of several agents, or of several resources of one, as one with all names."""
    for _, same in groupby(findings, key=_statement):
        group = list(same)
        owner, colon, _ = group[0]["address"].partition(":")
        own = f"{owner}:" if colon else ""
        names = [group[0]["address"], *(finding["address"].removeprefix(own) for finding in group[1:])]
        more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
        yield ", ".join(names[:_LISTED_NAMES]) + more, group[0]


def _statement(finding: Mapping[str, str]) -> tuple[str, ...]:
    """What makes two findings the same; a place in a file is always one of its own."""
    owner, colon, resource = finding["address"].partition(":")
    is_resource, is_agent = colon and "/" in resource, not colon and not _FILE.search(owner)
    about = owner if is_resource else "" if is_agent else finding["address"]
    return (about, finding["severity"], finding["code"], finding["summary"], finding["detail"])


def _finding(address: str, finding: Mapping[str, str], style: Style) -> str:
    severity = Severity(finding["severity"])
    label = style.paint(f"{severity}[{escape_control(finding['code'])}]", *_SEVERITY_COLOURS[severity])
    lines = [f"{style.paint(escape_control(address), 'bold')}: {label}: {escape_control(finding['summary'])}"]
    lines += [f"    {line}" for line in escape_control(finding["detail"], lines=True).split("\n") if line.strip()]
    return "\n".join(lines)
