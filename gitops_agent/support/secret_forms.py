"""Every cheap way in which a known secret may be written down: raw, escaped, in a URL, encoded, line by line."""

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from gitops_agent.support.text import escape_control

SHORTEST_FORM = 4
"""Masking shorter texts would blank out half of every sentence and hide nothing."""

_SHORTEST_BASE64 = 6  # fewer letters are found in ordinary words


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
    yield repr(secret)[1:-1]
    yield escape_control(secret)


def _encoded(raw: bytes) -> Iterator[str]:
    yield from (quote(raw, safe=""), quote(raw), quote_plus(raw), raw.hex())
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
