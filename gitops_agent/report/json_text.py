"""JSON as we print it: readable, and inert on a terminal without losing a byte."""

import json
from typing import Any

import orjson

from gitops_agent.support.text import is_harmless


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
    # The only bare line breaks in a dump are its own; those of strings are escaped already.
    return "".join(char if char == "\n" or is_harmless(char) else json.dumps(char)[1:-1] for char in text)
