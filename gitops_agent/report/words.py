"""Words and colours that several texts share: phases, shas, reason codes, findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.status import Phase
from gitops_agent.report.inert import inert
from gitops_agent.report.table import PLAIN, Style

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


def phase_colours(phase: Phase) -> tuple[str, ...]:
    """The colours a phase is shown in; what is not named is bad news."""
    return _PHASE_COLOURS.get(phase, ("bold", "red"))


def short(sha: str | None) -> str:
    """A sha as people write it."""
    return sha[:10] if sha else "-"


def in_words(code: str) -> str:
    """A reason code as words: ``ProcessGone`` reads ``process gone``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", inert(code)).lower()


def findings_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    """``file:line:col: error[Code]: summary``, the detail indented below."""
    return "\n".join(_finding(finding, style) for finding in findings)


def _finding(finding: Finding, style: Style) -> str:
    label = style.paint(f"{finding.severity}[{inert(finding.code)}]", *SEVERITY_COLOURS[finding.severity])
    address = style.paint(inert(finding.address), "bold")
    lines = [f"{address}: {label}: {inert(finding.summary)}"]
    lines += [f"    {line}" for line in inert(finding.detail, lines=True).split("\n") if line.strip()]
    return "\n".join(lines)
