"""Events of the file system when a branch of a local repository moves, or another ref that we read.

Folders are watched one by one and not recursively, since below the repository are its objects: the repository
itself (HEAD, packed-refs), ``refs``, ``refs/heads`` and the folders of a name such as ``team/prod``. When one of
them comes or goes the watch starts again. Only a different value of a ref is reported, so that a missed or
doubled event does no harm.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from watchfiles import watch

from gitops_agent.errors import GitopsAgentError, UsageError
from gitops_agent.model.key import AgentKey
from gitops_agent.source.mirror import Mirror

_STEP_MS = 10
_RETRY_SECONDS = 0.5


class RefWatcher:
    """Calls ``notify()`` from a thread of its own when the branch, or a ref in ``also``, has another value."""

    def __init__(self, mirror: Mirror, notify: Callable[[], None], also: Sequence[str] = ()) -> None:
        address = mirror.address
        if address.local is None:
            raise UsageError(f"repository {address.target} is not local", hint="only path and file can be watched")
        self._mirror = mirror
        self._repository = address.local
        self._refs = (f"refs/heads/{mirror.branch}", *also)
        self._notify = notify
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: list[str | None] = []

    def start(self, notify: Callable[[AgentKey, str], None] | None = None) -> None:
        """Begin to watch; the value the branch has now is known and not reported. It is about no agent."""
        del notify
        self._seen = self._values()
        self._thread = threading.Thread(target=self._run, name="ref-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            folders = _folders(git_dir(self._repository), self._refs)
            try:
                if folders:
                    self._watch(folders)
            except (OSError, RuntimeError):
                folders = {}  # gone in between, or no inotify left: look by ourselves until watching works
            self._look()
            if not folders:
                self._stop.wait(_RETRY_SECONDS)

    def _watch(self, folders: dict[Path, int]) -> None:
        """Watch until ``stop``, or until the folders to watch are others."""
        events = watch(
            *folders,
            watch_filter=None,
            debounce=_STEP_MS * 2,
            step=_STEP_MS,
            stop_event=self._stop,
            rust_timeout=500,
            yield_on_timeout=True,
            recursive=False,
            raise_interrupt=False,
        )
        # The first round comes by timeout at the latest and covers what moved before the watch was in place.
        for _ in events:
            self._look()
            if _folders(git_dir(self._repository), self._refs) != folders:
                return

    def _look(self) -> None:
        values = self._values()
        if values != self._seen:
            self._seen = values
            self._notify()

    def _values(self) -> list[str | None]:
        """The values of the refs; those last seen while they cannot be read, which a pass reports, not we."""
        try:
            there = self._mirror.git.at(git_dir(self._repository))
            return [there.ref(name) for name in self._refs]
        except (GitopsAgentError, OSError):
            return self._seen


def git_dir(repository: Path) -> Path:
    """Where a bare or non-bare repository (also a linked work tree) keeps its refs."""
    inside = repository / ".git"
    try:
        if inside.is_file():
            inside = repository / inside.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            shared = inside / "commondir"
            return inside / shared.read_text(encoding="utf-8").strip() if shared.is_file() else inside
    except (OSError, UnicodeDecodeError):
        pass  # gone, or being replaced right now: the next event brings it
    return inside if inside.is_dir() else repository


def _folders(home: Path, refs: Sequence[str]) -> dict[Path, int]:
    """The folders whose entries decide the values of refs, with their inodes: a new one is another one."""
    found = {}
    for folder in (home / parent for name in refs for parent in reversed(Path(name).parents)):
        with suppress(OSError):
            found[folder] = folder.stat().st_ino
    return found
