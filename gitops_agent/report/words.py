"""Words and colours that several texts share: phases, shas, reason codes, findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import counted
from gitops_agent.model.status import AgentStatus, Phase
from gitops_agent.report.table import PLAIN, Style
from gitops_agent.support.text import escape_control

SEVERITY_COLOURS = {
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
_NAMES = 20  # of agents that one thing is said of


def phase_colours(phase: Phase) -> tuple[str, ...]:
    """The colours a phase is shown in; what is not named is bad news."""
    return _PHASE_COLOURS.get(phase, ("bold", "red"))


def short(sha: str | None) -> str:
    """A sha as people write it."""
    return sha[:10] if sha else "-"


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


def fleet_words(statuses: Sequence[AgentStatus]) -> str:
    """How a fleet is: ``6 agents: 4 ready, 1 stopped, 1 not ready``. What rests as desired is not called ready."""
    resting = {Lifecycle.STOPPED: "stopped", Lifecycle.RETIRED: "retired"}
    words = [resting.get(status.lifecycle, "ready") if status.ready else "not ready" for status in statuses]
    parts = [
        f"{words.count(word)} {word}" for word in ("ready", "stopped", "retired", "not ready") if word in words
    ]
    return f"{counted(len(words), 'agent')}: {', '.join(parts)}" if words else "no agents"


def nearest(text: str, agents: Sequence[AgentKey]) -> list[AgentKey]:
    """The agents whose names are most like a text that names none; all of them when none is."""
    whole = get_close_matches(text, list(map(str, agents)), 5)
    bare = get_close_matches(text.rpartition("/")[2], {key.name for key in agents}, 5)
    return [key for key in agents if str(key) in whole or key.name in bare] or list(agents)


def is_about(finding: Finding, agent: AgentKey) -> bool:
    """Whether a finding is about this very agent (``tenant/name``) or one of its resources (``tenant/name:…``)."""
    return finding.address.partition(":")[0] == str(agent)


def findings_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    """``file:line:col: error[Code]: summary``, the detail indented below; the same said twice is said once."""
    return "\n".join(
        _finding(address, finding, style) for address, finding in _merged(list(dict.fromkeys(findings)))
    )


def _merged(findings: Sequence[Finding]) -> Iterator[tuple[str, Finding]]:
    """Neighbours that say the same of several agents, or of several resources of one, as one with all names."""
    for _, same in groupby(findings, key=_statement):
        group = list(same)
        owner, colon, _ = group[0].address.partition(":")
        own = f"{owner}:" if colon else ""
        names = [group[0].address, *(finding.address.removeprefix(own) for finding in group[1:])]
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        yield ", ".join(names[:_NAMES]) + more, group[0]


def _statement(finding: Finding) -> tuple[str, ...]:
    """What makes two findings the same; a place in a file is always one of its own."""
    owner, colon, resource = finding.address.partition(":")
    is_resource, is_agent = colon and "/" in resource, not colon and not _FILE.search(owner)
    about = owner if is_resource else "" if is_agent else finding.address
    return (about, finding.severity, finding.code, finding.summary, finding.detail)


def _finding(address: str, finding: Finding, style: Style) -> str:
    label = style.paint(f"{finding.severity}[{escape_control(finding.code)}]", *SEVERITY_COLOURS[finding.severity])
    lines = [f"{style.paint(escape_control(address), 'bold')}: {label}: {escape_control(finding.summary)}"]
    lines += [f"    {line}" for line in escape_control(finding.detail, lines=True).split("\n") if line.strip()]
    return "\n".join(lines)
