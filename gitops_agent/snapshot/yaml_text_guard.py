"""Text before any parser sees it: is it safe to parse, and where do its documents begin?

The fast parser dies of block nesting (a stack overflow ends the process) and the position-aware one of any
nesting. So depth is bounded here, from above, by counting characters: never exact, never too low. All of it
runs in C; nothing looks at single lines of a good document.
"""

import re
from itertools import pairwise
from typing import NamedTuple

SAFE_DEPTH = 1_000
"""Deeper than this no parser is tried. Measured: the fast one overflows an 8 MiB stack beyond 10,000 levels."""

BYTE_ORDER_MARK = "\ufeff"

_MARKER = re.compile(r"^(?:---|\.\.\.)(?=[ \t\n]|\Z)", re.MULTILINE)
_DIRECTIVES_ONLY = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n|%[^\n]*\n)*+\Z")
_LINE_PREFIX = re.compile(r"^(?:[ \t]++|[-?:](?=[ \t\n]|\Z)|[!&]\S*+)++", re.MULTILINE)
_CONTROL_BYTES = bytes([*range(9), 11, 12, *range(14, 32), 127])
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
"""Characters that may not stand in a document of ours."""
# A tag, anchor or alias can only begin here; much prose matches too, so a match is a question, not an answer.
_PROPERTY = re.compile(r"""[!&*](?:(?<=[\s\[\]{},:"'].)|(?<=\A.))""")


class DocumentText(NamedTuple):
    """The text of one document (its marker included) and the line of the file where it begins."""

    line: int
    text: str


def decoded(data: bytes, errors: str = "strict") -> str:
    """The text of a file without its byte order mark, every line ended by a line feed alone."""
    content = data.decode("utf-8", errors).removeprefix(BYTE_ORDER_MARK)
    return content.replace("\r\n", "\n").replace("\r", "\n") if "\r" in content else content


def split(text: str) -> list[DocumentText]:
    """The documents of a stream. A marker at column 0 always separates documents, whatever surrounds it."""
    if "\n---" not in text and "\n..." not in text and not text.startswith("..."):
        return [DocumentText(1, text)]
    starts = [0, *(match.start() for match in _MARKER.finditer(text) if match.start() > 0), len(text)]
    documents: list[DocumentText] = []
    line, kept = 1, 0
    for begin, end in pairwise(starts):
        if _only_directives(text[kept:begin]):
            begin = kept
        part = text[begin:end]
        line += text.count("\n", kept, begin)
        kept = begin
        if not _only_directives(part) or end == len(text):
            documents.append(DocumentText(line, part))
    return [_without_end_marker(document) for document in documents]


def _only_directives(part: str) -> bool:
    """Directives belong to the document that follows them."""
    return "%" in part and _DIRECTIVES_ONLY.match(part) is not None


def _without_end_marker(document: DocumentText) -> DocumentText:
    # The rest of that line may hold a comment only; the parser judges it as the beginning of the next document.
    if _MARKER.match(document.text) and document.text[0] == ".":
        return document._replace(text="   " + document.text[3:])
    return document


def is_safe(text: str) -> bool:
    """Whether no reading of this text can be nested deeper than SAFE_DEPTH.

    Every level needs an indicator of its own, and a block level two characters (the fast parser bounds flow
    levels itself); so short text and text with few indicators is safe at once. For the rest, block levels are
    bounded by how far a line is indented (two may share a column), and aliases can stack what anchors hold.
    """
    if len(text) <= 2 * SAFE_DEPTH or sum(map(text.count, "-?:[{")) <= SAFE_DEPTH:
        return True
    prefixes = {match.group() for match in _LINE_PREFIX.finditer(text)}
    indented = max((sum(map(prefix.count, " \t-?:")) for prefix in prefixes), default=0)
    depth = 2 * (indented + 1)
    return depth * (min(count_properties(text, "*"), 64) + 1) <= 4 * SAFE_DEPTH and depth <= SAFE_DEPTH


def has_control_bytes(data: bytes) -> bool:
    """Whether the bytes hold ASCII control characters."""
    return len(data.translate(None, _CONTROL_BYTES)) != len(data)


def is_plain(data: bytes, text: str) -> bool:
    """Whether the text is one short document in which nothing needs a closer look: most documents are."""
    return (
        len(text) <= 2 * SAFE_DEPTH
        and text.isascii()
        and not ("<<" in text or "%" in text or "\r" in text or "\n---" in text or "\n..." in text)
        and not may_have_properties(text)
        and not text.startswith("...")
        and not has_control_bytes(data)
    )


def may_have_properties(text: str) -> bool:
    """Whether the text can hold a tag, an anchor or an alias at all."""
    return ("!" in text or "&" in text or "*" in text) and _PROPERTY.search(text) is not None


def count_properties(text: str, kinds: str) -> int:
    """At most how many tags (or anchors, or aliases) the text can hold."""
    return sum(match.group() in kinds for match in _PROPERTY.finditer(text))


def masked(text: str, kind: str, mask: str) -> str:
    """The text with every possible tag (or anchor, or alias) turned into an ordinary letter."""
    return _PROPERTY.sub(lambda match: mask if match.group() == kind else match.group(), text)
