"""The folder of the mirror on disk: locked while it changes, replaced as a whole, tidied after a crash."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gitops_agent.errors import UsageError
from gitops_agent.support.file_lock import locked


def exists(directory: Path) -> bool:
    """Whether the bones of a repository are there."""
    return (directory / "HEAD").is_file() and all((directory / name).is_dir() for name in ("objects", "refs"))


def beside(directory: Path) -> Path:
    """An empty place for a new mirror, on the same file system."""
    fresh = directory.with_name(directory.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)  # git goes by the umask, and the repository may be private
    return fresh


def swap(fresh: Path, directory: Path) -> None:
    """Put the new mirror in the place of the old one. ``recover`` finishes what a crash in between leaves."""
    old = _old(directory)
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    fresh.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def recover(directory: Path) -> None:
    """After a crash: the old mirror comes back if the new one did not arrive; stale locks and parts go.

    The locks of ``fetching`` and ``exclusive`` are held, so a lock file of git has no living owner.
    """
    old = _old(directory)
    if old.exists() and not directory.exists():
        old.rename(directory)
    for pattern in ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/tmp_objdir-*"):
        for stale in directory.glob(pattern):
            shutil.rmtree(stale, ignore_errors=True) if stale.is_dir() else stale.unlink(missing_ok=True)


def _old(directory: Path) -> Path:
    return directory.with_name(directory.name + ".old")


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """One writer of refs and objects at a time, across threads and processes; the kernel lets go when the holder
    dies. Held for moments, never while a remote is waited for."""
    with _held(directory, ".lock"):
        yield


@contextmanager
def fetching(directory: Path) -> Iterator[None]:
    """One fetch into the mirror at a time. Held as long as the remote takes; asked for before ``exclusive``."""
    with _held(directory, ".fetch.lock"):
        yield


@contextmanager
def _held(directory: Path, suffix: str) -> Iterator[None]:
    with ExitStack() as held:
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(directory.with_name(directory.name + suffix)))
        except OSError as problem:
            raise unwritable(directory.parent, problem) from problem
        yield


def unwritable(folder: Path, problem: OSError) -> UsageError:
    """The error for a state directory that takes no files."""
    return UsageError(
        f"state directory {folder} cannot be written: {problem.strerror}",
        hint="choose a writable folder with --state-dir, or free disk space",
    )
