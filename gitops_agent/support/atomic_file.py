"""Files replaced whole or not at all: temporary file beside it, fsync, rename, fsync of the folder."""

import os
import threading
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file so that readers see the old one or the new one, also after a power cut; OSError otherwise."""
    folder = os.open(path.parent, _FOLDER)
    try:
        write_atomic_at(folder, path.name, data, mode=mode)
    finally:
        os.close(folder)


def write_atomic_at(folder: int, name: str, data: bytes, *, mode: int = 0o600) -> None:
    """The same in a folder that is open already, which no link can stand in for."""
    temporary = f".{name}.{os.getpid()}-{threading.get_ident()}.tmp"
    remove_at(folder, temporary)
    try:
        with os.fdopen(os.open(temporary, _NEW, mode, dir_fd=folder), "wb") as stream:
            os.fchmod(stream.fileno(), mode)  # whatever the umask is
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        remove_at(folder, temporary)
        raise


def remove_at(folder: int, name: str) -> None:
    """Make sure that a file is not there (a link is removed, not what it points to)."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
