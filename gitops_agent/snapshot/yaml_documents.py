"""Bytes in, documents out. The fast parser alone decides what a document says; its traps are closed here.

Ours (``apiVersion: gitops-agent.dev/…``) are judged strictly; foreign ones must only parse. What leaves this
module is JSON: text keys, finite numbers, no dates, bounded depth.
"""

import math
import re
from typing import Any, NamedTuple

import orjson
import yaml_rs

from gitops_agent.model.document import API_VERSION
from gitops_agent.model.finding import Finding
from gitops_agent.settings import Limits
from gitops_agent.snapshot import yaml_text_guard as texts
from gitops_agent.snapshot.codes import Code, FilePosition, error, shown, warning
from gitops_agent.snapshot.foreign import foreign_finding, is_ours
from gitops_agent.snapshot.positions import Locator, Positions, Spot

_WHERE = re.compile(r"line (\d+), column (\d+)")
_MASK = "\ue000"
_STRICT = yaml_rs.DuplicateKeyPolicy.Error
_LENIENT = yaml_rs.DuplicateKeyPolicy.LastWins
_REPLAYED = yaml_rs.AliasLimits(max_total_replayed_events=100_000)


class Document(NamedTuple):
    """One document of ours: its first line, and its value as JSON bytes."""

    line: int
    version: str
    kind: str
    raw: bytes


