"""Commit in, snapshot out; or every reason why not.

A load starts from the last good one: only what differs is read, and what hangs on it (overlays, inlined files,
dependencies) is checked again. Agents that nothing touched stay the same objects. A commit that is not valid
leaves no trace here.
"""

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
from gitops_agent.snapshot.compiled_file import CompiledFile, Shared
from gitops_agent.snapshot.file_reader import FileReader
from gitops_agent.snapshot.index import Index, is_current
from gitops_agent.snapshot.positions import located
from gitops_agent.snapshot.tree import REGULAR, TreeChanges
from gitops_agent.snapshot.vanished import Since, vanished_documents
from gitops_agent.snapshot.yaml_documents import too_large
from gitops_agent.support.gc import gc_paused

FROZEN_FROM_FILES = 1_000
"""From so many files on, the objects of a load are taken out of garbage collection."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The last good load."""

    snapshot: Snapshot
    tree: TreeChanges
    index: Index


class Loader:
    """Commit in, snapshot out: over a reader of blobs and the drivers' plugins."""

    def __init__(
        self, reader: BlobReader, plugins: Plugins, settings: Settings, cache: Cache | None = None
    ) -> None:
        self._reader = reader
        self._plugins = plugins
        self._settings = settings
        self._cache = cache
        self._last: _Loaded | None = None

    def load(self, revision: Revision, in_force: Snapshot | None = None) -> Snapshot:
        """The snapshot of a revision; InvalidDesiredState with every finding otherwise. ``in_force``: what it
        would follow, so that no slip ends an agent."""
        if not revision.tree:
            place, summary = FilePosition(self._settings.path), "the path does not exist in this commit"
            way_out = "Create the folder in the repository, or correct --path."
            raise _refused(revision, [error(Code.MISSING_PATH, place, summary, way_out)])
        last = self._last
        if last is not None and last.snapshot.revision.tree == revision.tree:
            if slips := vanished_documents(in_force, last.index, last.tree, {}, self._since(revision)):
                raise _refused(revision, slips)
            self._last = replace(last, snapshot=replace(last.snapshot, revision=revision))
            return self._last.snapshot
        with gc_paused():
            self._last = self._load_from(revision, last, in_force)
        if len(self._last.tree.documents) >= FROZEN_FROM_FILES:
            # Thousands of objects that live as long as the process: never to be walked again.
            gc.freeze()
        return self._last.snapshot

    def recall(self, revision: Revision) -> Snapshot | None:
        """The snapshot of a revision that was accepted once and is refused now: each refused file is taken as it
        was compiled when it was not. None when one is not known so. The next load does not start from it."""
        try:
            tree = self._tree(revision, None)
            files = FileReader(self._reader, self._plugins, self._settings, tree.files)
            index = self._index(files, tree, Index(), of_any_version=True)
        except (InvalidDesiredState, SourceRefused):
            return None
        # A path that is refused may have held agents, which must not look as if they had been deleted.
        known = not files.failed and not errors(tree.findings)
        return Snapshot(revision, index.agents, _policy(index), ()) if known else None

    def _load_from(self, revision: Revision, last: _Loaded | None, in_force: Snapshot | None) -> _Loaded:
        try:
            return self._load(revision, last, in_force)
        except SourceRefused:
            if last is None:
                raise
            # A blob too large to be handed out. Differences name no sizes, a listing does: it can be addressed.
            return self._load(revision, None, in_force)

    def _load(self, revision: Revision, last: _Loaded | None, in_force: Snapshot | None) -> _Loaded:
        tree = self._tree(revision, last)
        if refusals := tree.over_limits(self._settings.limits):
            raise _refused(revision, refusals + tree.findings)
        files = FileReader(self._reader, self._plugins, self._settings, tree.files)
        index = self._index(files, tree, last.index if last is not None else Index())
        failed = files.failed.values()
        findings = tree.findings + tree.notes() + index.findings
        findings += [finding for file in failed for finding in file.findings]
        names = {file.path: file.names for file in failed}
        findings += vanished_documents(in_force, index, tree, names, self._since(revision))
        issues = [issue for file in failed for issue in file.issues]
        # A reference to a name in a file with errors is not reported as well.
        issues += index.issues(suspects={name for file in failed for name in file.names})
        findings += located(issues, self._reader, files.locator)
        if errors(findings):
            raise _refused(revision, findings)
        if self._cache is not None:
            self._cache.trim(index.files)
        snapshot = Snapshot(revision, index.agents, _policy(index), in_order(findings + index.warnings()))
        return _Loaded(snapshot, tree, index)

    def _since(self, revision: Revision) -> Since:
        return lambda in_force: self._reader.changed(in_force.revision.sha, revision.sha)

    def _tree(self, revision: Revision, last: _Loaded | None) -> TreeChanges:
        """What differs from the last good load; all of the tree when there is none, or the rules changed."""
        if last is not None:
            changes = self._reader.changed(last.snapshot.revision.sha, revision.sha)
            if all(change.path != ignore.IGNORE_FILE for change in changes):
                return last.tree.after(changes)
        entries = list(self._reader.entries(revision.sha))
        file = next((entry for entry in entries if entry.path == ignore.IGNORE_FILE), None)
        ignored, problems = self._ignored(file)
        if problems:  # what else would be read, and found, is not known
            raise _refused(revision, problems)
        return TreeChanges(ignored).after(entries)

    def _ignored(self, file: TreeEntry | None) -> tuple[ignore.Ignored, list[Finding]]:
        if file is None or file.mode not in REGULAR:
            return ignore.Ignored(), []
        allowed = self._settings.limits.file_bytes
        if (file.size or 0) > allowed:
            return ignore.Ignored(), [too_large(file.path, file.size or 0, allowed, ignore.SHORTER)]
        return ignore.read(next(data for _, data in self._reader.blobs([file.blob])), allowed)

    def _index(
        self, files: FileReader, tree: TreeChanges, before: Index, *, of_any_version: bool = False
    ) -> Index:
        """The index after reading what is new or changed, then what the overlays and pools in force concern."""
        gone = before.files.keys() if tree.whole else tree.changed
        wanted = {**({} if tree.whole else before.inlining(tree.changed)), **tree.documents}
        known = self._known(wanted, before, tree, of_any_version)
        missing = {path: blob for path, blob in wanted.items() if path not in known}
        at_hand = [*(file for file in before.special.values() if file.path not in gone), *known.values()]
        overlays = [overlay for file in at_hand for overlay in file.overlays]
        pools = [pool for file in at_hand for pool in file.pools]
        read = files.read(missing, Shared().plus(overlays, pools))
        index = before.after({*gone, *wanted}, (known | read).values())
        if again := index.stale(before.shared) | files.failed_too_early(index.shared):
            read |= files.read(again, index.shared)
            index = before.after({*gone, *wanted, *again}, (known | read).values())
        if self._cache is not None:
            self._cache.put(list(read.values()))
        if partial := {path: file.partial for path, file in files.failed.items() if file.partial is not None}:
            # The commit is refused; what its other documents refer to is checked all the same.
            index = before.after({*gone, *wanted, *again}, (known | read | partial).values())
        return index

    def _known(
        self, wanted: Mapping[str, str], before: Index, tree: TreeChanges, of_any_version: bool
    ) -> dict[str, CompiledFile]:
        """Files that need no reading: still in memory, or in the cache, with the same files inlined."""
        known = before.unchanged(wanted)
        if self._cache is not None and len(known) < len(wanted):
            known = {**self._cache.get(wanted, of_any_version=of_any_version), **known}
        return {path: file for path, file in known.items() if is_current(file, tree.files)}


def _policy(index: Index) -> PolicySpec:
    return index.policies[0].spec if index.policies else PolicySpec()


def _refused(revision: Revision, findings: list[Finding]) -> InvalidDesiredState:
    ordered = in_order(findings)
    wrong = errors(ordered)
    files = len({finding.address.rsplit(":", 2)[0] for finding in wrong})
    message = f"commit {revision.short} is not valid: {counted(len(wrong), 'error')} in {counted(files, 'file')}"
    return InvalidDesiredState(message, ordered, hint="correct them; the last good commit stays in force")
