"""The one door to git: every call of the project goes through ``Git``, and ``Git`` through GitPython.

GitPython carries the repository and its refs, commits read and written, ancestry, and the remote with its progress
(``gitpython.py`` holds its classes under our rules). We decide everything about its processes: argument list,
environment, configuration, time and length of the answer. Its errors end here, as SourceUnavailable or
SourceRefused. What stays plain git, and why: ``docs/decisions/0016-gitpython.md``.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gitops_agent.errors import SourceRefused, SourceUnavailable, UsageError
from gitops_agent.model.revision import Revision
from gitops_agent.settings import Settings
from gitops_agent.source.address import Address, display
from gitops_agent.source.bounded_process import Bounded, Overflow, Overrun
from gitops_agent.source.credentials import Credentials, credentials_for
from gitops_agent.source.git_environment import base_environment, config_text
from gitops_agent.source.git_errors import explain, redact
from gitops_agent.source.identity import Identity
from gitops_agent.source.mirror_dir import unwritable
from gitops_agent.support.atomic_file import write_atomic

if TYPE_CHECKING:
    from types import ModuleType

    from gitops_agent.source.gitpython import BareRepo, HermeticGit

OLDEST = (2, 38)
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
"""No file that git writes for us (a pack, above all) may be larger: an endless answer ends here."""

FEW_COMMITS = 24
"""Up to here GitPython's reader is faster than one ``git log``, which costs a process; above it is slower."""

OnProgress = Callable[[str, int, int | None], None]
"""``on_progress(phase, done, total)``: called from a thread of its own; ``total`` is None while unknown."""

