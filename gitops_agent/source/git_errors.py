"""Errors of git as errors of ours: one table from its messages. Pure.

The text of a remote is hostile: it is stripped of control characters, cut, and freed of secrets before it is
shown. The http conversation (git's curl trace, headers only) gives status, Retry-After and Location without
asking the server a second time.
"""

import re
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from gitops_agent.errors import SourceError, SourceRefused, SourceUnavailable
from gitops_agent.source.address import Address, display

_TRACE = re.compile(r"^\d\d:\d\d:\d\d\.\d+ \S+:\d+\s+(.*)$")
_HEADER = re.compile(r"^<= Recv header(?:, \d+ bytes.*)?: *(.*)$")
_STATUS = re.compile(r"^HTTP/[0-9.]+ (\d{3})")
_SECRET_HEADER = re.compile(r"(?i)(authorization:\s*)\S.*")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_SHOWN_CHARACTERS = 600


class LocalFailure(SourceUnavailable):
    """A call on the mirror itself failed: it is damaged, or it lacks the object that was named."""


class Rule(NamedTuple):
    """When one of ``marks`` is in the text: what it means, how it is to be treated, and the way out."""

    marks: tuple[str, ...]
    meaning: str
    hint: str
    error: type[SourceError] = SourceUnavailable


RULES = (
    Rule(
        ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED", "host key is known"),
        "the host key is not the one in knownHosts",
        "verify the key of the host out of band, then correct the knownHosts file",
        SourceRefused,
    ),
    Rule(
        ("Permission denied (", "Permission denied, please try again"),
        "the key was not accepted",
        "check that sshKey is registered with the server and may read this repository",
    ),
    Rule(
        (
            "Authentication failed",
            "could not read Username",
            "could not read Password",
            "error: 401",
            "error: 403",
        ),
        "access was denied",
        "check the token (tokenFile or tokenEnv), its user name and its rights on this repository",
    ),
    Rule(
        ("error: 30",),
        "it redirects elsewhere, which is never followed",
        "set repo to the address the server redirects to, if you trust it",
        SourceRefused,
    ),
    Rule(
        ("certificate", "SSL", "TLS", "gnutls"),
        "the TLS certificate was not accepted",
        "correct the server's certificate, or point SSL_CERT_FILE at the CA that signed it",
        SourceRefused,
    ),
    Rule(
        ("fsck error", "error in object", "fatal: fsck", "unpacker error"),
        "it sent objects that git considers malformed or dangerous",
        "run git fsck --strict on the repository and repair what it names",
        SourceRefused,
    ),
    Rule(
        ("dubious ownership",),
        "it belongs to another user",
        "make this user the owner of the repository, or serve it over ssh or http",
    ),
    Rule(
        ("does not appear to be a git repository", "not found", "error: 404", "does not exist", "No such file"),
        "there is no repository that we may read",
        "check repo (--repo, GITOPS_AGENT_REPO) and, for a private one, the credentials",
    ),
    Rule(
        ("No space left on device", "File too large", "Disk quota exceeded"),
        "there is no room in the state directory",
        "free disk space or move the state directory (--state-dir)",
    ),
    Rule(("transport '",), "its protocol is not allowed", "use path, file, http, https or ssh", SourceRefused),
)
ANY = Rule((), "it did not answer as it should", "nothing that runs is changed; it is asked again")


def last_answer(stderr: str) -> dict[str, str]:
    """Status and headers (by their names in lower case) of the last http answer that git saw, if there was one."""
    found: dict[str, str] = {}
    for line in stderr.splitlines():
        traced = _TRACE.match(line)
        if header := _HEADER.match(traced[1]) if traced else None:
            name, _, value = header[1].partition(":")
            if status := _STATUS.match(header[1]):
                found = {"status": status[1]}
            else:
                found[name.lower()] = value.strip()
    return found


def retry_seconds(text: str, now: float) -> float | None:
    """Retry-After, given as seconds or as a date, in seconds from now; None when there is none."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def redact(text: str, secrets: Sequence[str]) -> str:
    """The text without secrets, trace lines and control characters."""
    lines = (line for line in text.splitlines() if line.strip() and not _TRACE.match(line))
    shown = _SECRET_HEADER.sub(r"\1***", "\n".join(lines))
    for secret in sorted(secrets, key=len, reverse=True):
        shown = shown.replace(secret, "***")
    shown = re.sub(r"//[^/\s@]*@", "//***@", shown)
    return _CONTROL.sub(" ", shown)


def explain(stderr: str, address: Address, secrets: Sequence[str], now: float) -> SourceError:
    """The error for a failed call to the remote."""
    text = redact(stderr, secrets)
    rule = next((rule for rule in RULES if any(mark in text for mark in rule.marks)), ANY)
    answer = last_answer(stderr)
    meaning = rule.meaning
    status, location = answer.get("status"), answer.get("location")
    if status in ("429", "502", "503", "504"):
        rule, meaning = ANY, f"it is overloaded or down (http status {status})"
    elif location and rule.error is SourceRefused:
        meaning += f" (to {redact(display(location), secrets)})"
    line = "; ".join(part.strip() for part in text.splitlines()) or "no message"
    shown = line if len(line) <= _SHOWN_CHARACTERS else "..." + line[3 - _SHOWN_CHARACTERS :]
    summary = f"repository {address.target}: {meaning}; git: {shown}"
    if rule.error is SourceUnavailable:
        after = retry_seconds(answer.get("retry-after", ""), now)
        return SourceUnavailable(summary, hint=rule.hint, retry_after=after)
    return rule.error(summary, hint=rule.hint)
