"""A plain folder as a reader of blobs, so that a desired repository can be validated offline and without git."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState, SourceError, UsageError
from gitops_agent.model.finding import Finding
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import BlobReader, TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.snapshot.loader import Loader

_UNNAMED = Revision("folder", "folder", (), author="", authored_at=0.0, committed_at=0.0, message="")


class FolderReader:
    """Reads a folder as if it were the tree of a commit. Links are reported as such and never followed.
    ``named_up_to``: files of at most so many bytes are named by their content, as git names them.
    ``before``: the reader of the commit that it follows."""

    def __init__(self, path: Path, named_up_to: int = -1, before: BlobReader | None = None) -> None:
        if not path.is_dir():
            raise UsageError(f"not a folder: {path}", hint="give the folder of a desired repository")
        self._root = path
        self._named_up_to = named_up_to
        self._before = before
        self._paths: dict[str, str] = {}

    def entries(self, sha: str) -> Sequence[TreeEntry]:
        """Every file below the folder as it is now, whatever ``sha`` is."""
        del sha
        return list(self._walk(self._root, ""))

    def changed(self, old_sha: str, new_sha: str) -> Sequence[TreeEntry]:
        """The files that the commit before does not have, or has with other content."""
        known = {(each.path, each.blob) for each in self._before.entries(old_sha)} if self._before else ()
        return [each for each in self.entries(new_sha) if (each.path, each.blob) not in known]

    def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of files by the ids that they were listed with."""
        for identity in ids:
            yield identity, self._read(self._paths[identity])

    def _identity(self, path: str, about: os.stat_result) -> str:
        """The id of a file: as git names it, or by its path, size and time of change, which needs no reading."""
        identity = f"{path}\0{about.st_size}.{about.st_mtime_ns}"
        if stat.S_ISREG(about.st_mode) and about.st_size <= self._named_up_to:
            data = self._read(path)
            identity = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        self._paths[identity] = path
        return identity

    def _read(self, path: str) -> bytes:
        # Since it was listed a file may have become a link or a pipe: neither is followed nor waited for.
        handle = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else b""

    def _walk(self, folder: Path, prefix: str) -> Iterator[TreeEntry]:
        with os.scandir(folder) as children:
            for child in sorted(children, key=lambda child: child.name):
                path = prefix + child.name
                if child.is_dir(follow_symlinks=False):
                    # Dot-folders at the top give no findings, and .git may be large.
                    if child.name != ".git" and (prefix or not child.name.startswith(".")):
                        yield from self._walk(Path(child.path), path + "/")
                    continue
                about = child.stat(follow_symlinks=False)
                mode = "100644" if stat.S_ISREG(about.st_mode) else "160000"
                mode = "120000" if stat.S_ISLNK(about.st_mode) else mode
                yield TreeEntry(mode, "blob", self._identity(path, about), about.st_size, path)


def validate_folder(
    path: Path,
    plugins: Plugins,
    settings: Settings,
    before: Snapshot | None = None,
    reader_before: BlobReader | None = None,
) -> tuple[Finding, ...]:
    """Every finding about the folder as desired state that follows another one; valid when none is an error."""
    files = {agent.origin.path for agent in before.agents.values()} if before is not None else ()
    # Only a file that is gone may have moved, and only then contents are compared.
    has_gone = any(not (path / file).exists() for file in files)
    try:
        reader = FolderReader(path, settings.limits.file_bytes if has_gone else -1, reader_before)
        return Loader(reader, plugins, settings).load(_UNNAMED, before).findings
    except InvalidDesiredState as invalid:
        return invalid.findings


def snapshot_of(reader: BlobReader, plugins: Plugins, settings: Settings) -> Snapshot | None:
    """The desired state of the one commit that is read; None when it is not valid, or cannot be read."""
    try:
        return Loader(reader, plugins, settings).load(_UNNAMED)
    except (InvalidDesiredState, SourceError):
        return None
