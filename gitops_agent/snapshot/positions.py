"""Line and column of things in a document, found by a second parser that knows positions.

It never decides what a document says (``yaml_documents.py`` does, with the fast parser); it is asked only when
there is a finding to address, and only for text that has passed the same pre-checks. When it cannot read what the
fast one could, or the budget is spent, the answer is where the document begins: late, never wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.tokens import Token

from gitops_agent.model.agent import Origin
from gitops_agent.model.finding import Finding
from gitops_agent.ports import BlobReader
from gitops_agent.snapshot import yaml_text_guard as texts
from gitops_agent.snapshot.codes import FilePosition, Issue, Loc, error


class Spot(NamedTuple):
    """Line and column in the file, from 1."""

    line: int
    column: int


class Positions:
    """The positions inside one document that begins at a line of its file."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._first_line = first_line
        self._root: Node | None = compose(text)

    @property
    def start(self) -> Spot:
        """Where the content of the document begins."""
        return Spot(self._first_line, 1) if self._root is None else self._spot(self._root)

    def find(self, loc: Loc, *, at_key: bool = False) -> Spot:
        """Where the value (or the key) at a path stands, or the nearest enclosing thing that exists."""
        node, spot = self._root, self.start
        for step in loc:
            found = _child(node, step)
            if found is None:
                break
            key, node = found
            spot = self._spot(key if at_key and key is not None else node)
        return spot

    def duplicates(self) -> list[tuple[str, Spot, Spot]]:
        """Every key that stands more than once in its mapping, with both positions."""
        found: list[tuple[str, Spot, Spot]] = []
        for mapping in self._mappings():
            first: dict[tuple[str, str], Spot] = {}
            for key, _ in mapping.value:
                if isinstance(key, ScalarNode):
                    spot = self._spot(key)
                    earlier = first.setdefault((str(key.tag), key.value), spot)
                    if earlier != spot:
                        found.append((key.value, earlier, spot))
        return found

    def keys(self, wanted: Callable[[Node], bool]) -> list[Spot]:
        """Where some of the keys stand, at any depth."""
        keys = (key for mapping in self._mappings() for key, _ in mapping.value)
        return [self._spot(key) for key in keys if wanted(key)]

    def recursive(self) -> list[Spot]:
        """Nodes that contain themselves by an alias."""
        return [] if self._root is None else [self._spot(node) for node in _recursive(self._root)]

    def tokens(self, kind: type[Token]) -> list[Spot]:
        """Where tags, directives or aliases stand."""
        found: list[Token] = []
        with suppress(Exception):  # as in ``compose``; what was read before it stumbled still has its positions
            found.extend(YAML(typ="safe", pure=True).scan(self._text))
        return [self._spot(token) for token in found if isinstance(token, kind)]

    def _mappings(self) -> Iterator[MappingNode]:
        return (node for node in _walk(self._root) if isinstance(node, MappingNode))

    def _spot(self, thing: Node | Token) -> Spot:
        return Spot(self._first_line + thing.start_mark.line, thing.start_mark.column + 1)


class Locator:
    """Makes positions, exact ones for the first documents only: ten thousand broken ones stay affordable."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def positions(self, text: str, first_line: int) -> Positions:
        """The positions of one document."""
        self._budget -= 1
        return Positions(text if self._budget >= 0 else "", first_line)


def located(issues: Iterable[Issue], reader: BlobReader, locator: Locator) -> list[Finding]:
    """The findings of issues. The documents are read again: issues are rare, and keeping all texts is dear."""
    known = list(issues)
    contents = dict(reader.blobs(list(dict.fromkeys(issue.origin.blob for issue in known)))) if known else {}

    @cache
    def positions(origin: Origin) -> Positions:
        parts = texts.split(texts.decoded(contents.get(origin.blob, b""), "replace"))
        return locator.positions(next((part.text for part in parts if part.line == origin.line), ""), origin.line)

    findings: list[Finding] = []
    for issue in known:
        spot = positions(issue.origin).find(issue.loc, at_key=issue.at_key)
        findings.append(error(issue.code, FilePosition(issue.origin.path, *spot), issue.summary, issue.detail))
    return findings


def compose(text: str) -> Node | None:
    """The node tree of a document; None when it is empty or cannot be read."""
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False
    try:
        return yaml.compose(text)  # type: ignore[no-any-return]
    except Exception:  # it only finds positions: whatever it stumbles over the fast parser has judged
        return None


def _child(node: Node | None, step: str | int) -> tuple[Node | None, Node] | None:
    if isinstance(node, MappingNode):
        # The last one: of two equal keys the later one is the value that is being complained about.
        pairs = [pair for pair in node.value if isinstance(pair[0], ScalarNode) and pair[0].value == str(step)]
        return pairs[-1] if pairs else None
    if isinstance(node, SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        return None, node.value[step]
    return None


def is_text(key: Node) -> bool:
    """Whether a key is text."""
    # The fast parser reads moments as text, and so does everything after it.
    words = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")
    return isinstance(key, ScalarNode) and str(key.tag) in (*words, "tag:yaml.org,2002:value")


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _walk(root: Node | None) -> Iterator[Node]:
    """Every node once, however often aliases repeat it."""
    waiting, seen = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(reversed(_children(node)))


def _recursive(root: Node) -> list[Node]:
    """Nodes met again on the way down from themselves (each node is expanded once, so bombs cost nothing)."""
    found: list[Node] = []
    open_ids: set[int] = set()
    done: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            open_ids.discard(id(node))
            done.add(id(node))
        elif id(node) in open_ids:
            found.append(node)
        elif id(node) not in done:
            open_ids.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in _children(node))
    return found
