"""Redaction: no secret leaves the process, whichever way it takes.

Two nets. Known secrets are masked wherever they stand, also quoted, escaped or encoded (``secret_forms``). What
merely looks like one (a token in a URL, an Authorization header, ``password=…``, a PEM block) is known by pattern:
``looks_secret`` is for refusing what is written, with few false alarms; ``mask_patterns`` is for showing: rather
one mask too many.
"""

import base64
import json
import re
import shlex
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any
from urllib.parse import quote, quote_plus

from pydantic import StringConstraints, TypeAdapter

from gitops_agent.support.text import escape_control

# -- what looks like a secret

MASK = "***"

SHORTEST_TOKEN = 16
"""No known kind of credential has fewer characters."""

_TOKENS = r"""
      \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}        # model providers, payment providers
    | \bgh[pousr]_[A-Za-z0-9]{20,}                # forges
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}             # chat
    | \b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b               # clouds
    | \bAIza[0-9A-Za-z_-]{35}
    | \bhvs\.[A-Za-z0-9_-]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # signed tokens
"""
_LITERAL = re.compile(
    rf"""
    (?!\b[spr]k(?:[-_][a-z]{{1,15}})+(?![A-Za-z0-9_-]))(?:{_TOKENS})     # words with dashes are a name, no token
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
    # A password in a URL; what only stands for one is none: <password>, ${{PASSWORD}}, $PASSWORD, ***
    | \b[a-z][a-z0-9+.-]{{1,20}}://[^\s/:@]{{1,256}}:(?!(?:<[^>]*>|\$?\{{[^}}]*\}}|\$\w+|\*+)@)[^\s/@]{{1,256}}@
    """,
    re.VERBOSE,
)
# A net with wider meshes than that of all the above, but many times faster: it is cast over every document.
# Two of them, because what has no fixed text to look for slows down what has.
_SUSPECTS = (
    r"[spr]k[-_][A-Za-z0-9_-]{16}|gh[pousr]_[A-Za-z0-9]{20}|github_pat_|glpat-|xox[abeprs]-"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza|hvs\.|eyJ[A-Za-z0-9_-]{8,}\.|-----BEGIN |://[^\s/:@]{1,256}:[^\s/@]{1,256}@",
    r"[0-9]{8}:[A-Za-z0-9_-]{35}",
)
_has_suspect, _has_number_suspect = (
    TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)]).validator.isinstance_python
    for pattern in _SUSPECTS
)
_WORD = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key"
    r"|credentials?|authorization|cookie|client[_-]?secret|webhook[_-]?url|dsn)"
)
_SECRET_NAME = re.compile(_WORD + r"s?$", re.IGNORECASE)
_NAMED = (
    "passw", "passphrase", "pwd", "secret", "token", "key", "credential", "authorization", "cookie",
    "webhook", "dsn",
)  # fmt: skip
_PREFIXES = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "sk-", "sk_", "pk-", "pk_", "rk-",
    "rk_", "akia", "asia", "aiza", "hvs.", "eyj",
)  # fmt: skip
# What is masked: text without which a pattern cannot match, in lower case; the pattern; what stands in its place.
# Most text holds nothing of the kind, and a search for fixed text is many times cheaper than an expression that
# ignores case: so ten thousand agents stay cheap to print.
_MASKED: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("-----begin",),
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL),
        MASK,
    ),
    # user:password@ and token@ in a URL; the scheme and the host stay, they are what people look for.
    (("://",), re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@'\"<>]+@", re.IGNORECASE), rf"\1{MASK}@"),
    (
        ("bearer", "basic"),
        re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
        rf"\1\2{MASK}",
    ),
    (
        ("authorization",),
        re.compile(r"\b(authorization\s*[:=]\s*)(?!(?:bearer|basic)\s)[^\s,;'\"]+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    (
        _NAMED,
        re.compile(
            rf"(\b[\w.-]{{0,60}}?{_WORD}s?\\?[\"']?\s*(?:=|:)\s*)"
            # Escaped, double or single quotes (the closing one may be cut off), or up to the next separator.
            r"(\\\"[^\"\\\n]*(?:\\\"|$)|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'[^'\n]*(?:'|$)|[^\s,;&'\"}\])]+)",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{MASK}",
    ),
    # Tokens that name themselves, also when they are cut.
    (_PREFIXES, re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abposr]-|sk-)[A-Za-z0-9_-]{8,}"), MASK),
    ((*_PREFIXES, ":"), re.compile(_TOKENS, re.VERBOSE), MASK),
)


# Any of those texts at once: a fifth of what looking for one after the other takes, and nearly all text ends here.
_HINT = re.compile(
    "|".join(sorted({re.escape(hint) for hints, *_ in _MASKED for hint in hints if hint != ":"})) + "|[0-9]{8}:"
)


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a known kind of credential."""
    return len(text) >= SHORTEST_TOKEN and _LITERAL.search(text) is not None


def secret_line(text: str) -> int:
    """The line, from 1, where a text first has the form of a known kind of credential; 0 when it has none."""
    found = _LITERAL.search(text) if may_hold_secret(text) else None
    return 0 if found is None else text.count("\n", 0, found.start()) + 1


def may_hold_secret(text: str | bytes) -> bool:
    """Whether a closer look is due: never False for what ``looks_secret``, also inside JSON."""
    return _has_suspect(text) or _has_number_suspect(text)


@lru_cache(4096)
def names_secret(name: str) -> bool:
    """Whether a field or variable of this name is likely to hold a secret (not a reference to one)."""
    return _SECRET_NAME.search(name) is not None


def mask_patterns(text: str) -> str:
    """The text with everything masked that looks like a secret."""
    folded = text.casefold()
    if _HINT.search(folded) is None:
        return text
    for hints, pattern, replacement in _MASKED:
        if any(hint in folded for hint in hints):
            text = pattern.sub(replacement, text)
    return text


# -- how a known secret may be written down

SHORTEST_FORM = 4
"""Masking shorter texts would blank out half of every sentence and hide nothing."""

SHORTEST_LEARNED = 6
"""A value that an agent gets by reference counts as a secret from this length on. People keep settings in the same
place (``info``, ``5432``, ``true``), and hiding those words everywhere would make every report unreadable."""

_SHORTEST_BASE64 = 6  # fewer letters are found in ordinary words
_ESCAPED_BYTE = re.compile("%[0-9A-F]{2}")


def secret_forms(secret: str, *, shortest_line: int) -> Iterator[str]:
    """The secret as it may turn up in text; a line of it counts alone from ``shortest_line`` characters on."""
    yield secret
    yield secret.strip()
    yield from (line for raw in secret.splitlines() if len(line := raw.strip()) >= shortest_line)
    for form in (*_escaped(secret), *_encoded(to_bytes(secret))):
        if len(form) >= SHORTEST_FORM:
            yield form


def to_bytes(text: str) -> bytes:
    """The text in UTF-8; bytes that came in as lone surrogates (environment, file names) as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _escaped(secret: str) -> Iterator[str]:
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    yield repr(secret)[1:-1]
    yield shlex.quote(secret)
    yield escape_control(secret)


def _encoded(raw: bytes) -> Iterator[str]:
    for form in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield from (form, _ESCAPED_BYTE.sub(lambda found: found[0].lower(), form))
    yield from (raw.hex(), raw.hex().upper())
    yield from (form for form in _base64(raw) if len(form) >= _SHORTEST_BASE64)


def _base64(raw: bytes) -> Iterator[str]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode().rstrip("=")
        for before in range(3):  # behind other text ("user:secret") the same bytes fall on other letters
            letters = encode(b"\0" * before + raw).decode().rstrip("=")
            whole = (before + len(raw)) * 8 // 6  # the last letter may depend on what follows
            yield letters[(before * 8 + 5) // 6 : whole]
    letters = base64.b64encode(raw).decode()
    for width in (64, 76):  # as tools break it into lines
        yield from (letters[at : at + width] for at in range(0, len(letters), width))


# -- what hides them

_VALUES = frozenset({"value", "before", "live", "git"})  # keys whose value a neighbour names

_CACHED_LENGTH, _CACHED_TEXTS = 120, 4096
_SHORTEST_LINE = 16  # a line of a secret that identifies it on its own, in text of any origin
_SHORTEST_OUTPUT_LINE = 4  # the same in the output of a program that was given the secret


class Redactor:
    """Masks known secrets and what looks like one: a function from text to text; ``tree`` is for JSON values.

    One object per process: whatever resolves a secret adds it, and whatever shows or keeps text asks it. Safe to
    share between threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._seen: dict[str, str] = {}
        self._secrets: set[str] = set()
        # The forms of all secrets by how they begin, the longest first. One expression of all of them would try
        # each at every letter; so a text costs the same whether ten secrets are known or ten thousand.
        self._forms: dict[str, list[str]] = {}
        self._lock = Lock()
        self.add(*secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Learn the secrets of agents, apart from values that are too short for one; cheap for what is known."""
        self.add(*(secret for secret in secrets if len(secret.strip()) >= SHORTEST_LEARNED))

    def add(self, *secrets: str) -> None:
        """Learn more secrets."""
        new = [secret for secret in secrets if secret not in self._secrets]
        if not new:
            return
        with self._lock:
            for secret in new:
                for form in set(secret_forms(secret, shortest_line=_SHORTEST_LINE)):
                    if len(form) >= SHORTEST_FORM:
                        alike = self._forms.setdefault(form[:SHORTEST_FORM], [])
                        if form not in alike:
                            insort(alike, form, key=lambda each: -len(each))
                self._secrets.add(secret)
            # A thread that is at work writes what it finds into the map it began with.
            self._seen = {}

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        # Keys, reasons and shas come back thousands of times in one answer.
        seen = self._seen
        if (known := seen.get(text)) is not None:
            return known
        known_masked = self._mask_known(text)
        masked = mask_patterns(known_masked)
        if masked != known_masked:
            masked = self._mask_known(masked)
        if len(text) <= _CACHED_LENGTH and len(seen) < _CACHED_TEXTS:
            seen[text] = masked
        return masked

    def tree(self, value: Any, name: str = "") -> Any:
        """A JSON value without secrets; a string under a name like ``password`` is masked whatever it is."""
        if isinstance(value, str):
            return MASK if value and names_secret(name) else self(value)
        if isinstance(value, dict | Mapping):
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
        while self._forms and (spans := self._spans(text)):
            ends = [0, *(end for _, end in spans)]
            begins = [*(begin for begin, _ in spans), len(text)]
            text = MASK.join(text[end:begin] for end, begin in zip(ends, begins, strict=True))
        return text

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where known secrets stand, from left to right; of two that begin alike the longer one."""
        forms, spans, done = self._forms, list[tuple[int, int]](), 0
        begins = [at for at in range(len(text) - SHORTEST_FORM + 1) if text[at : at + SHORTEST_FORM] in forms]
        for begin in begins:
            alike = forms[text[begin : begin + SHORTEST_FORM]] if begin >= done else ()
            if (form := next((each for each in alike if text.startswith(each, begin)), None)) is not None:
                done = begin + len(form)
                spans.append((begin, done))
        return spans


def _named_value(value: Mapping[Any, Any]) -> str:
    """The name a value goes by: ``{name: …, value: …}`` of env, ``{path: …, value: …, before: …}`` of a patch,
    ``{path: …, live: …, git: …}`` of a drift."""
    name = value.get("name") or value.get("path") if not _VALUES.isdisjoint(value) else None
    return name if isinstance(name, str) else ""


class OutputMask:
    """Hides known secrets in the first bytes that a program printed, also one that is cut at the end."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {
            form
            for secret in secrets
            if secret
            for form in secret_forms(secret, shortest_line=_SHORTEST_OUTPUT_LINE)
        }
        self._forms = {to_bytes(form) for form in known if form}
        self.longest = max(map(len, self._forms), default=0)

    def hide(self, data: bytes, cap: int) -> bytes:
        """The first ``cap`` bytes with the secrets hidden. Give ``longest`` bytes more, where there are more: a
        secret across the cut is then seen whole, and hidden."""
        parts: list[bytes] = []
        done = 0
        for start, end in self._spans(data, cap):
            if start > done or not parts:
                parts += [data[done:start], MASK.encode()]
            done = max(done, end)
        return b"".join([*parts, data[done:cap]])

    def _spans(self, data: bytes, cap: int) -> list[tuple[int, int]]:
        """Where a secret stands that begins before the cut, in order; they may overlap."""
        found = []
        for form in self._forms:
            start = data.find(form)
            while 0 <= start < cap:
                found.append((start, start + len(form)))
                start = data.find(form, start + 1)
            begun = len(data) - _begun(form, data)
            if begun < min(cap, len(data)):
                found.append((begun, len(data)))
        return sorted(found)


def _begun(form: bytes, data: bytes) -> int:
    """How many bytes of a secret stand at the very end: a program may be ended in the middle of it."""
    most = min(len(form) - 1, len(data))
    return next((size for size in range(most, SHORTEST_FORM - 1, -1) if data.endswith(form[:size])), 0)