class Unreadable(Exception):
    """The parser refused the text; ``line`` and ``column`` are relative to it."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class FileParser:
    """Parses one file after the other and keeps nothing but the limits."""

    def __init__(self, limits: Limits, locator: Locator) -> None:
        self._limits = limits
        self._locator = locator

    def parse(self, path: str, data: bytes) -> tuple[list[Document], list[Finding]]:
        """The documents of ours in a file, and every finding about the file."""
        if (document := self._plain(data)) is not None:
            return [document], []
        findings: list[Finding] = []
        content = self._decode(path, data, findings)
        if content is None:
            return [], findings
        parts = texts.split(content)
        if len(parts) > self._limits.documents:
            summary = f"{len(parts)} documents in one file; at most {self._limits.documents} are read"
            place = FilePosition(path, parts[self._limits.documents].line)
            return [], [
                error(Code.TOO_MANY_DOCUMENTS, place, summary, "Split the file, or raise limits.documents.")
            ]
        suspect = texts.has_control_bytes(data) or not content.isascii()
        read = (self._document(path, part, suspect, findings) for part in parts)
        documents = [document for document in read if document is not None]
        return documents, findings if documents or findings else [_empty(path)]

    def _plain(self, data: bytes) -> Document | None:
        """The one document of ours in a file that needs no closer look. None: it needs one."""
        try:
            text = data.decode("utf-8")
            if len(data) > self._limits.file_bytes or not texts.is_plain(data, text):
                return None
            value = _parse(text, _STRICT)
        except (UnicodeDecodeError, yaml_rs.YAMLDecodeError, Unreadable):
            return None
        if type(value) is not dict or value.get("apiVersion") != API_VERSION or type(value.get("kind")) is not str:
            return None
        raw = _plain_json(value, self._limits.depth)
        return None if raw is None else Document(1, API_VERSION, value["kind"], raw)

    def _decode(self, path: str, data: bytes, findings: list[Finding]) -> str | None:
        if len(data) > self._limits.file_bytes:
            findings.append(too_large(path, len(data), self._limits.file_bytes))
            return None
        try:
            content = data.decode("utf-8")
        except UnicodeDecodeError as problem:
            findings.append(not_utf8(path, data, problem.start))
            return None
        content = content.removeprefix(texts.BYTE_ORDER_MARK)
        return content.replace("\r\n", "\n").replace("\r", "\n") if "\r" in content else content

    def _document(
        self, path: str, part: texts.DocumentText, suspect: bool, findings: list[Finding]
    ) -> Document | None:
        if not texts.is_safe(part.text):
            summary = "nested too deep to be parsed safely"
            findings.append(
                error(Code.TOO_DEEP, FilePosition(path, part.line), summary, _deep(self._limits.depth))
            )
            return None
        try:
            value, repeated = _read(part.text)
        except Unreadable as problem:
            findings.append(
                self._syntax(FilePosition(path, part.line + problem.line - 1, problem.column), problem.reason)
            )
            return None
        if value is None:
            return None
        if not is_ours(value):
            findings.append(foreign_finding(path, part, value, self._locator))
            return None
        return self._ours(path, part, (value, suspect, repeated), findings)

    def _syntax(self, place: FilePosition, reason: str) -> Finding:
        if "recursion limit" in reason:
            return error(Code.TOO_DEEP, place, "nested too deep to be parsed", _deep(self._limits.depth))
        way_out = "Correct the syntax, or list the file in .gitopsignore if it is not for gitops-agent."
        return error(Code.INVALID_YAML, place, f"not valid YAML: {reason}", way_out)

    def _ours(
        self,
        path: str,
        part: texts.DocumentText,
        read: tuple[dict[str, Any], bool, bool],
        findings: list[Finding],
    ) -> Document | None:
        """A document of ours, once its text keeps the rules that foreign ones need not keep."""
        value, suspect, repeated = read
        kind = value.get("kind")
        rules = _TextRules(path, part, self._locator, findings)
        if repeated:
            rules.duplicates()
        if suspect:
            rules.control_characters()
        if texts.may_have_properties(part.text):
            rules.properties(value, self._limits.aliases)
        if "<<" in part.text and _has_key(value, "<<"):
            rules.merge_keys()
        if "%" in part.text:
            rules.directives()
        raw = rules.json(value, self._limits.depth)
        if raw is None:
            return None
        return Document(part.line, value["apiVersion"], kind if isinstance(kind, str) else "", raw)


class _TextRules:
    """Collects the findings about the text of one document of ours."""

    def __init__(self, path: str, part: texts.DocumentText, locator: Locator, findings: list[Finding]) -> None:
        self._path = path
        self._part = part
        self._locator = locator
        self._findings = findings
        self._positions: Positions | None = None

    def duplicates(self) -> None:
        """Two equal keys in one mapping."""
        repeated = self._located().duplicates()
        for key, first, again in repeated:
            summary = f"key {shown(key)} stands twice: lines {first.line} and {again.line}"
            self._error(Code.DUPLICATE_KEY, again, summary, "Keep one of them; which one would hold is a guess.")
        if not repeated:
            self._error(
                Code.DUPLICATE_KEY, self._located().start, "a key stands twice in one mapping", "Keep one."
            )

    def control_characters(self) -> None:
        """Characters that terminals obey and people do not see."""
        found = texts.control_character(self._part.text)
        if found is None:
            return
        before = self._part.text[: found.start()]
        spot = Spot(self._part.line + before.count("\n"), len(before) - (before.rfind("\n") + 1) + 1)
        summary = f"control character U+{ord(found.group()):04X}"
        self._error(
            Code.CONTROL_CHARACTER, spot, summary, 'Remove it, or write it as an escape in "double quotes".'
        )

    def properties(self, value: dict[str, Any], allowed: int) -> None:
        """Tags are refused; aliases are bounded and may not contain themselves.

        Prose is full of exclamation marks and asterisks. Whether one of them is more than prose, the fast
        parser shows: turned into a letter, a character of prose changes nothing but itself.
        """
        text = self._part.text
        if "!" in text and not _is_prose(text, "!", value):
            detail = "Remove it: the kinds of values are fixed by the schema."
            self._each(Code.TAG, self._located().tags(), "a YAML tag (!…) is not supported", detail)
        if "*" not in text or _is_prose(text, "*", value):
            return
        if texts.count_properties(text, "*") > allowed and (count := self._located().aliases()) > allowed:
            summary = f"{count} aliases; at most {allowed} are read"
            self._error(Code.TOO_MANY_ALIASES, self._located().start, summary, "Write the values out.")
        if _has_null(value) and (spots := self._located().recursive()):
            self._each(Code.RECURSIVE_ALIAS, spots, "an alias that contains itself", "Write the value out.")

    def merge_keys(self) -> None:
        """``<<`` is not YAML 1.2, and every parser does something else with it."""
        spots = self._located().keys_named("<<")
        self._each(
            Code.MERGE_KEY, spots, "the merge key << is not supported", "Write the fields out, or use an Overlay."
        )

    def directives(self) -> None:
        """``%YAML 1.1`` would promise a reading that is not kept here."""
        if not self._part.text.startswith("%") and "\n%" not in self._part.text:
            return
        for spot in self._located().directives():
            self._error(Code.DIRECTIVE, spot, "a YAML directive (%…) is not supported", "Remove the line.")

    def json(self, value: dict[str, Any], depth: int) -> bytes | None:
        """The value as JSON, or None when it is none."""
        try:
            raw = orjson.dumps(value)
        except (TypeError, RecursionError):
            self._not_json(value, depth)
            return None
        if b"null" in raw and not _is_finite(value):
            self._error(
                Code.BAD_NUMBER, self._located().start, "a number that is not finite", "Write a finite number."
            )
        if raw.count(b"{") + raw.count(b"[") > depth and (found := _depth(value)) > depth:
            self._error(Code.TOO_DEEP, self._located().start, f"nested {found} levels deep", _deep(depth))
        return raw

    def _not_json(self, value: dict[str, Any], depth: int) -> None:
        if (found := _depth(value)) > depth:
            self._error(Code.TOO_DEEP, self._located().start, f"nested {found} levels deep", _deep(depth))
        elif _has_big_number(value):
            detail = "Write a number that fits 64 bits, or put it in quotes."
            self._error(Code.BAD_NUMBER, self._located().start, "a whole number of more than 64 bits", detail)
        else:
            spots = self._located().not_text_keys()
            self._each(Code.NOT_TEXT_KEY, spots, "a key that is not text", "Put the key in quotes.")

    def _each(self, code: Code, spots: list[Spot], summary: str, detail: str) -> None:
        for spot in spots or [self._located().start]:
            self._error(code, spot, summary, detail)

    def _error(self, code: Code, spot: Spot, summary: str, detail: str) -> None:
        self._findings.append(error(code, FilePosition(self._path, *spot), summary, detail))

    def _located(self) -> Positions:
        if self._positions is None:
            self._positions = self._locator.positions(self._part.text, self._part.line)
        return self._positions


def too_large(path: str, size: int, allowed: int) -> Finding:
    """The finding for a file that is not read because of its size."""
    return error(
        Code.TOO_LARGE,
        FilePosition(path),
        f"{size} bytes; at most {allowed} are read",
        "Split the file, raise the limit in the settings, or list it in .gitopsignore.",
    )


def _empty(path: str) -> Finding:
    detail = "An agent that stood here is no longer declared. Remove the file, or list it in .gitopsignore."
    return warning(Code.NO_DOCUMENT, FilePosition(path), "the file holds no document", detail)


def not_utf8(path: str, data: bytes, start: int) -> Finding:
    """The finding for bytes that are not UTF-8, addressed to the first wrong one."""
    begin = data.rfind(b"\n", 0, start) + 1
    place = FilePosition(
        path, data.count(b"\n", 0, start) + 1, len(data[begin:start].decode("utf-8", "replace")) + 1
    )
    return error(Code.NOT_UTF8, place, f"byte 0x{data[start]:02x} is not UTF-8", "Save the file as UTF-8.")


def _read(text: str) -> tuple[Any, bool]:
    """The value, and whether keys were repeated (then the last one of them holds)."""
    try:
        return _parse(text, _STRICT), False
    except yaml_rs.YAMLDecodeError as problem:
        if not str(problem).startswith("duplicate mapping key"):
            raise _unreadable(problem) from None
    try:
        return _parse(text, _LENIENT), True
    except yaml_rs.YAMLDecodeError as problem:
        raise _unreadable(problem) from None


def _parse(text: str, policy: yaml_rs.DuplicateKeyPolicy) -> Any:
    try:
        return yaml_rs.loads(text, parse_datetime=False, alias_limits=_REPLAYED, duplicate_key_policy=policy)
    except (yaml_rs.YAMLDecodeError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # a panic of the native parser is not an Exception
        raise Unreadable("the parser cannot read it", 1, 1) from None


def _unreadable(problem: Exception) -> Unreadable:
    # The message quotes the line it stopped at, which may hold a secret: keep only position and reason.
    lines = str(problem).splitlines() or ["no reason given"]
    where = _WHERE.search(lines[0])
    line, column = (int(where[1]), int(where[2])) if where else (1, 1)
    return Unreadable(shown(lines[-1], 120), line, column)


def _plain_json(value: dict[str, Any], depth: int) -> bytes | None:
    """The value as JSON when there is nothing to think about."""
    try:
        raw = orjson.dumps(value)
    except (TypeError, RecursionError):
        return None
    return None if b"null" in raw or raw.count(b"{") + raw.count(b"[") > depth else raw


def _deep(allowed: int) -> str:
    return f"At most {allowed} levels are read; write it flatter, or raise limits.depth."


def _is_prose(text: str, kind: str, value: object) -> bool:
    try:
        again, _ = _read(texts.masked(text, kind, _MASK))
    except Unreadable:
        return False
    return bool(_unmasked(again, kind) == value)


def _unmasked(value: Any, kind: str) -> Any:
    if isinstance(value, str):
        return value.replace(_MASK, kind)
    if isinstance(value, list):
        return [_unmasked(item, kind) for item in value]
    if isinstance(value, dict):
        return {_unmasked(key, kind): _unmasked(item, kind) for key, item in value.items()}
    return value


def _levels(value: object) -> list[list[Any]]:
    """The containers of a value, level by level (no recursion: the depth is what is being judged)."""
    levels, level = [], [value] if isinstance(value, (dict, list)) else []
    while level:
        levels.append(level)
        items = [item for box in level for item in (box.values() if isinstance(box, dict) else box)]
        level = [item for item in items if isinstance(item, (dict, list))]
    return levels


def _items(value: object) -> list[Any]:
    boxes = (box for level in _levels(value) for box in level)
    return [item for box in boxes for item in (box.values() if isinstance(box, dict) else box)]


def _depth(value: object) -> int:
    return len(_levels(value))


def _has_key(value: object, key: str) -> bool:
    return any(isinstance(box, dict) and key in box for level in _levels(value) for box in level)


def _has_null(value: object) -> bool:
    return any(item is None for item in _items(value))


def _is_finite(value: object) -> bool:
    return all(math.isfinite(item) for item in _items(value) if isinstance(item, float))


def _has_big_number(value: object) -> bool:
    return any(isinstance(item, int) and not -(2**63) <= item < 2**64 for item in _items(value))
