"""Writes and removes bundle files."""

import os

import orjson

from gitops_agent.drivers.api import Action, Applied, ApplyError, Fields, Verb
from gitops_agent.drivers.config.observe import FILE, ConfigObserver, handle_of, stamp_of
from gitops_agent.support.atomic_file import remove_at, write_atomic_at


class ConfigDriver(ConfigObserver):
    """The config driver of one instance."""

    def unchanged(self, action: Action) -> bool:
        """Whether the file is still as planned."""
        return self.live(action.key.agent) == action.live

    def apply(self, action: Action, key: str) -> Applied:  # noqa: ARG002 - a rename is idempotent by nature
        """Write the bundle whole, or remove it."""
        path, folder = self._dirs.config(action.key.agent), self._dirs.folder(action.key.agent)
        try:
            if action.verb in (Verb.DELETE, Verb.STOP) or action.desired is None:
                self._delete(action)
                return Applied(f"removed {path}")
            handle = self._write(action, action.desired.raw)
        except OSError as problem:
            raise ApplyError(
                f"{action.key}: cannot write {path}: {problem.strerror or problem}",
                hint=f"make room and make sure that {folder} is a folder only we write to",
            ) from None
        return Applied(f"wrote {path}", handle)

    def _write(self, action: Action, raw: bytes) -> Fields:
        text = orjson.dumps(
            orjson.loads(raw), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        )
        with self._dirs.opened(action.key.agent, create=True) as folder:
            write_atomic_at(folder, FILE, text)
            return handle_of(stamp_of(os.stat(FILE, dir_fd=folder, follow_symlinks=False)))

    def _delete(self, action: Action) -> None:
        try:
            with self._dirs.opened(action.key.agent) as folder:
                remove_at(folder, FILE)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            self._dirs.folder(action.key.agent).rmdir()
        except OSError:
            pass  # logs and work stay: what an agent wrote is not ours to delete
