"""JSON as we print it: readable, and inert on a terminal without losing a byte."""

import json
import unicodedata
from typing import Any

import orjson


def dump_json(value: Any) -> str:
    """A JSON document for stdout. Characters a terminal could obey are escaped, which parsers undo."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:
        # Lone surrogates (bytes of a file name that are not UTF-8) and very large numbers: slower, but possible.
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return _escaped(text)


def dump_line(value: Any) -> str:
    """The same on one line, for logs."""
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return "".join(json.dumps(char)[1:-1] if _risky(char) else char for char in text)


def _risky(char: str) -> bool:
    # The only bare line breaks in a dump are its own; those of strings are escaped already.
    return char != "\n" and not char.isprintable() and unicodedata.category(char) != "Zs"
