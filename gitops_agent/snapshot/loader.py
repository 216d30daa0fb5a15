"""Commit in, snapshot out; or every reason why not.

A load starts from the last good one: only what differs is read, and what hangs on it (overlays, inlined files,
dependencies) is looked at again. Agents that nothing touched stay the same objects. A commit that is not valid
leaves no trace here.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState, SourceRefused
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding, errors
from gitops_agent.model.quantity import counted
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import BlobReader, TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.snapshot import ignore
from gitops_agent.snapshot.cache import Cache
from gitops_agent.snapshot.codes import Code, FilePosition, error, in_order
from gitops_agent.snapshot.compiled_file import FileUnit
from gitops_agent.snapshot.file_reader import Reading
from gitops_agent.snapshot.index import Index
from gitops_agent.snapshot.locate import located
from gitops_agent.snapshot.tree_changes import Change, Survey
from gitops_agent.snapshot.tree_rules import REGULAR, TreeRules
from gitops_agent.support.gc import gc_paused

BULK = 1_000
"""From so many files on, a load is worth telling the garbage collector to look away."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last good load."""

    snapshot: Snapshot
    survey: Survey
    index: Index


class Loader:
    """Implements ``ports.SnapshotLoader`` over a reader of blobs and the drivers' plugins."""

    def __init__(
        self, reader: BlobReader, plugins: Plugins, settings: Settings, cache: Cache | None = None
    ) -> None:
        self._reader = reader
        self._plugins = plugins
        self._settings = settings
        self._cache = cache
        self._kept: _Kept | None = None

    def load(self, revision: Revision) -> Snapshot:
        """The snapshot of a revision; InvalidDesiredState with every finding otherwise."""
        if not revision.tree:
            raise _refused(revision, [_no_path(self._settings.path)])
        kept = self._kept
        if kept is not None and kept.snapshot.revision.tree == revision.tree:
            self._kept = replace(kept, snapshot=replace(kept.snapshot, revision=revision))
            return self._kept.snapshot
        with gc_paused():
            self._kept = self._load_from(revision, kept)
        if len(self._kept.survey.touched) >= BULK:
            # Thousands of objects that live as long as the process: never to be walked again.
            gc.freeze()
        return self._kept.snapshot

    def _load_from(self, revision: Revision, kept: _Kept | None) -> _Kept:
        try:
            return self._load(revision, kept)
        except SourceRefused:
            if kept is None:
                raise
            # A blob too large to be handed out. Differences name no sizes, a listing does: it can be addressed.
            return self._load(revision, None)

    def _load(self, revision: Revision, kept: _Kept | None) -> _Kept:
        survey = self._survey(revision, kept)
        if refusals := survey.over_limits(self._settings.limits):
            raise _refused(revision, refusals + survey.findings)
        before = kept.index if kept is not None else Index()
        reading = Reading(self._reader, self._plugins, self._settings, survey.entries)
        index = self._indexed(reading, survey, before)
        issues = reading.issues + index.issues(reading.suspects)
        findings = survey.findings + survey.notes() + reading.findings + index.notes()
        findings += located(issues, self._reader, reading.locator)
        if errors(findings):
            raise _refused(revision, findings)
        if self._cache is not None:
            self._cache.trim(index.files)
        return _Kept(_snapshot(revision, index, findings + index.doubts()), survey, index)

    def _survey(self, revision: Revision, kept: _Kept | None) -> Survey:
        """What differs from the last good load; all of the tree when there is none, or the rules changed."""
        if kept is not None:
            changes = [
                Change(path, mode, blob)
                for path, _, blob, mode in self._reader.changed(kept.snapshot.revision.sha, revision.sha)
            ]
            if all(change.path != ignore.IGNORE_FILE for change in changes):
                return kept.survey.after(changes)
        entries = self._reader.entries(revision.sha)
        file = next((entry for entry in entries if entry.path == ignore.IGNORE_FILE), None)
        ignored, problems = self._ignored(file)
        if problems:  # what else would be read, and found, nobody knows
            raise _refused(revision, problems)
        return Survey(TreeRules(ignored)).after(Change(e.path, e.mode, e.blob, e.size) for e in entries)

    def _ignored(self, entry: TreeEntry | None) -> tuple[ignore.Ignored, list[Finding]]:
        if entry is None or entry.mode not in REGULAR:
            return ignore.Ignored(), []
        allowed = self._settings.limits.file_bytes
        if (entry.size or 0) > allowed:
            return ignore.Ignored(), [ignore.too_large(entry.size or 0, allowed)]
        return ignore.read(next(data for _, data in self._reader.blobs([entry.blob])), allowed)

    def _indexed(self, reading: Reading, survey: Survey, before: Index) -> Index:
        """Read what is new or changed, then what the overlays in force concern."""
        gone = set(before.files) if survey.whole else survey.moved
        wanted = {**_inlining(before, survey), **survey.touched}
        units = self._known(wanted, before, survey)
        missing = {path: blob for path, blob in wanted.items() if path not in units}
        staying = (unit for unit in before.special.values() if unit.path not in gone)
        overlays = [overlay for unit in (*staying, *units.values()) for overlay in unit.overlays]
        units |= reading.read(missing, overlays)
        index = before.after({*gone, *wanted}, units)
        again = index.stale(before.overlays) | reading.hasty(index.overlays)
        if again:
            units |= reading.read(again, index.overlays)
            index = before.after({*gone, *wanted, *again}, units)
        if self._cache is not None:
            self._cache.put([unit for path, unit in units.items() if path in missing or path in again])
        return index

    def _known(self, wanted: Mapping[str, str], before: Index, survey: Survey) -> dict[str, FileUnit]:
        """Units that need no reading: still in memory, or in the cache, with the same files inlined."""
        known = {path: before.files[path] for path, blob in wanted.items() if _is_blob(before, path, blob)}
        if self._cache is not None and len(known) < len(wanted):
            known = {**self._cache.get(wanted), **known}
        return {path: unit for path, unit in known.items() if _is_current(unit, survey)}


def _is_blob(index: Index, path: str, blob: str) -> bool:
    return path in index.files and index.files[path].blob == blob


def _is_current(unit: FileUnit, survey: Survey) -> bool:
    inlined = [agent.inlined for agent in unit.agents if agent.inlined is not None]
    return all(path in survey.entries and survey.entries[path].blob == blob for path, blob in inlined)


def _inlining(before: Index, survey: Survey) -> dict[str, str]:
    """The documents that inline a file which moved."""
    if survey.whole:
        return {}
    paths = {path for moved in survey.moved for path in before.readers.get(moved, ())} - survey.moved
    return {path: before.files[path].blob for path in paths}


def _snapshot(revision: Revision, index: Index, findings: list[Finding]) -> Snapshot:
    policies = index.policies()
    policy = policies[0].spec if policies else PolicySpec()
    return Snapshot(revision, index.agents, policy, in_order(findings))


def _no_path(path: str) -> Finding:
    detail = "Create the folder in the repository, or correct --path."
    return error(Code.MISSING_PATH, FilePosition(path), "the path does not exist in this commit", detail)


def _refused(revision: Revision, findings: list[Finding]) -> InvalidDesiredState:
    ordered = in_order(findings)
    wrong = errors(ordered)
    files = len({finding.address.rsplit(":", 2)[0] for finding in wrong})
    message = f"commit {revision.short} is not valid: {counted(len(wrong), 'error')} in {counted(files, 'file')}"
    return InvalidDesiredState(message, ordered, hint="correct them; the last good commit stays in force")
