"""Reads files into compiled files: parse, validate, overlay, compile. One ``FileReader`` serves one load.

Contents are streamed from the blob reader and dropped as soon as a file is compiled, so that the largest fleet is
never in memory twice.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from gitops_agent.drivers.plugins import Plugins, known_settings
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.agent import Origin
from gitops_agent.model.document import (
    AgentDocument,
    CredentialPoolDocument,
    OverlayDocument,
    PolicyDocument,
)
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.finding import Finding, errors
from gitops_agent.model.key import Kind
from gitops_agent.model.strict import Strict
from gitops_agent.ports import BlobReader, TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.snapshot import compile as compiling
from gitops_agent.snapshot.codes import Code, Invalid, Issue
from gitops_agent.snapshot.compile import CompileContext, Draft
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, OverlayUnit, PolicyUnit, PoolUnit, Shared
from gitops_agent.snapshot.overlay import patched_places, unit_of
from gitops_agent.snapshot.policy import effective, loosened
from gitops_agent.snapshot.positions import Locator
from gitops_agent.snapshot.schema import Checked, validate
from gitops_agent.snapshot.second_look import Remainder
from gitops_agent.snapshot.tree import too_much
from gitops_agent.snapshot.yaml_documents import Document, FileParser

FILES_PER_STREAM = 2_500
"""Large enough to keep git busy, small enough to hold the drafts that wait for their instructions."""

FILES_PER_STEP = 64
"""So many files are parsed, then validated, then compiled. Going all the way with each file costs a third more:
the code of one step evicts that of the next from the caches of the processor."""

_NAMES = re.compile(rb"name[\"']?[ \t]*:[ \t]*[\"']?([a-z0-9-]{1,63})")
_NAME = ("metadata", "name")
_DEPENDENCIES = ("spec", "rollout", "dependsOn")
_READ_FIRST = ("overlays/", "pools/")


@dataclass(slots=True)
class _OpenFile:
    """One file while it is being read. A document with errors is here with what is left of it, so that everything
    else that is wrong is found as well. When it failed: ``names`` are all in it, whether its documents are valid
    or not, ``shared`` the digests of what was known to share, and ``partial`` what could be compiled."""

    path: str
    blob: str
    data: bytes
    documents: list[Document]
    findings: list[Finding]
    models: list[tuple[Origin, bytes, Strict, Remainder | None]] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    drafts: list[tuple[Draft, Remainder | None]] = field(default_factory=list)
    overlays: list[OverlayUnit] = field(default_factory=list)
    policies: list[PolicyUnit] = field(default_factory=list)
    pools: list[PoolUnit] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    shared: list[str] = field(default_factory=list)
    partial: CompiledFile | None = None

    def add(self, issues: list[Issue], remainder: Remainder | None) -> None:
        """Add what is wrong with a document, or with what is left of it."""
        if issues:
            self.issues += issues if remainder is None else remainder.genuine(issues)


class FileReader:
    """Turns paths into compiled files, and keeps those that have errors."""

    def __init__(
        self, blobs: BlobReader, plugins: Plugins, settings: Settings, tree: Mapping[str, TreeEntry]
    ) -> None:
        self.failed: dict[str, _OpenFile] = {}
        self.locator = Locator(settings.limits.located)
        self._blobs = blobs
        self._settings = settings
        known = known_settings(plugins, settings.drivers)
        self._context = CompileContext(plugins, tree, settings.limits, Shared(), known)
        self._parser = FileParser(settings.limits, self.locator)
        self._bytes = 0

    def failed_too_early(self, shared: Shared) -> dict[str, str]:
        """Files (path to blob) that failed before all of the overlays and pools were known."""
        known = shared.digests
        return {path: file.blob for path, file in self.failed.items() if file.shared != known}

    def read(self, wanted: Mapping[str, str], shared: Shared) -> dict[str, CompiledFile]:
        """The files (path to blob) that hold no error, compiled with these overlays and pools and their own."""
        self._context = replace(self._context, shared=shared)
        for path in wanted:
            self.failed.pop(path, None)
        # Overlays and pools usually stand there; reading them first means that few agents are compiled twice.
        paths = sorted(wanted, key=lambda path: (not path.startswith(_READ_FIRST), path))
        streams = (paths[begin : begin + FILES_PER_STREAM] for begin in range(0, len(paths), FILES_PER_STREAM))
        return {
            file.path: file
            for stream in streams
            for file in self._read_stream({path: wanted[path] for path in stream})
        }

    def _read_stream(self, wanted: Mapping[str, str]) -> Iterator[CompiledFile]:
        """The compiled files of one stream of blobs."""
        waiting: list[_OpenFile] = []
        for file in self._validated(wanted):
            for origin, raw, model, remainder in file.models:
                self._sort(file, origin, raw, model, remainder)
            if file.overlays or file.pools:
                shared = self._context.shared.plus(file.overlays, file.pools)
                self._context = replace(self._context, shared=shared)
            if any(draft.inlined is not None for draft, _ in file.drafts):
                waiting.append(file)
                file.data = b""
            elif compiled := self._close(file, {}):
                yield compiled
        inlined = {draft.inlined for file in waiting for draft, _ in file.drafts if draft.inlined is not None}
        blobs = {path: self._context.files[path].blob for path in inlined}
        contents = {path: data for path, _, data in self._contents(blobs)}
        for file in waiting:
            if compiled := self._close(file, contents):
                yield compiled

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

    def _validated(self, wanted: Mapping[str, str]) -> Iterator[_OpenFile]:
        """Every file with its valid documents and with what is wrong with the others."""
        rest, known = self._contents(wanted), self._context.plugins.documents
        while step := list(islice(rest, FILES_PER_STEP)):
            files = [_OpenFile(path, blob, data, *self._parser.parse(path, data)) for path, blob, data in step]
            for file in files:
                for document in file.documents:
                    origin = Origin(file.path, document.line, file.blob)
                    try:
                        file.models.append((origin, document.raw, validate(document, origin, known), None))
                    except Invalid as invalid:
                        file.issues.extend(invalid.issues)
                        if isinstance(left := invalid.rest, Checked):
                            file.models.append((origin, left.raw, left.model, left.remainder))
            yield from files

    def _sort(
        self, file: _OpenFile, origin: Origin, raw: bytes, model: Strict, remainder: Remainder | None
    ) -> None:
        """Put a valid document where it belongs."""
        is_whole = remainder is None or remainder.is_whole
        issues: list[Issue] = []
        if isinstance(model, AgentDocument):
            # Overlays are written for the document as it was meant: on what is left of it they mean nothing.
            shared = self._context.shared if is_whole else replace(self._context.shared, overlays=())
            context = replace(self._context, shared=shared) if not is_whole else self._context
            draft = compiling.draft(context, origin, model, raw, issues)
            if draft.unpatched:
                file.issues += draft.failures
                remainder = Remainder(raw)
                for place in patched_places(draft.unpatched):
                    remainder.doubt(place)
            file.drafts.append((draft, remainder))
        elif isinstance(model, OverlayDocument):
            if model.spec.instance == self._settings.instance and is_whole:
                file.overlays.append(unit_of(origin, model))
        elif isinstance(model, PolicyDocument):
            # A limit of all that was left out says nothing about those of a tenant.
            issues += loosened(origin, model.spec) if is_whole else ()
            file.policies.append(PolicyUnit(origin, effective(model.spec)))
        elif isinstance(model, CredentialPoolDocument):
            tenant, name = model.metadata.tenant or "", model.metadata.name
            content = canonical([tenant, name, model.spec.model_dump(mode="json")])
            file.pools.append(PoolUnit(origin, digest(content), tenant, name, model.spec))
            issues += self._unused(origin)
        file.add(issues, remainder)

    def _unused(self, origin: Origin) -> list[Issue]:
        """A pool that no installed driver can use would be declared in vain."""
        if any(kind.name == Kind.CREDENTIAL for plugin in self._context.plugins for kind in plugin.kinds):
            return []
        summary = "no driver for CredentialPool (credential): nothing would use it"
        detail = "Install a driver for it, or remove the document."
        return [Issue(Code.DRIVER_NOT_INSTALLED, ("kind",), summary, detail, origin=origin)]

    def _close(self, file: _OpenFile, contents: Mapping[str, bytes]) -> CompiledFile | None:
        """Compile the drafts of a file; None when something is wrong with it."""
        agents: list[AgentUnit] = []
        for draft, remainder in file.drafts:
            content = contents[draft.inlined] if draft.inlined is not None else None
            issues: list[Issue] = []
            unit = compiling.finish(self._context, draft, content, issues)
            file.add(issues, remainder)
            if draft.unpatched and remainder is not None and not remainder.is_genuine(_DEPENDENCIES):
                unit = replace(unit, agent=replace(unit.agent, depends_on=()))
            if draft.is_named and (remainder is None or remainder.is_genuine(_NAME)):
                agents.append(unit)
            self._count(len(content or b""))  # each agent holds a copy
        units = tuple(agents), tuple(file.overlays), tuple(file.policies), tuple(file.pools)
        if not file.issues and not (file.findings and errors(file.findings)):
            return CompiledFile(file.path, file.blob, *units, tuple(file.findings))
        file.partial = CompiledFile(file.path, file.blob, *units)
        file.names = {name.decode() for name in _NAMES.findall(file.data)}
        file.names |= {draft.key.name for draft, _ in file.drafts}
        file.shared = self._context.shared.digests
        self.failed[file.path] = file
        return None
