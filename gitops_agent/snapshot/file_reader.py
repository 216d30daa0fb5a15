"""Reads files into compiled files: parse, validate, overlay, compile. One ``FileReader`` serves one load.

Contents are streamed from the blob reader and dropped as soon as a file is compiled, so that the largest fleet is
never in memory twice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.agent import Origin
from gitops_agent.model.document import (
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
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, Issue, OverlayUnit, PolicyUnit, PoolUnit
from gitops_agent.snapshot.overlay import in_path_order, unit_of
from gitops_agent.snapshot.policy import effective, loosened
from gitops_agent.snapshot.positions import Locator
from gitops_agent.snapshot.schema import validate
from gitops_agent.snapshot.tree_changes import too_much
from gitops_agent.snapshot.tree_rules import TreeFile
from gitops_agent.snapshot.yaml_documents import Document, FileParser

FILES_PER_STREAM = 2_500
"""Large enough to keep git busy, small enough to hold the drafts that wait for their instructions."""

FILES_PER_STEP = 64
"""So many files are parsed, then validated, then compiled. Going all the way with each file costs a third more:
the code of one step evicts that of the next from the caches of the processor."""

_NAMES = re.compile(rb"name[\"']?[ \t]*:[ \t]*[\"']?([a-z0-9-]{1,63})")


@dataclass(slots=True)
class _OpenFile:
    """One file while it is being read."""

    path: str
    blob: str
    data: bytes
    documents: list[Document]
    findings: list[Finding]
    models: list[tuple[Document, Strict]] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    agents: list[AgentUnit] = field(default_factory=list)
    overlays: list[OverlayUnit] = field(default_factory=list)
    policies: list[PolicyUnit] = field(default_factory=list)
    pools: list[PoolUnit] = field(default_factory=list)

    def origin(self, document: Document) -> Origin:
        """Where a document of the file stands."""
        return Origin(self.path, document.line, self.blob)

    def compiled(self) -> CompiledFile:
        """What the file contributes."""
        return CompiledFile(
            self.path,
            self.blob,
            tuple(self.agents),
            tuple(self.overlays),
            tuple(self.policies),
            tuple(self.pools),
            tuple(self.findings),
        )

    def names(self) -> frozenset[str]:
        """Every name in the file, whether its documents are valid or not."""
        found = {name.decode() for name in _NAMES.findall(self.data)}
        return frozenset(found | {draft.key.name for draft in self.drafts})


class _Failure(NamedTuple):
    """A file with errors, the names in it, and the overlays that were known when it was read."""

    file: _OpenFile
    names: frozenset[str]
    overlays: frozenset[str]


class FileReader:
    """Turns paths into compiled files, and keeps what is wrong with those that have errors."""

    def __init__(
        self, blobs: BlobReader, plugins: Plugins, settings: Settings, tree: Mapping[str, TreeFile]
    ) -> None:
        self.failed: dict[str, _Failure] = {}
        self.locator = Locator(settings.limits.located)
        self._blobs = blobs
        self._plugins = plugins
        self._settings = settings
        self._tree = tree
        self._parser = FileParser(settings.limits, self.locator)
        self._bytes = 0

    @property
    def findings(self) -> list[Finding]:
        """Everything found in files with errors."""
        return [finding for failure in self.failed.values() for finding in failure.file.findings]

    @property
    def issues(self) -> list[Issue]:
        """Everything wrong inside documents that are valid by themselves."""
        return [issue for failure in self.failed.values() for issue in failure.file.issues]

    @property
    def suspects(self) -> set[str]:
        """Names in files with errors: a reference to one of them is not reported as well."""
        return {name for failure in self.failed.values() for name in failure.names}

    def failed_too_early(self, overlays: Sequence[OverlayUnit]) -> dict[str, str]:
        """Files (path to blob) that failed before all of the overlays were known."""
        known = frozenset(overlay.digest for overlay in overlays)
        return {path: failure.file.blob for path, failure in self.failed.items() if failure.overlays != known}

    def read(self, wanted: Mapping[str, str], overlays: Sequence[OverlayUnit]) -> dict[str, CompiledFile]:
        """The files (path to blob) that hold no error, compiled."""
        known = list(overlays)
        for path in wanted:
            self.failed.pop(path, None)
        # Overlays usually stand there; reading them first means that few agents are compiled twice.
        paths = sorted(wanted, key=lambda path: (not path.startswith("overlays/"), path))
        streams = (paths[begin : begin + FILES_PER_STREAM] for begin in range(0, len(paths), FILES_PER_STREAM))
        return {
            file.path: file
            for stream in streams
            for file in self._read_stream({path: wanted[path] for path in stream}, known)
        }

    def _read_stream(self, wanted: Mapping[str, str], known: list[OverlayUnit]) -> Iterator[CompiledFile]:
        """The compiled files of one stream of blobs; ``known`` grows by the overlays among them."""
        waiting: list[_OpenFile] = []
        context = self._context(known)
        for file in self._validated(self._contents(wanted)):
            for document, model in file.models:
                self._sort(context, file, document, model)
            if file.overlays:
                known.extend(file.overlays)
                context = self._context(known)
            if any(draft.inlined is not None for draft in file.drafts):
                waiting.append(file)
                file.data = b""
            elif compiled := self._close(context, file, {}):
                yield compiled
        inlined = {draft.inlined for file in waiting for draft in file.drafts if draft.inlined is not None}
        blobs = {path: self._tree[path].blob for path in inlined}
        contents = {path: data for path, _, data in self._contents(blobs)}
        for file in waiting:
            if compiled := self._close(context, file, contents):
                yield compiled

    def _context(self, known: Sequence[OverlayUnit]) -> CompileContext:
        limits = self._settings.limits
        chosen = in_path_order(known)
        return CompileContext(self._plugins, self._tree, chosen, limits.file_bytes, limits.instructions_bytes)

    def _contents(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, str, bytes]]:
        """Path, blob and content of each file; a blob that stands at several paths is read once."""
        paths: dict[str, list[str]] = {}
        for path, blob in wanted.items():
            paths.setdefault(blob, []).append(path)
        for blob, data in self._blobs.blobs(list(paths)) if paths else ():
            self._count(len(data))
            for path in paths[blob]:
                yield path, blob, data

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._settings.limits.total_bytes:
            finding = too_much(self._bytes, self._settings.limits)
            raise InvalidDesiredState("the commit is too large to be read", (finding,), hint=finding.detail)

    def _validated(self, contents: Iterable[tuple[str, str, bytes]]) -> Iterator[_OpenFile]:
        """Every file with its valid documents and with what is wrong with the others."""
        rest = iter(contents)
        while step := list(islice(rest, FILES_PER_STEP)):
            files = [_OpenFile(path, blob, data, *self._parser.parse(path, data)) for path, blob, data in step]
            for file in files:
                for document in file.documents:
                    model, wrong = validate(document, self._plugins.documents)
                    file.issues.extend(problem.at(file.origin(document)) for problem in wrong)
                    if model is not None:
                        file.models.append((document, model))
            yield from files

    def _sort(self, context: CompileContext, file: _OpenFile, document: Document, model: Strict) -> None:
        """Put a valid document where it belongs."""
        origin = file.origin(document)
        if isinstance(model, AgentDocument):
            draft, issues = compiling.draft(context, origin, model, document.raw)
            file.issues.extend(issues)
            if draft is not None:
                file.drafts.append(draft)
        elif isinstance(model, OverlayDocument):
            if model.spec.instance == self._settings.instance:
                file.overlays.append(unit_of(origin, model))
        elif isinstance(model, PolicyDocument):
            file.issues.extend(loosened(origin, model.spec))
            file.policies.append(PolicyUnit(origin, effective(model.spec)))
        elif isinstance(model, CredentialPoolDocument):
            file.pools.append(PoolUnit(origin, model.metadata.tenant or "", model.metadata.name))

    def _close(
        self, context: CompileContext, file: _OpenFile, contents: Mapping[str, bytes]
    ) -> CompiledFile | None:
        """Compile the drafts of a file; None when something is wrong with it."""
        for draft in file.drafts:
            content = contents[draft.inlined] if draft.inlined is not None else None
            if content is not None and len(content) > context.instructions_bytes:
                file.issues.append(compiling.too_long(draft, len(content), context.instructions_bytes))
                continue
            self._count(len(content or b""))  # each agent holds a copy
            unit, issues = compiling.finish(context, draft, content)
            file.issues.extend(issues)
            if unit is not None:
                file.agents.append(unit)
        if not file.issues and not errors(file.findings):
            return file.compiled()
        overlays = frozenset(overlay.digest for overlay in context.overlays)
        self.failed[file.path] = _Failure(file, file.names(), overlays)
        return None
