"""The one door to git: every call of the project goes through ``Git``, and ``Git`` through GitPython.

GitPython starts the process; we decide everything about it: argument list, environment, configuration, how long
it may run and how much it may say. GitPython's conveniences (URL expansion, remotes, option passing) are not used,
because that is where its advisories are. Its errors end here, as SourceUnavailable or SourceRefused.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from gitops_agent.errors import SourceRefused, SourceUnavailable, UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.address import Address
from gitops_agent.source.bounded_process import Bounded, Overflow, Overrun
from gitops_agent.source.credentials import Credentials, credentials_for
from gitops_agent.source.git_environment import base_environment, config_text, foreign_names
from gitops_agent.source.git_errors import explain, redact

OLDEST = (2, 38)
ANSWER_CAP = 64 * 1024 * 1024
FILE_CAP = 4 * 1024 * 1024 * 1024
"""No file that git writes for us (a pack, above all) may be larger: an endless answer ends here."""


_IMPORTING = threading.Lock()


class LocalFailure(SourceUnavailable):
    """A call on the mirror itself failed: it is damaged, or it lacks the object that was named."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a git process gave back."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The output as text, without the last newline."""
        return self.output.decode(errors="replace").rstrip("\n")


class Git:
    """Hermetic git for one repository directory of ours and one remote address."""

    def __init__(
        self, directory: Path, address: Address, settings: Settings, environment: Mapping[str, str]
    ) -> None:
        self.directory = directory
        self.address = address
        self._settings = settings
        self._given = environment
        self._config: Path | None = None

    def at(self, directory: Path) -> Git:
        """The same git for another directory of ours."""
        return Git(directory, self.address, self._settings, self._given)

    def local(
        self,
        *args: str,
        stdin: bytes | None = None,
        ok: Sequence[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run git on the mirror only; LocalFailure when it ends with another code than those in ``ok``."""
        answer = self._call(args, stdin, Credentials(env or {}))
        if answer.code not in ok:
            said = redact(answer.errors, ()) or f"exit code {answer.code}"
            raise LocalFailure(
                f"mirror {self.directory}: git {args[0]} failed: {said[-600:]}",
                hint="the mirror is rebuilt by itself from the remote when that answers",
            )
        return answer

    def remote(self, *args: str, now: float, ok: Sequence[int] = (0,)) -> Answer:
        """Run git against the remote, with its credentials; SourceUnavailable or SourceRefused when it fails."""
        credentials = credentials_for(self.address, self._settings, self._given)
        traced = {"GIT_TRACE_CURL": "2", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
        variables = {**credentials.variables, **(traced if self.address.kind in ("http", "https") else {})}
        answer = self._call(args, None, Credentials(variables, credentials.secrets))
        if answer.code not in ok:
            raise explain(answer.errors, self.address, credentials.secrets, now)
        return replace(answer, errors=redact(answer.errors, credentials.secrets))

    @contextmanager
    def stream(self, *args: str, feed: Callable[[IO[bytes]], None]) -> Iterator[Bounded]:
        """A local git process to converse with; ended when the block is left."""
        process = Bounded(self._start(args, {}, True), feed)
        try:
            yield process
        finally:
            process.close()

    def _call(self, args: Sequence[str], stdin: bytes | None, credentials: Credentials) -> Answer:
        feed = None if stdin is None else (lambda pipe: _write(pipe, stdin))
        process = Bounded(self._start(args, credentials.variables, stdin is not None), feed)
        try:
            with process.deadline(self._settings.git_timeout):
                output = process.read_all(ANSWER_CAP)
                code = process.finish()
        except Overflow as overflow:
            raise SourceRefused(
                f"repository {self.address.safe}: git {args[0]} was ended: {overflow}",
                hint="the repository holds far more than desired state; choose a smaller one or a --path",
            ) from None
        except Overrun as overrun:
            raise SourceUnavailable(
                f"repository {self.address.safe}: git {args[0]} was ended: {overrun}",
                hint="check the server and the network, or raise gitTimeout",
            ) from None
        finally:
            process.close()
        return Answer(code, output, process.errors)

    def _start(self, args: Sequence[str], variables: Mapping[str, str], talks: bool) -> subprocess.Popen[bytes]:
        """Start ``git ARGS`` through GitPython, in our environment and nothing else, as a group of its own."""
        wanted = self._environment() | dict(variables)
        command = ["git", f"--git-dir={self.directory}", "--no-pager", *args]
        # GitPython always adds the environment of this process; env(1) takes it away again, by name.
        for name in foreign_names(os.environ, wanted):
            command[:0] = ["-u", name]
        gitpython = _gitpython()
        try:
            handle = gitpython.Git("/").execute(
                ["env", *command],
                istream=subprocess.PIPE if talks else None,
                as_process=True,
                env=wanted,
                start_new_session=True,
            )
        except gitpython.GitError as problem:
            raise UsageError(
                "git cannot be started", hint="install git 2.38 or later and put it on PATH"
            ) from problem
        process: subprocess.Popen[bytes] = handle.proc
        handle.proc = None  # ours now: GitPython would end it when its wrapper is collected
        _limit(process.pid)
        return process

    def _environment(self) -> dict[str, str]:
        local = self.address.local
        text = config_text(self.address, self._given, [local, local.resolve()] if local else [])
        if self._config is None or not self._config.exists():
            # Named by its content: another process with other settings writes another file.
            name = f"git-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:12]}.config"
            self._config = self._settings.state.absolute() / name
            _replace(self._config, text)
        return base_environment(self._given, self.address, str(self._config))


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(data)


def _replace(path: Path, text: str) -> None:
    """Write a file so that others see the old one or the new one, and only if it differs."""
    try:
        if path.exists() and path.read_text(encoding="utf-8", errors="surrogateescape") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(text, encoding="utf-8", errors="surrogateescape")
        fresh.replace(path)
    except OSError as problem:
        raise UsageError(
            f"state directory {path.parent} cannot be written: {problem.strerror}",
            hint="choose a writable folder with --state-dir, or free disk space",
        ) from problem


def _limit(pid: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_CAP, FILE_CAP))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except (ProcessLookupError, PermissionError, ValueError):
        pass  # it has ended already, or a lower limit is in force


def _gitpython() -> Any:
    """GitPython, imported on first use, which costs a tenth of a second and one ``git version``.

    That first call is made before we can say anything about it, and by whatever program the environment names:
    so for its duration the environment says nothing about git.
    """
    with _IMPORTING:
        if loaded := sys.modules.get("git"):
            return loaded
        hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GIT_")}
        try:
            import git
        except ImportError as problem:
            raise UsageError("git was not found", hint="install git 2.38 or later and put it on PATH") from problem
        finally:
            os.environ.update(hidden)
    return git


def check_version(git: Git) -> None:
    """UsageError unless the installed git knows all that we rely on."""
    found = re.match(r"git version (\d+)\.(\d+)", git.local("version").text)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise UsageError(
            f"the installed git is too old: {found[0] if found else 'unknown version'}",
            hint=f"install git {OLDEST[0]}.{OLDEST[1]} or later",
        )
