"""Bytes in, documents out. The fast parser alone decides what a document says; its traps are closed here.

Ours (``apiVersion: gitops-agent.dev/…``) are judged strictly; foreign ones must only parse. What leaves this
module is JSON: text keys, finite numbers, no dates, bounded depth.
"""

import math
import re
from functools import cached_property
from typing import Any, NamedTuple

import orjson
import yaml_rs
from ruamel.yaml.tokens import AliasToken, DirectiveToken, TagToken

from gitops_agent.model.document import API_VERSION
from gitops_agent.model.finding import Finding
from gitops_agent.settings import Limits
from gitops_agent.snapshot import yaml_text_guard as texts
from gitops_agent.snapshot.codes import Code, FilePosition, error, shown, warning
from gitops_agent.snapshot.foreign import foreign_finding, is_ours
from gitops_agent.snapshot.positions import Locator, Positions, Spot, is_text

_WHERE = re.compile(r"line (\d+), column (\d+)")
_MASK = "\U00012000"  # a letter of a script that is not written any more: its repr is the letter itself
_SMALLER = "Split the file, raise the limit in the settings, or list it in .gitopsignore."
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

    def __init__(self, message: str) -> None:
        super().__init__(message)
        # The message quotes the line it stopped at, which may hold a secret: keep only position and reason.
        lines = message.splitlines() or ["no reason given"]
        where = _WHERE.search(lines[0])
        self.line, self.column = (int(where[1]), int(where[2])) if where else (1, 1)
        self.reason = shown(lines[-1], 120)
        self.is_repeated_key = message.startswith("duplicate mapping key")


class FileParser:
    """Parses one file after the other and keeps nothing but the limits."""

    def __init__(self, limits: Limits, locator: Locator) -> None:
        self._limits = limits
        self._locator = locator

    def parse(self, path: str, data: bytes) -> tuple[list[Document], list[Finding]]:
        """The documents of ours in a file, and every finding about the file."""
        if (document := self._plain(data)) is not None:
            return [document], []
        limits = self._limits
        if len(data) > limits.file_bytes:
            return [], [too_large(path, len(data), limits.file_bytes)]
        try:
            content = texts.decoded(data)
        except UnicodeDecodeError as problem:
            return [], [not_utf8(path, data, problem.start)]
        parts = texts.split(content)
        if len(parts) > limits.documents:
            summary = f"{len(parts)} documents in one file; at most {limits.documents} are read"
            place = FilePosition(path, parts[limits.documents].line)
            way_out = "Split the file, or raise limits.documents."
            return [], [error(Code.TOO_MANY_DOCUMENTS, place, summary, way_out)]
        suspect = texts.has_control_bytes(data) or not content.isascii()
        findings: list[Finding] = []
        readers = (_DocumentReader(path, part, limits, self._locator, findings) for part in parts)
        documents = [document for reader in readers if (document := reader.read(suspect)) is not None]
        if not documents and not findings:
            detail = "Restore the agent that it held; if it held none, remove it or list it in .gitopsignore."
            findings = [warning(Code.NO_DOCUMENT, FilePosition(path), "the file holds no document", detail)]
        return documents, findings

    def _plain(self, data: bytes) -> Document | None:
        """The one document of ours in a file that needs no closer look. None: it needs one."""
        try:
            text = data.decode("utf-8")
            if len(data) > self._limits.file_bytes or not texts.is_plain(data, text):
                return None
            value = _parse(text, _STRICT)
            if type(value) is not dict or value.get("apiVersion") != API_VERSION:
                return None
            raw = orjson.dumps(value)
        except (UnicodeDecodeError, Unreadable, TypeError, RecursionError):
            return None
        if b"null" in raw or raw.count(b"{") + raw.count(b"[") > self._limits.depth:
            return None
        kind = value.get("kind")
        return Document(1, API_VERSION, kind, raw) if type(kind) is str else None


