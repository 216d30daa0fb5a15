"""The files behind leases, in one folder that every gitops-agent of a user on this host shares.

    <lease-dir>/<instance>/lock                    held while leases change hands; holds the last token
    <lease-dir>/<instance>/holders/<id>            locked as long as that process lives; says who it is
    <lease-dir>/<instance>/agents/<tenant>.<name>  who acts on this agent: holder and token

Whoever is alive is the kernel's word: a lock of ``flock`` ends with its process, also by ``kill -9``, and counts
across pid namespaces. No file is synced, because no lease outlives a reboot.
"""

import errno
import os
import stat
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from gitops_agent.errors import UsageError
from gitops_agent.model.key import AgentKey
from gitops_agent.support import file_lock

LOCK_WAIT = 5.0
"""How long to wait for others to be done with the folder; who takes longer was stopped in the middle."""

_CAP = 16384
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Lease:
    """Who acts on an agent. ``token`` grows whenever a lease of this instance is taken, and never comes back."""

    holder: str
    token: int


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that may hold leases, as it introduces itself to others.

    ``source``: the repository, branch and path it follows, without credentials.
    """

    instance: str
    state_dir: str
    source: str
    pid: int
    since: float


class LeaseFiles:
    """The files of one instance. Whoever takes, registers or sweeps does so within ``locked``."""

    def __init__(self, folder: Path, instance: str, *, wait: float = LOCK_WAIT) -> None:
        self._folder = folder
        self._home = folder / instance
        self._holders = self._home / "holders"
        self._agents = self._home / "agents"
        self._wait = wait

    def prepare(self) -> None:
        """Make the folders; UsageError when the shared one is not ours alone, or cannot be."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self._folder)
            for below in (self._home, self._holders, self._agents):
                below.mkdir(mode=0o700, exist_ok=True)
        except OSError as problem:
            raise UsageError(
                f"{self._folder}: no lease can be kept here: {problem.strerror}", hint=_HINT
            ) from problem

    def locked(self) -> AbstractContextManager[int]:
        """One process at a time, for a moment. Gives what ``reserve`` needs; TimeoutError after a while."""
        return file_lock.locked(self._home / "lock", self._wait)

    def reserve(self, lock: int, count: int) -> int:
        """The first of so many tokens that nobody was given before."""
        known = os.pread(lock, 32, 0).split()
        last = int(known[0]) if known and known[0].isdigit() else 0
        os.pwrite(lock, f"{last + count:<20}\n".encode(), 0)
        return last + 1

    def register(self, holder: str, introduction: Holder) -> int:
        """A file that is locked until the returned handle is closed, however we end. Names are given in order."""
        handle = file_lock.open_lock_file(self._holders / holder, new=True)
        try:
            file_lock.lock(handle)
            os.write(handle, orjson.dumps(asdict(introduction)))
        except OSError:
            os.close(handle)
            self.unregister(holder)
            raise
        return handle

    def is_registered(self, holder: str, handle: int) -> bool:
        """Whether others still see the file that this handle locks: somebody may have cleaned up."""
        return file_lock.is_at(handle, self._holders / holder)

    def unregister(self, holder: str) -> None:
        """Nobody is held to be alive under this name any more."""
        (self._holders / holder).unlink(missing_ok=True)

    def is_alive(self, holder: str) -> bool:
        """Whether the process that registered under this name still lives."""
        return file_lock.is_file_locked(self._holders / holder)

    def seniors(self, holder: str) -> list[str]:
        """Who registered earlier, in order; whether they still live is another question."""
        return sorted(path.name for path in self._holders.iterdir() if path.name < holder)

    def introduction(self, holder: str) -> Holder | None:
        """How a process introduced itself; None when it cannot be read."""
        with suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
            said = orjson.loads(_read(self._holders / holder))
            instance, state_dir, source = (str(said[name]) for name in ("instance", "state_dir", "source"))
            since = datetime.fromtimestamp(float(said["since"]), UTC)
            return Holder(instance, state_dir, source, int(said["pid"]), since.timestamp())
        return None

    def read(self, agent: AgentKey) -> Lease | None:
        """The lease of an agent; None when nobody holds it, or when what is there is no lease."""
        return _lease(self._agents / _name(agent))

    def write(self, agent: AgentKey, lease: Lease) -> None:
        """Put down a lease. One that is cut short is nobody's, so it need not be replaced in one step."""
        text = orjson.dumps(asdict(lease))
        handle = os.open(self._agents / _name(agent), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600)
        try:
            if os.write(handle, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)

    def remove(self, agent: AgentKey) -> None:
        """Nobody holds this agent any more."""
        (self._agents / _name(agent)).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what the dead have left: their own files, and leases of agents that nobody may ever ask for."""
        living = set()
        for path in self._holders.iterdir():
            if self.is_alive(path.name):
                living.add(path.name)
            else:
                path.unlink(missing_ok=True)
        for path in self._agents.iterdir():
            lease = _lease(path)
            if lease is None or lease.holder not in living:
                path.unlink(missing_ok=True)


_HINT = (
    "let the user that runs gitops-agent write there, or choose another --lease-dir, the same one for every "
    "gitops-agent that may follow the same fleet on this host"
)


def _check_owner(folder: Path) -> None:
    """UsageError unless the folder is a real one, ours, and nobody else may write to it."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        said = "a link" if stat.S_ISLNK(found.st_mode) else "no folder"
    elif found.st_uid != os.geteuid():
        said = f"a folder of user id {found.st_uid}, and we are {os.geteuid()}"
    elif found.st_mode & 0o022:
        hint = f"chmod 700 {folder}, once you know that nobody else has left anything there"
        raise UsageError(f"{folder}: no lease can be kept here: other users may write to it", hint=hint)
    else:
        return
    raise UsageError(f"{folder}: no lease can be kept here: this is {said}", hint=f"remove it, or {_HINT}")


def _name(agent: AgentKey) -> str:
    # No name of ours holds a dot, so this is unambiguous.
    return f"{agent.tenant}.{agent.name}"


def _lease(path: Path) -> Lease | None:
    try:
        found = orjson.loads(_read(path))
        return Lease(str(found["holder"]), int(found["token"]))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _read(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _SAFE)
    try:
        return os.read(handle, _CAP)
    finally:
        os.close(handle)
