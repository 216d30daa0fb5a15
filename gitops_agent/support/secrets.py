"""Redaction: no secret leaves the process, whichever sink it tries.

Two nets. Known secrets are masked wherever they stand, also quoted, escaped or encoded. What merely looks
like one (a token in a URL, an Authorization header, ``password=…``, a PEM block) is masked by pattern.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from gitops_agent.support.text import escape_control

MASK = "***"
SHORTEST = 4  # masking shorter texts would blank out half of every sentence and hide nothing
_SHORT, _REMEMBERED = 120, 4096  # what is kept to save time
_LINE = 16  # a line of a multi-line secret that identifies it on its own

_WORD = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key"
    r"|credentials?|authorization|cookie|client[_-]?secret|webhook[_-]?url|dsn)"
)
_SECRET_NAME = re.compile(_WORD + r"s?$", re.IGNORECASE)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL),
        MASK,
    ),
    # user:password@ and token@ in a URL; the scheme and the host stay, they are what people look for.
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@'\"<>]+@", re.IGNORECASE), rf"\1{MASK}@"),
    (re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1\2{MASK}"),
    (re.compile(r"\b(authorization\s*[:=]\s*)(?!(?:bearer|basic)\s)[^\s,;'\"]+", re.IGNORECASE), rf"\1{MASK}"),
    (
        re.compile(
            rf"(\b[\w.-]{{0,60}}?{_WORD}s?\\?[\"']?\s*(?:=|:)\s*)"
            # Escaped, double or single quotes (the closing one may be cut off), or up to the next separator.
            r"(\\\"[^\"\\\n]*(?:\\\"|$)|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'[^'\n]*(?:'|$)|[^\s,;&'\"}\])]+)",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{MASK}",
    ),
    # Tokens that name themselves.
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abposr]-|sk-)[A-Za-z0-9_-]{8,}"), MASK),
)
# Most text holds nothing of the kind: one look decides, so that ten thousand agents stay cheap to print.
_HINT = re.compile(
    r"-----begin|://|bearer|basic|passw|passphrase|pwd|secret|token|key|credential|authorization|cookie"
    r"|webhook|dsn|gh[pousr]_|github_pat_|glpat-|xox|sk-",
    re.IGNORECASE,
)


def _forms(secret: str) -> Iterator[str]:
    """The secret as it may be written: raw, in a URL, in JSON, in a repr, made inert, in base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield secret.strip()
    yield quote(raw, safe="")
    yield quote_plus(raw)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield escape_control(secret)
    yield base64.b64encode(raw).decode().rstrip("=")
    yield base64.urlsafe_b64encode(raw).decode().rstrip("=")
    if "\n" in secret:
        yield from (line for line in secret.splitlines() if len(line) >= _LINE)


@lru_cache(4096)
def names_secret(name: str) -> bool:
    """Whether a field or variable of this name is likely to hold a secret (not a reference to one)."""
    return _SECRET_NAME.search(name) is not None


class Redactor:
    """Masks known secrets and what looks like one. ``text`` for strings, ``tree`` for JSON values."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._seen: dict[str, str] = {}
        self._forms: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Learn more secrets. Safe while other threads redact: they see the old net or the new one."""
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= SHORTEST}
        self._forms = self._forms | forms
        longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._seen = {}

    def __call__(self, text: str) -> str:
        """The same as ``text``: a redactor is a function from text to text."""
        return self.text(text)

    def text(self, text: str) -> str:
        """The text without secrets."""
        # Keys, reasons and shas come back thousands of times in one answer.
        seen = self._seen
        if (known := seen.get(text)) is not None:
            return known
        masked = self._masked(text)
        if len(text) <= _SHORT and len(seen) < _REMEMBERED:
            seen[text] = masked
        return masked

    def _masked(self, text: str) -> str:
        text = self._mask_known(text)
        if _HINT.search(text) is None:
            return text
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return self._mask_known(text)

    def clean(self, text: str) -> str:
        """One line without secrets and without tricks: what every rendering of foreign text should use."""
        return escape_control(self(text))

    def tree(self, value: Any, name: str = "") -> Any:
        """A JSON value without secrets; a string under a name like ``password`` is masked whatever it is."""
        if isinstance(value, str):
            return MASK if value and names_secret(name) else self(value)
        if isinstance(value, Mapping):
            hint = _named_value(value)
            return {
                (self(key) if isinstance(key, str) else key): self.tree(
                    item, hint if hint and key in _VALUES else str(key)
                )
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.tree(item, name) for item in value]
        return value

    def _mask_known(self, text: str) -> str:
        # Again until nothing is left: a mask can join its neighbours into another secret. Each round shortens
        # the text (no form is as short as the mask), so this ends.
        while self._known is not None and self._known.search(text):
            text = self._known.sub(MASK, text)
        return text


_VALUES = frozenset({"value", "before", "live", "git"})  # keys whose value a neighbour names


def _named_value(value: Mapping[Any, Any]) -> str:
    """The name a value goes by: ``{name: …, value: …}`` of env, ``{path: …, value: …, before: …}`` of a patch,
    ``{path: …, live: …, git: …}`` of a drift."""
    name = value.get("name") or value.get("path") if not _VALUES.isdisjoint(value) else None
    return name if isinstance(name, str) else ""
