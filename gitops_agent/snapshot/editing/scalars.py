"""How a JSON value is written into YAML: the way its author wrote the one before, as far as it can be. Pure."""

import json
import re
from typing import Any

# Words that every reading of YAML takes for text, and nothing that could be a number, a date or a boolean.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+-]*(?: [A-Za-z0-9_/.+-]+)*\Z")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_HEADER = re.compile(r"[|>][+0-9-]*")


def scalar(value: Any, style: str) -> str:
    """A value on one line. ``style`` is the quote of the value before, or nothing."""
    if not isinstance(value, str):
        return flow(value)
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return value if style == "" and _is_plain(value) else _quoted(value)


def flow(value: Any) -> str:
    """A value on one line, in brackets where it has parts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(name, '')}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value, "") if isinstance(value, str) else json.dumps(value)


def block(old: str, value: Any, indent: int) -> str:
    """A value in place of a block scalar (``| …``): a block again when it is text that a block can hold.

    What follows the header on its line, and the empty lines after the text, stay.
    """
    body = old.rstrip("\n")
    tail = old[len(body) :]
    header, _, rest = body.partition("\n")
    remark = header[len(match.group()) :] if (match := _HEADER.match(header)) else ""
    if not _fits_block(value):
        return scalar(value, '"') + remark + tail
    first = next((line for line in rest.split("\n") if line.strip()), "")
    depth = max(len(first) - len(first.lstrip(" ")), indent + 1)
    text = value.removesuffix("\n")
    lines = [" " * depth + line if line else "" for line in text.split("\n")]
    sign = "|" if value.endswith("\n") else "|-"
    return "\n".join([sign + remark, *lines]) + (tail or ("\n" if value.endswith("\n") else ""))


def _fits_block(value: Any) -> bool:
    """Whether a literal block says exactly this text: visible characters, no space or line at its edges."""
    if not isinstance(value, str) or not value.strip():
        return False
    text = value.removesuffix("\n")
    visible = all(line.isprintable() and not line.endswith(" ") for line in text.split("\n"))
    return visible and not text.startswith((" ", "\n")) and not text.endswith("\n")


def _is_plain(value: str) -> bool:
    return _PLAIN.match(value) is not None and value.lower() not in _WORDS


def _quoted(value: str) -> str:
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return _SHORT.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