class _DocumentReader:
    """Reads one document of a file, and adds to the findings what is wrong with its text."""

    def __init__(
        self, path: str, part: texts.DocumentText, limits: Limits, locator: Locator, findings: list[Finding]
    ) -> None:
        self._path = path
        self._part = part
        self._limits = limits
        self._locator = locator
        self._findings = findings
        self._deep = f"At most {limits.depth} levels are read; write it flatter, or raise limits.depth."

    @cached_property
    def _positions(self) -> Positions:
        return self._locator.positions(self._part.text, self._part.line)

    def read(self, suspect: bool) -> Document | None:
        """The document if it is one of ours. ``suspect``: the file may hold control characters."""
        line, text = self._part
        if not texts.is_safe(text):
            self._error(Code.TOO_DEEP, "nested too deep to be parsed safely", self._deep, Spot(line, 1))
            return None
        try:
            value, repeated = _read(text)
        except Unreadable as problem:
            spot = Spot(line + problem.line - 1, problem.column)
            if "recursion limit" in problem.reason:
                self._error(Code.TOO_DEEP, "nested too deep to be parsed", self._deep, spot)
            else:
                way_out = "Correct the syntax, or list the file in .gitopsignore if it is not for gitops-agent."
                self._error(Code.INVALID_YAML, f"not valid YAML: {problem.reason}", way_out, spot)
            return None
        if value is None:
            return None
        if not is_ours(value):
            self._findings.append(foreign_finding(self._path, self._part, value, self._locator))
            return None
        self._judge(value, suspect, repeated)
        if (raw := self._json(value)) is None:
            return None
        kind = value.get("kind")
        return Document(line, value["apiVersion"], kind if isinstance(kind, str) else "", raw)

    def _judge(self, value: dict[str, Any], suspect: bool, repeated: bool) -> None:
        """The rules for the text of ours that foreign documents need not keep."""
        text = self._part.text
        if repeated:
            self._duplicates()
        if suspect:
            self._control_characters()
        if texts.may_have_properties(text):
            self._properties(value)
        # It is not YAML 1.2, and every parser does something else with it.
        if "<<" in text and any(isinstance(box, dict) and "<<" in box for box in _boxes(value)):
            spots = self._positions.keys(lambda key: bool(key.value == "<<"))
            way_out = "Write the fields out, or use an Overlay."
            self._error(Code.MERGE_KEY, "the merge key << is not supported", way_out, *spots)
        # %YAML 1.1 would promise a reading that is not kept here.
        if (text.startswith("%") or "\n%" in text) and (spots := self._positions.tokens(DirectiveToken)):
            self._error(Code.DIRECTIVE, "a YAML directive (%…) is not supported", "Remove the line.", *spots)

    def _duplicates(self) -> None:
        """Two equal keys in one mapping."""
        repeated = self._positions.duplicates()
        for key, first, again in repeated:
            summary = f"key {shown(key)} stands twice: lines {first.line} and {again.line}"
            self._error(Code.DUPLICATE_KEY, summary, "Keep one of them; which one would hold is a guess.", again)
        if not repeated:
            self._error(Code.DUPLICATE_KEY, "a key stands twice in one mapping", "Keep one.")

    def _control_characters(self) -> None:
        """Characters that terminals obey and people do not see."""
        found = texts.CONTROL.search(self._part.text)
        if found is not None:
            before = self._part.text[: found.start()]
            spot = Spot(self._part.line + before.count("\n"), len(before) - before.rfind("\n"))
            summary = f"control character U+{ord(found.group()):04X}"
            way_out = 'Remove it, or write it as an escape in "double quotes".'
            self._error(Code.CONTROL_CHARACTER, summary, way_out, spot)

    def _properties(self, value: dict[str, Any]) -> None:
        """Tags are refused; aliases are bounded and may not contain themselves.

        Prose is full of exclamation marks and asterisks. Whether one of them is more than prose, the fast
        parser shows: turned into a letter, a character of prose changes nothing but itself.
        """
        text, allowed = self._part.text, self._limits.aliases
        if "!" in text and not _is_prose(text, "!", value):
            detail = "Remove it: the kinds of values are fixed by the schema."
            spots = self._positions.tokens(TagToken)
            self._error(Code.TAG, "a YAML tag (!…) is not supported", detail, *spots)
        if "*" not in text or _is_prose(text, "*", value):
            return
        if texts.count_properties(text, "*") > allowed:
            count = len(self._positions.tokens(AliasToken))
            if count > allowed:
                summary = f"{count} aliases; at most {allowed} are read"
                self._error(Code.TOO_MANY_ALIASES, summary, "Write the values out.")
        if any(item is None for item in _items(value)) and (spots := self._positions.recursive()):
            self._error(Code.RECURSIVE_ALIAS, "an alias that contains itself", "Write the value out.", *spots)

    def _json(self, value: dict[str, Any]) -> bytes | None:
        """The value as JSON, or None when it is none."""
        try:
            raw = orjson.dumps(value)
        except (TypeError, RecursionError):
            if not self._is_too_deep(value):
                self._not_json(value)
            return None
        if b"null" in raw and not all(math.isfinite(item) for item in _items(value) if isinstance(item, float)):
            self._error(Code.BAD_NUMBER, "a number that is not finite", "Write a finite number.")
        if raw.count(b"{") + raw.count(b"[") > self._limits.depth:
            self._is_too_deep(value)
        return raw

    def _is_too_deep(self, value: dict[str, Any]) -> bool:
        depth = len(_levels(value))
        if depth > self._limits.depth:
            self._error(Code.TOO_DEEP, f"nested {depth} levels deep", self._deep)
        return depth > self._limits.depth

    def _not_json(self, value: dict[str, Any]) -> None:
        if any(isinstance(item, int) and not -(2**63) <= item < 2**64 for item in _items(value)):
            detail = "Write a number that fits 64 bits, or put it in quotes."
            self._error(Code.BAD_NUMBER, "a whole number of more than 64 bits", detail)
        else:
            spots = self._positions.keys(lambda key: not is_text(key))
            self._error(Code.NOT_TEXT_KEY, "a key that is not text", "Put the key in quotes.", *spots)

    def _error(self, code: Code, summary: str, detail: str, *spots: Spot) -> None:
        """Add an error for each spot; for the beginning of the document when there is none."""
        for spot in spots or (self._positions.start,):
            self._findings.append(error(code, FilePosition(self._path, *spot), summary, detail))


