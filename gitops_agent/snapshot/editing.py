"""Change single values of a document in place: every other byte of the file stays as its author wrote it.

A position-aware parser says where the value stands; only that range of characters is replaced, or one key is
inserted beside its neighbours, in the style of the author as far as it can be. Afterwards the file is read again
by the parser that decides what documents say: when anything else than the wanted value differs, or the document is
not valid any more, nothing is changed.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from gitops_agent.model.fields import canonical
from gitops_agent.model.finding import errors
from gitops_agent.settings import Limits
from gitops_agent.snapshot import yaml_text_guard as texts
from gitops_agent.snapshot.codes import Invalid
from gitops_agent.snapshot.positions import Locator, compose
from gitops_agent.snapshot.schema import Documents, check
from gitops_agent.snapshot.yaml_documents import Document, FileParser

Path = tuple[str, ...]
Values = Mapping[Path, Any]

_COLON = re.compile(r"[ \t]*:(?=[ \t\n,}]|\Z)")
_REST_OF_LINE = re.compile(r"[^\n]*")
_HEADER = re.compile(r"[|>][+0-9-]*")
# Words that every reading of YAML takes for text, and nothing that could be a number, a date or a boolean.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+-]*(?: [A-Za-z0-9_/.+-]+)*\Z")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class CannotEdit(Exception):
    """The value cannot be changed without touching what is its author's. The message is the reason."""


class _Splice(NamedTuple):
    """Characters to be replaced."""

    start: int
    end: int
    text: str


def edited(data: bytes, line: int, values: Values, limits: Limits, documents: Documents) -> bytes:
    """The file with the values at some paths of the document that begins at a line; CannotEdit otherwise.

    ``documents``: the models by which the result is judged, with what the drivers add to them.
    """
    before = _parsed(data, limits)
    position = next((at for at, document in enumerate(before) if document.line == line), None)
    if position is None:
        raise CannotEdit(f"no document begins at line {line} any more")
    wanted = [orjson.loads(document.raw) for document in before]
    content = data
    for path, value in values.items():
        content = _with(content, line, path, value)
        _put(wanted[position], path, value)
    after = _parsed(content, limits)
    if [canonical(value) for value in wanted] != [canonical(orjson.loads(document.raw)) for document in after]:
        raise CannotEdit("the result would not read as it should")
    try:
        check(after[position].raw, after[position].kind, documents)
    except Invalid as invalid:
        issue = invalid.issues[0]
        where = ".".join(map(str, issue.loc))
        raise CannotEdit(f"the live value is not valid in a document ({where}: {issue.summary})") from None
    return content


def value_at(document: Any, path: Path) -> Any:
    """The value at a path; KeyError when there is none."""
    for step in path:
        if not isinstance(document, dict):
            raise KeyError(step)
        document = document[step]
    return document


def _parsed(data: bytes, limits: Limits) -> list[Document]:
    documents, findings = FileParser(limits, Locator(0)).parse("", data)
    if wrong := errors(findings):
        raise CannotEdit(f"the file is not valid: {wrong[0].summary}")
    return documents


def _put(document: Any, path: Path, value: Any) -> None:
    *parents, name = path
    for step in parents:
        if not isinstance(document.get(step), dict):
            document[step] = {}
        document = document[step]
    document[name] = value


def _with(data: bytes, line: int, path: Path, value: Any) -> bytes:
    """The file with one value changed. Lines may end in any way: positions are those of the text as parsed."""
    plain = texts.decoded(data)
    document = next(document.text for document in texts.split(plain) if document.line == line)
    offset = sum(len(each) + 1 for each in plain.split("\n")[: line - 1])
    splice = _splice(document, path, value)
    content = data.decode("utf-8")
    mark = texts.BYTE_ORDER_MARK if content.startswith(texts.BYTE_ORDER_MARK) else ""
    content = content[len(mark) :]
    # Each pair of carriage return and line feed was one character of the text as parsed.
    pairs = [match.start() - at for at, match in enumerate(re.finditer("\r\n", content))]
    start, end = (spot + bisect_left(pairs, spot) for spot in (splice.start + offset, splice.end + offset))
    written = splice.text.replace("\n", "\r\n") if pairs else splice.text
    return (mark + content[:start] + written + content[end:]).encode("utf-8")


