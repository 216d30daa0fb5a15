"""Hides resolved secrets in what a command says, before it reaches conditions, the journal or pushed notes."""

from __future__ import annotations

import base64
import json
import os
import urllib.parse
from collections.abc import Iterable, Iterator

SHOWN = b"***"
PART = 4  # a line of a secret that is shorter (a brace, a blank) says nothing and is everywhere
ENCODED = 6  # the same for the part of an encoded secret that does not depend on what stands before it


class Mask:
    """Knows every form in which some secrets may turn up."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {os.fsencode(secret) for secret in secrets if secret}
        self._forms = {form for value in values for form in _forms(value)}
        self.longest = max(map(len, self._forms), default=0)

    def hide(self, data: bytes, cap: int) -> bytes:
        """The first ``cap`` bytes with the secrets hidden. Give ``longest`` bytes more, where there are more: a
        secret across the cut is then seen whole, and hidden."""
        parts: list[bytes] = []
        done = 0
        for start, end in self._spans(data, cap):
            if start > done or not parts:
                parts += [data[done:start], SHOWN]
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
    """How much of a secret stands at the very end: a command may be ended in the middle of it."""
    most = min(len(form) - 1, len(data))
    return next((size for size in range(most, PART - 1, -1) if data.endswith(form[:size])), 0)


def _forms(value: bytes) -> Iterator[bytes]:
    yield value
    yield from (line for raw in value.splitlines() if len(line := raw.strip()) >= PART)
    yield from (form for form in _encoded(value) if len(form) >= ENCODED)


def _encoded(value: bytes) -> Iterator[bytes]:
    """As programs print values that they escape, or send in a header."""
    text = os.fsdecode(value)
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
    yield urllib.parse.quote_from_bytes(value, safe="").encode()
    yield urllib.parse.quote_from_bytes(value).encode()
    yield value.hex().encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):  # behind other text ("user:secret") the same bytes fall on other letters
            letters = encode(b"\0" * before + value).rstrip(b"=")
            whole = (before + len(value)) * 8 // 6  # the last letter may depend on what follows
            yield letters[(before * 8 + 5) // 6 : whole]
    letters = base64.b64encode(value)
    for width in (64, 76):  # as tools break it into lines
        yield from (letters[at : at + width] for at in range(0, len(letters), width))