def too_large(path: str, size: int, allowed: int, way_out: str = _SMALLER) -> Finding:
    """The finding for a file that is not read because of its size."""
    return error(Code.TOO_LARGE, FilePosition(path), f"{size} bytes; at most {allowed} are read", way_out)


def not_utf8(path: str, data: bytes, start: int) -> Finding:
    """The finding for bytes that are not UTF-8, addressed to the first wrong one."""
    begin = data.rfind(b"\n", 0, start) + 1
    column = len(data[begin:start].decode("utf-8", "replace")) + 1
    place = FilePosition(path, data.count(b"\n", 0, start) + 1, column)
    return error(Code.NOT_UTF8, place, f"byte 0x{data[start]:02x} is not UTF-8", "Save the file as UTF-8.")


def _read(text: str) -> tuple[Any, bool]:
    """The value, and whether keys were repeated (then the last one of them holds)."""
    try:
        return _parse(text, _STRICT), False
    except Unreadable as problem:
        if not problem.is_repeated_key:
            raise
    return _parse(text, _LENIENT), True


def _parse(text: str, policy: yaml_rs.DuplicateKeyPolicy) -> Any:
    try:
        return yaml_rs.loads(text, parse_datetime=False, alias_limits=_REPLAYED, duplicate_key_policy=policy)
    except yaml_rs.YAMLDecodeError as problem:
        raise Unreadable(str(problem)) from None
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # a panic of the native parser is not an Exception
        raise Unreadable("the parser cannot read it") from None


def _is_prose(text: str, kind: str, value: object) -> bool:
    try:
        again, _ = _read(texts.masked(text, kind, _MASK))
        return repr(again).replace(_MASK, kind) == repr(value)
    except (Unreadable, RecursionError):
        return False


def _levels(value: object) -> list[list[Any]]:
    """The containers of a value, level by level (no recursion: the depth is what is being judged)."""
    levels, level = [], [value] if isinstance(value, (dict, list)) else []
    while level:
        levels.append(level)
        items = [item for box in level for item in (box.values() if isinstance(box, dict) else box)]
        level = [item for item in items if isinstance(item, (dict, list))]
    return levels


def _boxes(value: object) -> list[Any]:
    return [box for level in _levels(value) for box in level]


def _items(value: object) -> list[Any]:
    return [item for box in _boxes(value) for item in (box.values() if isinstance(box, dict) else box)]
