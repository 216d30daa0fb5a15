"""Documents without our ``apiVersion``: left alone, unless one of ours has a slip in its head.

A mistyped ``apiVersion`` is no deletion, but a snapshot without the document would be one. So what looks like one
of ours is an error; what another tool owns (a group of its own in ``apiVersion``, or no head at all) is not.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from gitops_agent.model.document import API_GROUP, API_VERSION, DOCUMENTS
from gitops_agent.model.finding import Finding
from gitops_agent.snapshot.codes import Code, FilePosition, Loc, error, info, shown, warning
from gitops_agent.snapshot.positions import Locator
from gitops_agent.snapshot.yaml_text_guard import DocumentText

_ALIKE = 0.8
_VERSION = re.compile(re.escape(API_GROUP) + r"v[0-9]\w*")
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_HEAD_AS_TEXT = re.compile(r"\bapi[-_]?version\s*:?\s*['\"]?git-?ops-?agent", re.IGNORECASE)
_DETAIL = f"Documents of gitops-agent begin with apiVersion: {API_VERSION}."
_WAY_OUT = f"{_DETAIL} If it belongs to another tool, list the file in .gitopsignore."


def is_ours(value: object) -> bool:
    """Whether a document names our API group."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    return isinstance(version, str) and (version.startswith(API_GROUP) or version == API_GROUP.rstrip("/"))


def foreign_finding(path: str, document: DocumentText, value: object, locator: Locator) -> Finding:
    """The finding about a document that is not ours: an error when it seems to be meant as one of ours."""
    if isinstance(value, dict) and (slip := _slip_in_head(value)):
        key, summary = slip
        spot = locator.positions(document.text, document.line).find((key,) if key else (), at_key=True)
        return error(Code.UNKNOWN_API_VERSION, FilePosition(path, *spot), summary, _WAY_OUT)
    if isinstance(value, dict) and _claims_kind(value) and _is_doubtful(value.get("apiVersion")):
        summary = f"ignored: kind is {shown(value.get('kind'))}, but apiVersion is {shown(value['apiVersion'])}"
        return warning(Code.FOREIGN_DOCUMENT, FilePosition(path, document.line), summary, _DETAIL)
    if isinstance(value, str) and _HEAD_AS_TEXT.search(value):
        spot = locator.positions(document.text, document.line).start
        summary = "text instead of a mapping; is there a space after each colon?"
        return error(Code.UNKNOWN_API_VERSION, FilePosition(path, *spot), summary, _WAY_OUT)
    if API_GROUP in document.text and (inside := _inside(value)):
        place = FilePosition(path, *locator.positions(document.text, document.line).find(inside))
        detail = "Write each document by itself, with a line --- between two of them."
        is_list = isinstance(inside[0], int) or inside[0] == "items"
        summary = "a document of gitops-agent inside another one is not read"
        return (error if is_list else warning)(Code.FOREIGN_DOCUMENT, place, summary, detail)
    place = FilePosition(path, document.line)
    return info(Code.FOREIGN_DOCUMENT, place, "ignored: not a document of gitops-agent", _DETAIL)


def misspelt(fields: Mapping[Any, Any], name: str) -> str | None:
    """The key that only differs from the name by case, dashes and underscores."""
    words = (key for key in fields if isinstance(key, str) and key != name)
    return next((key for key in words if _form(key) == _form(name)), None)


def _slip_in_head(fields: Mapping[Any, Any]) -> tuple[str | None, str] | None:
    """The key at fault (None: there is none) and what is wrong, if the document seems to be ours."""
    for key, value in fields.items():
        if isinstance(key, str) and key != "apiVersion" and isinstance(value, str) and _VERSION.fullmatch(value):
            return key, f"key {shown(key)}; did you mean apiVersion?"
    if not (_claims_kind(fields) or _has_our_shape(fields)):
        return None
    key = "apiVersion" if "apiVersion" in fields else misspelt(fields, "apiVersion")
    if key is None:
        kind = fields.get(misspelt(fields, "kind") or "kind")
        seen = f"kind: {shown(kind)}" if isinstance(kind, str) else "it has metadata.name and spec.runtime"
        return None, f"apiVersion is missing ({seen})"
    version = fields[key]
    if not (_is_near(version) or (_is_doubtful(version) and (key != "apiVersion" or _has_our_shape(fields)))):
        return None
    if key != "apiVersion":
        return key, f"key {shown(key)}; did you mean apiVersion?"
    return key, f"unknown apiVersion {shown(version)}; did you mean {API_VERSION}?"


def _claims_kind(fields: Mapping[Any, Any]) -> bool:
    """Whether the kind is one of ours; one that is only close to it needs something of ours below it."""
    kind = fields.get("kind", fields.get(misspelt(fields, "kind")))
    if not isinstance(kind, str) or kind in DOCUMENTS:
        return isinstance(kind, str)
    has_body = isinstance(fields.get("metadata"), dict) or isinstance(fields.get("spec"), dict)
    return has_body and any(_alike(kind, known) for known in DOCUMENTS)


def _has_our_shape(fields: Mapping[Any, Any]) -> bool:
    metadata, spec = fields.get("metadata"), fields.get("spec")
    return isinstance(metadata, dict) and "name" in metadata and isinstance(spec, dict) and "runtime" in spec


def _is_near(version: object) -> bool:
    if not isinstance(version, str):
        return not isinstance(version, (dict, list))
    short = version[:64]
    return "gitopsagent" in _form(short) or _alike(short.partition("/")[0], API_GROUP)


def _is_doubtful(version: object) -> bool:
    """Whether a version names no group, or one that sounds like ours."""
    return isinstance(version, str) and ("/" not in version or "gitops" in version.lower())


def _alike(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, _form(one[:64]), _form(other)).ratio() >= _ALIKE


def _form(text: str) -> str:
    return _NOT_LETTERS.sub("", text.lower())


def _inside(value: object) -> Loc | None:
    """Where a document of ours stands inside another one (level by level, since it may be nested deep)."""
    level: list[tuple[Loc, Any]] = [((), value)] if isinstance(value, (dict, list)) else []
    while level:
        level = [
            ((*loc, step), item)
            for loc, box in level
            for step, item in (box.items() if isinstance(box, dict) else enumerate(box))
            if isinstance(item, (dict, list))
        ]
        if found := next((loc for loc, box in level if is_ours(box)), None):
            return found
    return None