_IMPORTING = threading.Lock()
_TRACED = {"GIT_TRACE_CURL": "2", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
_QUIET_FETCH = {
    "verbose": False,
    "quiet": True,
    "no_tags": True,
    "no_recurse_submodules": True,
    "no_auto_maintenance": True,
}
_PLAIN_PUSH = {"no_verify": True, "no_signed": True, "recurse_submodules": "no"}


class LocalFailure(SourceUnavailable):
    """A call on the mirror itself failed: it is damaged, or it lacks the object that was named."""


class GitPythonCannot(Exception):
    """GitPython cannot read these commits: SHA-256, too large, or malformed. Git itself may."""


class NoSuchObject(GitPythonCannot):
    """The mirror has no object of that name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code, output and errors of a git process."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The output as text, without the last newline."""
        return self.output.decode(errors="replace").rstrip("\n")


class Git:
    """Hermetic git for one repository directory of ours and one remote address. Safe for several threads."""

    def __init__(
        self, directory: Path, address: Address, settings: Settings, environment: Mapping[str, str]
    ) -> None:
        self.directory = directory
        self.address = address
        self._settings = settings
        self._given = environment
        self._config: Path | None = None
        self._repository: BareRepo | None = None
        self._reading = threading.RLock()

    def at(self, directory: Path) -> Git:
        """The same git for another directory of ours."""
        return Git(directory, self.address, self._settings, self._given)

    # ----- plain commands

    def local(
        self,
        *args: str,
        stdin: bytes | None = None,
        ok: Sequence[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer of git on the mirror only; LocalFailure when its exit code is not among those in ``ok``."""
        answer = self._call(args, stdin, env or {})
        if answer.code not in ok:
            raise self._local_failure(args[0], answer.errors or f"exit code {answer.code}")
        return answer

    def remote(self, *args: str, now: float) -> Answer:
        """The answer of git to a question to the remote; SourceUnavailable or SourceRefused when it fails."""
        credentials = self._credentials()
        answer = self._call(args, None, credentials.variables)
        if answer.code:
            raise explain(answer.errors, self.address, credentials.secrets, now)
        return answer

    @contextmanager
    def stream(self, *args: str, feed: Callable[[IO[bytes]], None]) -> Iterator[Bounded]:
        """A local git process to converse with; ended when the block is left."""
        process = Bounded(self._start(args), feed)
        try:
            yield process
        finally:
            process.close()

    def _call(self, args: Sequence[str], stdin: bytes | None, variables: Mapping[str, str]) -> Answer:
        with self._translated(args[0]):
            return Answer(*self._runner(variables).run(args, stdin))

    def _start(self, args: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._translated(args[0]):
            return self._runner({}).start(args)

    # ----- refs and objects, read by GitPython

    def ref(self, name: str) -> str | None:
        """The sha that a ref (by its full name) has; None when there is none."""
        return self._repo().ref(name)

    def find(self, expression: str, kind: str) -> str | None:
        """The sha of an object by any name git knows for it; None unless it exists and is of this kind."""
        if "\n" in expression or "\0" in expression:
            return None
        try:
            with self._conversation() as repo:
                header: Any = list(repo.git.get_object_header(expression))
        except NoSuchObject:
            return None
        except GitPythonCannot:
            # A reader that died must not look like a missing commit, which would read as a force-push.
            given = expression.encode(errors="surrogateescape") + b"\n"
            header = self.local("cat-file", "--batch-check", stdin=given, ok=(0, 1, 128)).output.split()
        return str(header[0], "ascii") if header[1:2] == [kind.encode()] else None

    def revisions(self, shas: Sequence[str], trees: Sequence[str]) -> list[Revision]:
        """The commits as values, each with its tree below the path; GitPythonCannot when it cannot read one."""
        if len(shas) > FEW_COMMITS or any(len(sha) != 40 for sha in shas):
            raise GitPythonCannot("one git log is faster, or it is SHA-256")
        library, found, size = _library(), [], 0
        with self._conversation() as repo:
            for sha, tree in zip(shas, trees, strict=True):
                commit = library.PlainCommit(repo, bytes.fromhex(sha))
                found.append(library.revision_of(commit, tree))
                size += commit.size
                if size > MAX_ANSWER_BYTES:
                    raise GitPythonCannot("too much")
        return found

    def contains(self, old: str, new: str) -> bool:
        """Whether a commit is the other one or one of its ancestors."""
        with self._translated("merge-base"):
            repo: Any = self._repo({})  # by name: its commit objects cannot hold the names of SHA-256
            return bool(repo.is_ancestor(old, new))

    def write_commit(
        self, tree: str, parents: Sequence[str], message: str, by: Identity, date: str | None = None
    ) -> str:
        """The sha of a new commit object; no ref is changed. ``date``: seconds and offset, now by default."""
        text, date = message.replace("\0", ""), date or time.strftime("%s %z")
        if len(tree) != 40:  # SHA-256, which GitPython cannot write
            links = [part for parent in parents for part in ("-p", parent)]
            env = by.variables | {f"GIT_{role}_DATE": f"@{date}" for role in ("AUTHOR", "COMMITTER")}
            return self.local("commit-tree", tree, *links, "-F", "-", stdin=text.encode(), env=env).text
        git, repo = _library().git, self._repo({})
        above = [git.Commit(repo, bytes.fromhex(parent)) for parent in parents]
        actor = git.Actor(by.name, by.email)
        with self._translated("hash-object"):
            commit = git.Commit.create_from_tree(
                repo,
                git.Tree(repo, bytes.fromhex(tree)),
                text,
                above,
                author=actor,
                committer=actor,
                author_date=date,
                commit_date=date,
            )
        return str(commit.hexsha)

    def write_tree(self, tree: str, parts: Sequence[str], mode: str, sha: str) -> str:
        """The sha of a new tree: the given one with another entry at the path ``parts``.

        GitPythonCannot when GitPython cannot write it: SHA-256, or a name beside it that is no UTF-8.
        """
        if len(tree) != 40:
            raise GitPythonCannot("SHA-256")
        with self._conversation() as repo:
            written: bytes = _library().write_tree(
                repo, bytes.fromhex(tree), parts, int(mode, 8), bytes.fromhex(sha)
            )
        return written.hex()

    def reopen(self) -> None:
        """Forget what was opened: the directory holds another repository now."""
        with self._reading:
            if self._repository is not None:
                self._repository.git.clear_cache()
            self._repository = None

    @contextmanager
    def _conversation(self) -> Iterator[BareRepo]:
        """The repository for one thread at a time and a bounded time; GitPythonCannot when an answer is broken.

        A conversation that went wrong leaves the reader in the middle of an answer, so the reader goes with it.
        """
        library = _library()
        git = library.git
        with self._reading:
            repo = self._repo()
            try:
                with repo.git.deadline():
                    yield repo
            except library.MissingObject as problem:
                raise NoSuchObject from problem
            except (ValueError, AssertionError, LookupError, OSError, git.GitError, git.exc.ODBError) as problem:
                self.reopen()
                raise GitPythonCannot(str(problem)) from problem

    # ----- the remote, carried by GitPython

    def fetch(self, refspecs: Sequence[str], now: float, on_progress: OnProgress | None = None) -> None:
        """Bring refs of the remote here, with the objects they need."""
        self._transport(
            "fetch", lambda remote, to: remote.fetch(list(refspecs), to, **_QUIET_FETCH), now, on_progress
        )

    def push(self, refspec: str, now: float) -> str:
        """Send one ref, never by force; why the remote rejected it, "" when it took it."""
        infos = self._transport("push", lambda remote, to: remote.push([refspec], to, **_PLAIN_PUSH), now, None)
        rejected = [info.summary for info in infos if info.flags & info.ERROR]
        return display(rejected[0].strip()) if rejected else ""

    def _transport(
        self, verb: str, call: Callable[[Any, Any], Any], now: float, on_progress: OnProgress | None
    ) -> Any:
        """The result of a call on GitPython's remote, with credentials for this call alone."""
        library, credentials = _library(), self._credentials()
        repo, progress = self._repo(credentials.variables), library.FetchProgress(on_progress)
        with self._translated(verb):
            try:
                with repo.git.deadline():
                    return call(library.git.Remote(repo, self.address.target), progress)
            except (library.git.GitError, OSError, ValueError):
                if repo.git.overrun:
                    raise repo.git.overrun from None
                raise explain(progress.text, self.address, credentials.secrets, now) from None

    def _credentials(self) -> Credentials:
        found = credentials_for(self.address, self._settings, self._given)
        traced = _TRACED if self.address.kind in ("http", "https") else {}
        return Credentials({**found.variables, **traced}, found.secrets)

    # ----- what GitPython is given

    def _repo(self, variables: Mapping[str, str] | None = None) -> BareRepo:
        """The one repository object that reads; or, with variables, a new one for one call."""
        if variables is not None:
            fresh: BareRepo = _library().BareRepo(self.directory, self._runner(variables))
            return fresh
        with self._reading:
            if self._repository is None:
                self._repository = self._repo({})
            return self._repository

    def _runner(self, variables: Mapping[str, str]) -> HermeticGit:
        library, timeout = _library(), self._settings.git_timeout
        limits = library.ProcessLimits(self.directory, timeout, MAX_ANSWER_BYTES, MAX_FILE_BYTES)
        runner: HermeticGit = library.HermeticGit(limits, {**self._environment(), **variables})
        return runner

    def _environment(self) -> dict[str, str]:
        if self._config is None or not self._config.exists():
            local = self.address.local
            text = config_text(self.address, self._given, [local, local.resolve()] if local else [])
            data = text.encode(errors="surrogateescape")
            # Named by its content: another process with other settings writes another file.
            name = f"git-{hashlib.sha256(data).hexdigest()[:12]}.config"
            self._config = self._settings.state.absolute() / name
            _write_changed(self._config, data)
        return base_environment(self._given, self.address, str(self._config))

    # ----- foreign errors end here

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        where = f"repository {self.address.safe}: git {verb} was ended"
        try:
            yield
        except Overflow as overflow:
            raise SourceRefused(
                f"{where}: {overflow}",
                hint="the repository holds far more than desired state; choose a smaller one or a --path",
            ) from None
        except Overrun as overrun:
            raise SourceUnavailable(
                f"{where}: {overrun}", hint="check the server and the network, or raise gitTimeout"
            ) from None
        except _library().git.GitCommandNotFound as problem:
            raise UsageError(
                "git cannot be started", hint="install git 2.38 or later and put it on PATH"
            ) from problem
        except _library().git.GitCommandError as problem:
            raise self._local_failure(verb, str(problem.stderr)) from None

    def _local_failure(self, verb: str, errors: str) -> LocalFailure:
        return LocalFailure(
            f"mirror {self.directory}: git {verb} failed: {redact(errors, ())[-600:]}",
            hint="the mirror is rebuilt by itself from the remote when that answers",
        )


def _write_changed(path: Path, data: bytes) -> None:
    """Write a file if it differs."""
    try:
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)
    except OSError as problem:
        raise unwritable(path.parent, problem) from problem


def _library() -> ModuleType:
    """``gitpython.py``, imported on first use, which costs a tenth of a second and one ``git version``.

    That first call is made before we can say anything about it, and by whatever program the environment names:
    so for its duration the environment says nothing about git.
    """
    with _IMPORTING:
        if loaded := sys.modules.get("gitops_agent.source.gitpython"):
            return loaded
        hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GIT_")}
        try:
            from gitops_agent.source import gitpython
        except ImportError as problem:
            raise UsageError("git was not found", hint="install git 2.38 or later and put it on PATH") from problem
        finally:
            os.environ.update(hidden)
    return gitpython


def check_version(git: Git) -> None:
    """UsageError unless the installed git knows all that we rely on."""
    found = re.match(r"git version (\d+)\.(\d+)", git.local("version").text)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise UsageError(
            f"the installed git is too old: {found[0] if found else 'unknown version'}",
            hint=f"install git {OLDEST[0]}.{OLDEST[1]} or later",
        )
