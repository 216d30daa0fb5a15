"""Leases on this host: of all gitops-agents of one name, one at a time acts on an agent.

Two of them with two state directories know nothing of each other's journal, but what they act on is here, so here
is where they meet. A lease is kept as long as its holder lives, whether it has anything to do or not; there is no
time in it, so no clock that jumps and no long stop takes it away. The files are in one folder that every
gitops-agent of a user on this host shares:

    <lease-dir>/<instance>/lock                    held while leases change hands; holds the last token
    <lease-dir>/<instance>/holders/<id>            locked as long as that process lives; says which one it is
    <lease-dir>/<instance>/agents/<tenant>.<name>  the holder of this agent, and its token

Which process is alive, the kernel knows: a lock of ``flock`` ends with its process, also by ``kill -9``, and
counts across pid namespaces. No file is synced, because no lease outlives a reboot.
"""

import errno
import os
import stat
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
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
_HINT = (
    "let the user that runs gitops-agent write there, or choose another --lease-dir, the same one for every "
    "gitops-agent that may follow the same fleet on this host"
)
_WAY_OUT = (
    "make room there, let the user that runs gitops-agent write there, or choose another --lease-dir; if another "
    "gitops-agent was stopped by a signal, continue or end it"
)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who acts on an agent. ``token`` grows whenever a lease of this instance is taken, and never comes back."""

    holder: str
    token: int


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that may hold leases, as it introduces itself to others.
    ``source``: the repository, branch and path it follows, without credentials."""

    instance: str
    state_dir: str
    source: str
    pid: int
    since: float


