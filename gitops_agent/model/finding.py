"""Findings: what validators and guards have to say, all of it at once, each with an address."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters. An ERROR makes a commit invalid or an action impossible."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One statement about the desired or the live state.
    ``address`` is ``file:line:col`` or a resource key; ``code`` is stable; ``summary`` is one line for people;
    ``detail`` says what was found, what was expected and the way out."""

    severity: Severity
    code: str
    address: str
    summary: str
    detail: str = ""


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that make a commit invalid."""
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)
