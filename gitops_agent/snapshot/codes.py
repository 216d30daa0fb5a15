"""The stable codes of our findings, and the one way a finding is made here.

Text from the repository is untrusted: whatever goes into a finding is escaped, shortened, and hidden when it
looks like a secret.
"""

from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from gitops_agent.model.agent import Origin
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.support.secrets import looks_secret
from gitops_agent.support.text import escape_control


class Code(StrEnum):
    """What is wrong, as a stable name that scripts may rely on."""

    # the tree
    MISSING_PATH = "MissingPath"
    NO_AGENTS = "NoAgents"
    VANISHED_DOCUMENT = "VanishedDocument"
    BAD_PATH = "BadPath"
    BAD_PATTERN = "BadPattern"
    IGNORED_FILES = "IgnoredFiles"
    NOT_READ = "NotRead"
    SYMLINK = "Symlink"
    GITLINK = "Gitlink"
    CASE_COLLISION = "CaseCollision"
    TOO_MANY_FILES = "TooManyFiles"
    TOO_LARGE = "TooLarge"
    # the text
    NOT_UTF8 = "NotUtf8"
    CONTROL_CHARACTER = "ControlCharacter"
    INVALID_YAML = "InvalidYaml"
    TOO_DEEP = "TooDeep"
    TOO_MANY_ALIASES = "TooManyAliases"
    TOO_MANY_DOCUMENTS = "TooManyDocuments"
    NO_DOCUMENT = "NoDocument"
    DUPLICATE_KEY = "DuplicateKey"
    NOT_TEXT_KEY = "NotTextKey"
    TAG = "TagNotSupported"
    MERGE_KEY = "MergeKeyNotSupported"
    DIRECTIVE = "DirectiveNotSupported"
    RECURSIVE_ALIAS = "RecursiveAlias"
    BAD_NUMBER = "BadNumber"
    # the document
    FOREIGN_DOCUMENT = "ForeignDocument"
    UNKNOWN_API_VERSION = "UnknownApiVersion"
    UNKNOWN_KIND = "UnknownKind"
    STATUS_AUTHORED = "StatusAuthored"
    UNKNOWN_FIELD = "UnknownField"
    MISSING_FIELD = "MissingField"
    WRONG_TYPE = "WrongType"
    UNKNOWN_WORD = "UnknownWord"
    BAD_FORMAT = "BadFormat"
    OUT_OF_RANGE = "OutOfRange"
    INVALID_VALUE = "InvalidValue"
    LITERAL_SECRET = "LiteralSecret"  # noqa: S105 - the name of a finding
    # what it asks for
    TENANT_MISMATCH = "TenantMismatch"
    MISSING_FILE = "MissingFile"
    FILE_OUTSIDE = "FileOutsideRepository"
    DRIVER_NOT_INSTALLED = "DriverNotInstalled"
    DRIVER_REFUSED = "DriverRefused"
    NOT_BUILT_YET = "NotBuiltYet"
    OVERLAY_FAILED = "OverlayFailed"
    OVERLAY_IDENTITY = "OverlayChangesIdentity"
    OVERLAY_UNUSED = "OverlayUnused"
    # across documents
    DUPLICATE_AGENT = "DuplicateAgent"
    DUPLICATE_POOL = "DuplicatePool"
    SEVERAL_POLICIES = "SeveralPolicies"
    LOOSER_POLICY = "LooserPolicy"
    UNKNOWN_DEPENDENCY = "UnknownDependency"
    CROSS_TENANT = "CrossTenant"
    DEPENDENCY_CYCLE = "DependencyCycle"
    UNKNOWN_POOL = "UnknownPool"


class FilePosition(NamedTuple):
    """A position in a file of the repository; lines and columns count from 1."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{escape_control(self.path)}:{self.line}:{self.column}"


Loc = tuple[str | int, ...]
"""A path inside a document: keys and positions."""

NOWHERE = Origin("", 1, "")


class Issue(NamedTuple):
    """An error at a path inside a document; its line and column are looked up when all issues are known.

    ``at_key``: the key is to blame, not its value. ``origin``: where the document stands.
    """

    code: Code
    loc: Loc
    summary: str
    detail: str = ""
    at_key: bool = False
    origin: Origin = NOWHERE


class Invalid(Exception):
    """A document is not valid: all that is wrong with it, as far as it was looked at. ``rest``: what is left of it
    to be looked at further, if anything (``schema.Checked``)."""

    def __init__(self, *issues: Issue, rest: Any = None) -> None:
        super().__init__(*issues)
        self.issues = issues
        self.rest = rest


def shown(value: object, limit: int = 60) -> str:
    """A value as a finding may show it: escaped, shortened, hidden when it looks like a secret."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a mapping"
    text = str(value)
    if looks_secret(text):
        return "(hidden)"
    text = escape_control(text[: limit + 1])
    return text if len(text) <= limit else text[:limit] + "…"


def _finding(severity: Severity, code: Code, place: FilePosition, summary: str, detail: str = "") -> Finding:
    return Finding(severity, str(code), str(place), escape_control(summary), escape_control(detail))


error = partial(_finding, Severity.ERROR)
"""An error: the commit is invalid."""
warning = partial(_finding, Severity.WARNING)
"""A warning: the commit is valid, and probably not what was meant."""
info = partial(_finding, Severity.INFO)
"""Something worth saying that needs no action."""


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings by file, line and column, each once: the order of reading never shows."""
    return tuple(sorted(set(findings), key=_position))


def _position(finding: Finding) -> tuple[str, int, int, str, str]:
    path, _, rest = finding.address.rpartition(":")
    path, _, line = path.rpartition(":")
    numbers = (int(line), int(rest)) if line.isdigit() and rest.isdigit() else (0, 0)
    return (path, *numbers, finding.code, finding.summary)