class HostLeases:
    """The leases of this process, held while it is entered. ``claim`` is for one thread, ``holds`` for many."""

    def __init__(self, folder: Path, holder: Holder, *, wait: float = LOCK_WAIT) -> None:
        self._folder = folder
        self._home = folder / holder.instance
        self._holders = self._home / "holders"
        self._agents = self._home / "agents"
        self._holder = holder
        self._wait = wait
        self._mutex = threading.Lock()
        self._id = ""
        self._handle: int | None = None
        self._held: dict[AgentKey, Lease] = {}

    def __enter__(self) -> "HostLeases":
        try:
            self._register()
        except OSError as problem:
            raise UsageError(self._complaint(problem), hint=_WAY_OUT) from problem
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # What cannot be cleaned up here is swept by the next one: the kernel knows which are dead.
            with suppress(OSError), self._locked():
                for agent in [agent for agent in self._held if self.holds(agent)]:
                    self._path(agent).unlink(missing_ok=True)
                (self._holders / self._id).unlink(missing_ok=True)
        finally:
            self._let_go()

    def claim(self, agents: Collection[AgentKey]) -> dict[AgentKey, str]:
        """Take or keep the leases of some agents; for each that is not ours now, why not.
        Never raises for what the folder does: a lease that cannot be taken is not held."""
        try:
            # Others may have cleaned up the file that our handle locks.
            if self._handle is None or not file_lock.is_at(self._handle, self._holders / self._id):
                self._register()
            wanted = sorted(agent for agent in agents if not self.holds(agent))
            return dict(self._take(wanted)) if wanted else {}
        except OSError as problem:
            refusal = f"its lease cannot be taken: {self._complaint(problem)}"
        except UsageError as problem:
            refusal = f"its lease cannot be taken: {problem.message}; {problem.hint}"
        return {agent: refusal for agent in agents if not self.holds(agent)}

    def holds(self, agent: AgentKey) -> bool:
        """Whether the lease on file is the very one we took: the fence before every effect."""
        mine = self._held.get(agent)
        try:
            return mine is not None and _lease(self._path(agent)) == mine
        except OSError:
            return False

    def senior_holder(self) -> str:
        """A sentence that names the process that followed the same source before us; "" without one."""
        try:
            with self._locked():
                return self._senior_holder({})
        except OSError:
            return ""

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """One process at a time, for a moment. Gives what ``_reserve`` needs; TimeoutError after a while."""
        # Threads of ours wait for each other by the mutex: the lock of a file would be asked for again and again.
        with self._mutex, file_lock.locked(self._home / "lock", self._wait) as lock:
            yield lock

    def _path(self, agent: AgentKey) -> Path:
        # No name of ours holds a dot, so this is unambiguous.
        return self._agents / f"{agent.tenant}.{agent.name}"

    def _take(self, agents: Collection[AgentKey]) -> Iterator[tuple[AgentKey, str]]:
        others: dict[str, str] = {}  # a sentence for each live holder, "" for a dead one
        with self._locked() as lock:
            senior_holder = self._senior_holder(others)
            tokens = _reserve(lock, len(agents))
            for token, agent in enumerate(agents, tokens):
                path = self._path(agent)
                found = _lease(path)
                taken = self._refusal(found.holder, others) if found and found.holder != self._id else ""
                if refusal := taken or senior_holder:
                    self._held.pop(agent, None)
                    yield agent, refusal
                    continue
                lease = Lease(self._id, token if found is None else max(token, found.token + 1))
                _write(path, lease)
                self._held[agent] = lease

    def _refusal(self, holder: str, known: dict[str, str]) -> str:
        """Why a lease of this holder is not ours to take; nothing when the holder is dead."""
        if holder not in known:
            path = self._holders / holder
            known[holder] = _sentence(_introduction(path)) if file_lock.is_file_locked(path) else ""
        return known[holder]

    def _senior_holder(self, known: dict[str, str]) -> str:
        """Why nothing new is ours to take: one that follows the same source was here before us, and lives.
        Without this rule each of the two would win some of the agents that a commit adds, and neither would ever
        see its commit converge."""
        for path in sorted(path for path in self._holders.iterdir() if path.name < self._id):
            other = _introduction(path)
            if other and other.source == self._holder.source and (refusal := self._refusal(path.name, known)):
                return refusal
        return ""

    def _let_go(self) -> None:
        self._held.clear()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _register(self) -> None:
        """Register with the others, under a new name; what we held under another is lost.
        Our file is locked as long as its handle is open, however we end. Names are given in order."""
        self._let_go()
        self._prepare()
        with self._locked() as lock:
            self._sweep()
            name = f"{_reserve(lock, 1):020d}-{uuid.uuid4().hex}"
            handle = file_lock.open_lock_file(self._holders / name, new=True)
            try:
                file_lock.lock(handle)
                os.write(handle, orjson.dumps(asdict(self._holder)))
            except OSError:
                os.close(handle)
                (self._holders / name).unlink(missing_ok=True)
                raise
            self._handle, self._id = handle, name

    def _prepare(self) -> None:
        """Make the folders; UsageError when the shared one is not ours alone, or cannot be."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self._folder)
            for below in (self._home, self._holders, self._agents):
                below.mkdir(mode=0o700, exist_ok=True)
        except OSError as problem:
            message = f"{self._folder}: no lease can be kept here: {problem.strerror}"
            raise UsageError(message, hint=_HINT) from problem

    def _sweep(self) -> None:
        """Remove what the dead have left: their own files, and leases of agents that may never be asked for."""
        living = set()
        for path in self._holders.iterdir():
            if file_lock.is_file_locked(path):
                living.add(path.name)
            else:
                path.unlink(missing_ok=True)
        for path in self._agents.iterdir():
            lease = _lease(path)
            if lease is None or lease.holder not in living:
                path.unlink(missing_ok=True)

    def _complaint(self, problem: OSError) -> str:
        return f"{self._folder}: {problem.strerror or problem}"


def _check_owner(folder: Path) -> None:
    """UsageError unless the folder is a real one, ours, and no other user may write to it."""
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


# -- the files


def _reserve(lock: int, count: int) -> int:
    """The first of so many tokens that were never given before."""
    known = os.pread(lock, 32, 0).split()
    last = int(known[0]) if known and known[0].isdigit() else 0
    os.pwrite(lock, f"{last + count:<20}\n".encode(), 0)
    return last + 1


def _introduction(path: Path) -> Holder | None:
    """How a process introduced itself; None when it cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
        said = orjson.loads(_read(path))
        instance, state_dir, source = (str(said[name]) for name in ("instance", "state_dir", "source"))
        since = datetime.fromtimestamp(float(said["since"]), UTC)
        return Holder(instance, state_dir, source, int(said["pid"]), since.timestamp())
    return None


def _lease(path: Path) -> Lease | None:
    """The lease on file; None when there is none, or when what is there is no lease."""
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


def _write(path: Path, lease: Lease) -> None:
    """Put down a lease. One that is cut short is no lease, so it need not be replaced in one step."""
    text = orjson.dumps(asdict(lease))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE, 0o600)
    try:
        if os.write(handle, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(handle)


def _sentence(holder: Holder | None) -> str:
    if holder is None:
        return "acted on by another gitops-agent that cannot be identified; this one waits"
    since = datetime.fromtimestamp(holder.since, UTC)
    return (
        f"acted on by another gitops-agent (instance {holder.instance}, state directory {holder.state_dir}, "
        f"pid {holder.pid}, since {since:%Y-%m-%d %H:%M:%S} UTC); this one waits"
    )
