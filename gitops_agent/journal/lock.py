"""The lock of a state directory: one ``once`` or ``run`` at a time, released by the kernel however we end."""

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from gitops_agent.errors import LockHeld, UsageError
from gitops_agent.support.file_lock import is_file_locked, open_lock_file, try_lock

FILE_NAME = "lock"
MAX_NAME_BYTES = 512
MAX_TRIES, PAUSE_SECONDS = 100, 0.02
"""How often, and how far apart, the lock of a holder that is gone is asked for."""


@contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold a state directory meanwhile; LockHeld names the other holder.

    The lock belongs to an open file that agents do not inherit, so it ends with us even by ``kill -9``, while the
    agents live on. The file stays: removing it would let two processes lock two different files of one name.
    """
    make_state_dir(state_dir)
    with ExitStack() as stack:
        path = state_dir / FILE_NAME
        try:
            handle = open_lock_file(path)
            stack.callback(os.close, handle)
            _lock(handle, path)
        except OSError as error:
            raise UsageError(
                f"{path}: the state directory cannot be locked: {error.strerror}",
                hint="let the user that runs gitops-agent write there, or choose another --state-dir",
            ) from error
        yield


def _lock(handle: int, path: Path) -> None:
    """Take the lock and write down whose it is.

    A process that a killed holder was just starting keeps the lock until it runs: a matter of milliseconds
    and good so: before that, it could not be seen whose it is.
    """
    tries = 0
    while not try_lock(handle):
        if tries == MAX_TRIES or not _is_gone(path):
            raise LockHeld(
                f"{path.parent}: another gitops-agent works in this state directory: {_holder(path)}",
                hint="wait for it or stop it, or give this one its own --state-dir; "
                "status, explain, history and plan work beside it",
            )
        tries += 1
        time.sleep(PAUSE_SECONDS)
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())


def _is_gone(path: Path) -> bool:
    """Whether the process named in the file was of this machine, and has ended."""
    pid, host = _written(path)
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it belongs to another user, so it is there
    return False


def holder(state_dir: Path) -> str | None:
    """The process that works in a state directory now, in words; None when there is none, or it cannot be seen."""
    path = state_dir / FILE_NAME
    try:
        return _holder(path) if is_file_locked(path) else None
    except OSError:
        return None


def make_state_dir(path: Path) -> list[str]:
    """Make sure that the state directory exists and is for its owner alone; what was open to others until now.
    UsageError says why it cannot be used."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return close_to_others(path)
    except OSError as error:
        raise UsageError(
            f"{path}: the state directory cannot be used: {error.strerror}",
            hint="remove what is in the way, let the user that runs gitops-agent write there, "
            "or choose another --state-dir",
        ) from error


def close_to_others(path: Path) -> list[str]:
    """Take the rights of group and others from the state directory and what is in it; the names that had some.
    It may have been made by others than us (``StateDirectory=`` of systemd makes it readable for all), and holds
    a copy of a private repository. What is not ours to change stays as it is, and ``doctor`` names it."""
    closed = []
    for name in open_to_others(path):
        with suppress(OSError):
            handle = os.open(path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) & 0o700)
            finally:
                os.close(handle)
            closed.append(name)
    return closed


def open_to_others(path: Path) -> list[str]:
    """What of a state directory group or others may read or write, by its name there; ``.``: the folder itself."""
    entries = [(".", path.stat())]
    with os.scandir(path) as found, suppress(FileNotFoundError):
        entries += [(each.name, each.stat(follow_symlinks=False)) for each in found if not each.is_symlink()]
    return sorted(name for name, seen in entries if seen.st_mode & 0o077)


def _holder(path: Path) -> str:
    """The process named in the file, and since when: the time is that of the file, so no clock is needed."""
    pid, host = _written(path)
    since = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return f"pid {pid or 'unknown'} on {host or 'unknown'}, since {since:%Y-%m-%d %H:%M:%S} UTC"


def _written(path: Path) -> tuple[str, str]:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        pid, _, host = file.read(MAX_NAME_BYTES).decode(errors="replace").strip().partition(" ")
    return pid, host
