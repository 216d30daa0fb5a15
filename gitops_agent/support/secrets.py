"""Redaction: no secret leaves the process, whichever way it takes.

Two nets. Known secrets are masked wherever they stand, also quoted, escaped or encoded (``secret_forms``). What
merely looks like one (a token in a URL, an Authorization header, ``password=…``, a PEM block) is masked by pattern
(``secret_patterns``).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gitops_agent.support.secret_forms import SHORTEST_FORM, secret_forms, to_bytes
from gitops_agent.support.secret_patterns import MASK, looks_secret, mask_patterns, names_secret

__all__ = ["MASK", "SHORTEST_FORM", "OutputMask", "Redactor", "looks_secret", "names_secret"]

_VALUES = frozenset({"value", "before", "live", "git"})  # keys whose value a neighbour names

_CACHED_LENGTH, _CACHED_TEXTS = 120, 4096
_SHORTEST_LINE = 16  # a line of a secret that identifies it on its own, in text of any origin
_SHORTEST_OUTPUT_LINE = 4  # the same in the output of a program that was given the secret


class Redactor:
    """Masks known secrets and what looks like one: a function from text to text; ``tree`` is for JSON values."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._seen: dict[str, str] = {}
        self._forms: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Learn more secrets. Safe while other threads redact: they see the old net or the new one."""
        forms = {form for secret in secrets for form in secret_forms(secret, shortest_line=_SHORTEST_LINE)}
        self._forms = self._forms | {form for form in forms if len(form) >= SHORTEST_FORM}
        longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
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
        while self._known is not None and self._known.search(text):
            text = self._known.sub(MASK, text)
        return text


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