def _splice(text: str, path: Path, value: Any) -> _Splice:
    """What to replace in a document so that it has a value at a path."""
    node = compose(text)
    if node is None:
        raise CannotEdit("the places of its values cannot be found")
    for at, step in enumerate(path):
        if node.anchor is not None:
            raise CannotEdit(f"{'.'.join(path[:at])} is shared by a YAML anchor and its aliases")
        if not isinstance(node, MappingNode):
            raise CannotEdit(f"{'.'.join(path[:at])} is not a map")
        nested = _nested(path[at + 1 :], value)
        pair = next((pair for pair in node.value if pair[0].value == step), None)
        if pair is None:
            return _insert(text, node, step, nested)
        key, node = pair
        if _is_empty(node) and node.anchor is None:
            return _fill(text, key, nested)
    return _replace(text, node, path, value)


def _nested(rest: Path, value: Any) -> Any:
    for step in reversed(rest):
        value = {step: value}
    return value


def _replace(text: str, node: Node, path: Path, value: Any) -> _Splice:
    start, end = node.start_mark.index, node.end_mark.index
    if node.anchor is not None:
        raise CannotEdit(f"{'.'.join(path)} is shared by a YAML anchor and its aliases")
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        line = text[text.rfind("\n", 0, start) + 1 : start]
        return _Splice(start, end, _block(text[start:end], value, len(line) - len(line.lstrip(" "))))
    if isinstance(node, ScalarNode):
        return _Splice(start, end, _scalar(value, node.style or ""))
    if not _is_flow(node):
        raise CannotEdit(f"{'.'.join(path)} is a list or map over several lines, perhaps with comments of its own")
    if "#" in text[start:end]:
        raise CannotEdit(f"{'.'.join(path)} may hold comments of its own")
    return _Splice(start, end, _flow(value))


def _fill(text: str, key: Node, value: Any) -> _Splice:
    """Give a value to a key that has none."""
    colon = _COLON.match(text, key.end_mark.index)
    if colon is None:
        raise CannotEdit(f"the key {key.value} is written in a way that leaves no room for a value")
    return _Splice(colon.end(), colon.end(), " " + _flow(value))


def _insert(text: str, parent: MappingNode, name: str, value: Any) -> _Splice:
    """Add a key to a map, beside a neighbour that ends where its line does."""
    added = f"{_scalar(name, '')}: {_flow(value)}"
    if _is_flow(parent):
        last = parent.value[-1][1] if parent.value else None
        if last is not None and not _is_empty(last):
            return _Splice(last.end_mark.index, last.end_mark.index, f", {added}")
        start = parent.start_mark.index + 1
        return _Splice(start, start, f"{added}, " if last is not None else added)
    column = parent.value[0][0].start_mark.column
    neighbour = next((pair for pair in reversed(parent.value) if _is_on_one_line(pair, column)), None)
    if neighbour is not None:
        rest = _REST_OF_LINE.match(text, neighbour[1].end_mark.index)
        assert rest is not None
        return _Splice(rest.end(), rest.end(), f"\n{' ' * column}{added}")
    first = parent.value[0][0].start_mark.index
    if text[text.rfind("\n", 0, first) + 1 : first].strip(" "):
        raise CannotEdit(f"there is no line of its own for {name}")
    return _Splice(first, first, f"{added}\n{' ' * column}")


def _is_on_one_line(pair: tuple[Node, Node], column: int) -> bool:
    key, value = pair
    simple = isinstance(value, ScalarNode) and value.style not in ("|", ">") and not _is_empty(value)
    same = key.start_mark.line == value.start_mark.line == value.end_mark.line
    return bool((simple or _is_flow(value)) and same and key.start_mark.column == column)


def _is_flow(node: Node) -> bool:
    """Whether it is a list or map in brackets."""
    return isinstance(node, CollectionNode) and bool(node.flow_style)


def _is_empty(node: Node) -> bool:
    """Whether nothing at all is written where the value should be (its position is then somewhere else)."""
    return isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index


def _scalar(value: Any, style: str) -> str:
    """A value on one line. ``style`` is the quote of the value before, or nothing."""
    if not isinstance(value, str):
        return _flow(value)
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style == "" and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _flow(value: Any) -> str:
    """A value on one line, in brackets where it has parts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(name, '')}: {_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value, "") if isinstance(value, str) else json.dumps(value)


def _block(old: str, value: Any, indent: int) -> str:
    """A value in place of a block scalar (``| …``): a block again when it is text that a block can hold.

    What follows the header on its line, and the empty lines after the text, stay.
    """
    body = old.rstrip("\n")
    tail = old[len(body) :]
    header, _, rest = body.partition("\n")
    remark = header[len(match.group()) :] if (match := _HEADER.match(header)) else ""
    if not _fits_block(value):
        return _scalar(value, '"') + remark + tail
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


def _escaped(char: str) -> str:
    if char.isprintable() and char not in _SHORT:
        return char
    return _SHORT.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
