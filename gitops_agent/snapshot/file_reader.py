"""Reading files into units: parse, validate, overlay, compile. One ``Reading`` serves one load.

Contents are streamed from the reader and dropped as soon as a file has become its unit, so that the largest
fleet is never in memory twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.agent import Origin
from gitops_agent.model.document import (
    API_VERSION,
    AgentDocument,
    CredentialPoolDocument,
    OverlayDocument,
    PolicyDocument,
    Strict,
)
from gitops_agent.model.finding import Finding, errors
from gitops_agent.ports import BlobReader
from gitops_agent.settings import Settings
from gitops_agent.snapshot import compile as compiling
from gitops_agent.snapshot.compile import CompileContext, Draft
from gitops_agent.snapshot.compiled_file import AgentUnit, FileUnit, Issue, OverlayUnit, PolicyUnit, PoolUnit
from gitops_agent.snapshot.overlay import in_path_order, unit_of
from gitops_agent.snapshot.policy import effective, loosened
from gitops_agent.snapshot.positions import Locator
from gitops_agent.snapshot.schema import check, validate
from gitops_agent.snapshot.tree_changes import too_much
from gitops_agent.snapshot.tree_rules import Entry
from gitops_agent.snapshot.yaml_documents import Document, FileParser

BATCH = 2_500
"""Files per stream: large enough to keep git busy, small enough to hold the drafts that wait."""

_NAMES = re.compile(rb"name[\"']?[ \t]*:[ \t]*[\"']?([a-z0-9-]{1,63})")


@dataclass(slots=True)
class _Opened:
    """One file while it is being read."""

    path: str
    blob: str
    findings: list[Finding] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    agents: list[AgentUnit] = field(default_factory=list)
    overlays: list[OverlayUnit] = field(default_factory=list)
    policies: list[PolicyUnit] = field(default_factory=list)
    pools: list[PoolUnit] = field(default_factory=list)

    def unit(self) -> FileUnit:
        """What the file contributes."""
        return FileUnit(
            self.path,
            self.blob,
            tuple(self.agents),
            tuple(self.overlays),
            tuple(self.policies),
            tuple(self.pools),
            tuple(self.findings),
        )


class _Failure(NamedTuple):
    """A file with errors, the names in it, and the overlays that were known when it was read."""

    opened: _Opened
    names: frozenset[str]
    overlays: frozenset[str]


class Reading:
    """Turns paths into units, and remembers what is wrong with the files that became none."""

    def __init__(
        self, reader: BlobReader, plugins: Plugins, settings: Settings, entries: Mapping[str, Entry]
    ) -> None:
        self.failed: dict[str, _Failure] = {}
        self.locator = Locator(settings.limits.located)
        self._reader = reader
        self._plugins = plugins
        self._settings = settings
        self._entries = entries
        self._parser = FileParser(settings.limits, self.locator)
        self._bytes = 0

    @property
    def findings(self) -> list[Finding]:
        """Everything found in files with errors."""
        return [finding for failure in self.failed.values() for finding in failure.opened.findings]

    @property
    def issues(self) -> list[Issue]:
        """Everything wrong inside documents that are valid by themselves."""
        return [issue for failure in self.failed.values() for issue in failure.opened.issues]

    @property
    def suspects(self) -> set[str]:
        """Names that occur in files with errors: who refers to one of them is not blamed as well."""
        return {name for failure in self.failed.values() for name in failure.names}

    def hasty(self, overlays: Sequence[OverlayUnit]) -> dict[str, str]:
        """Files (path to blob) that failed before all of the overlays were known."""
        known = frozenset(overlay.digest for overlay in overlays)
        return {path: failure.opened.blob for path, failure in self.failed.items() if failure.overlays != known}

    def read(self, wanted: Mapping[str, str], overlays: Sequence[OverlayUnit]) -> dict[str, FileUnit]:
        """The units of the files (path to blob) that hold no error."""
        known = list(overlays)
        for path in wanted:
            self.failed.pop(path, None)
        units: dict[str, FileUnit] = {}
        # Overlays usually stand there; reading them first means that few agents are compiled twice.
        paths = sorted(wanted, key=lambda path: (not path.startswith("overlays/"), path))
        for begin in range(0, len(paths), BATCH):
            part = {path: wanted[path] for path in paths[begin : begin + BATCH]}
            for unit in self._read_batch(part, known):
                units[unit.path] = unit
        return units

    def _read_batch(self, wanted: Mapping[str, str], known: list[OverlayUnit]) -> Iterator[FileUnit]:
        waiting: list[_Opened] = []
        bench = self._bench(known)
        for path, blob, data in self._contents(wanted):
            documents, findings = self._parser.parse(path, data)
            if len(documents) == 1 and not findings and (unit := self._plain(bench, path, blob, documents[0])):
                yield unit
                continue
            opened = self._open(bench, _Opened(path, blob, findings), documents)
            if opened.overlays:
                known.extend(opened.overlays)
                bench = self._bench(known)
            if any(draft.inlined is not None for draft in opened.drafts):
                waiting.append(opened)
            elif unit := self._close(bench, opened, {}, data):
                yield unit
        files = {draft.inlined for opened in waiting for draft in opened.drafts if draft.inlined is not None}
        contents = self._texts({path: self._entries[path].blob for path in files})
        for opened in waiting:
            if unit := self._close(bench, opened, contents, b""):
                yield unit

    def _bench(self, known: Sequence[OverlayUnit]) -> CompileContext:
        limits = self._settings.limits
        chosen = in_path_order(known)
        return CompileContext(self._plugins, self._entries, chosen, limits.file_bytes, limits.instructions_bytes)

    def _contents(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, str, bytes]]:
        """Path, blob and content of each file; a blob that stands at several paths is read once."""
        paths: dict[str, list[str]] = {}
        for path, blob in wanted.items():
            paths.setdefault(blob, []).append(path)
        for blob, data in self._reader.blobs(list(paths)):
            self._count(len(data))
            for path in paths[blob]:
                yield path, blob, data

    def _texts(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        return {path: data for path, _, data in self._contents(wanted)} if wanted else {}

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._settings.limits.total_bytes:
            finding = too_much(self._bytes, self._settings.limits)
            raise InvalidDesiredState("the commit is too large to be read", (finding,), hint=finding.detail)

    def _plain(self, bench: CompileContext, path: str, blob: str, document: Document) -> FileUnit | None:
        """The common file: one valid agent with nothing to wait for. None: it needs the longer way."""
        if document.kind != "Agent" or document.version != API_VERSION:
            return None
        model, _ = check(document.raw, "Agent", self._plugins.documents)
        if not isinstance(model, AgentDocument):
            return None
        draft, _ = compiling.draft(bench, Origin(path, document.line, blob), model, document.raw)
        if draft is None or draft.inlined is not None:
            return None
        unit, _ = compiling.finish(bench, draft, None)
        return FileUnit(path, blob, (unit,)) if unit is not None else None

    def _open(self, bench: CompileContext, opened: _Opened, documents: Sequence[Document]) -> _Opened:
        for document in documents:
            model, wrong = validate(opened.path, document, self.locator, self._plugins.documents)
            opened.findings.extend(wrong)
            if model is not None:
                self._sort(bench, opened, document, model)
        return opened

    def _sort(self, bench: CompileContext, opened: _Opened, document: Document, model: Strict) -> None:
        """Put a valid document where it belongs."""
        origin = Origin(opened.path, document.line, opened.blob)
        if isinstance(model, AgentDocument):
            draft, issues = compiling.draft(bench, origin, model, document.raw)
            opened.issues.extend(issues)
            if draft is not None:
                opened.drafts.append(draft)
        elif isinstance(model, OverlayDocument):
            if model.spec.instance == self._settings.instance:
                opened.overlays.append(unit_of(origin, model))
        elif isinstance(model, PolicyDocument):
            opened.issues.extend(loosened(origin, model.spec))
            opened.policies.append(PolicyUnit(origin, effective(model.spec)))
        elif isinstance(model, CredentialPoolDocument):
            opened.pools.append(PoolUnit(origin, model.metadata.tenant or "", model.metadata.name))

    def _close(
        self, bench: CompileContext, opened: _Opened, contents: Mapping[str, bytes], data: bytes
    ) -> FileUnit | None:
        """Compile the drafts of a file; its unit, unless something is wrong with it."""
        for draft in opened.drafts:
            content = contents[draft.inlined] if draft.inlined is not None else None
            if content is not None and len(content) > bench.instructions_bytes:
                opened.issues.append(compiling.too_long(draft, len(content), bench.instructions_bytes))
                continue
            self._count(len(content or b""))
            unit, issues = compiling.finish(bench, draft, content)
            opened.issues.extend(issues)
            if unit is not None:
                opened.agents.append(unit)
        if not opened.issues and not errors(opened.findings):
            return opened.unit()
        names = {draft.key.name for draft in opened.drafts} | {name.decode() for name in _NAMES.findall(data)}
        overlays = frozenset(overlay.digest for overlay in bench.overlays)
        self.failed[opened.path] = _Failure(opened, frozenset(names), overlays)
        return None
