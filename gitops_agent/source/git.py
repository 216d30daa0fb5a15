"""The one door to git: every call of the project goes through ``Git``.

GitPython carries the refs, single commits, ancestry, and the remote with its progress (``gitpython.py`` holds its
classes under our rules). We decide everything about processes: argument list, environment, configuration, time and
length of the answer. Foreign errors end here, as SourceUnavailable or SourceRefused. What stays plain git, and
why: ``docs/decisions/0016-gitpython.md``.
"""

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from gitops_agent.errors import SourceRefused, SourceUnavailable, UsageError
from gitops_agent.model.revision import Revision
from gitops_agent.ports import Clock
from gitops_agent.settings import Settings
from gitops_agent.source.address import Address, display
from gitops_agent.source.bounded_process import Answer, Bounded, OnProgress, Overflow, Overrun, Runner
from gitops_agent.source.credentials import credentials_for
from gitops_agent.source.git_environment import OLDEST, Identity, base_environment, config_text
from gitops_agent.source.git_errors import LocalFailure, explain, redact
from gitops_agent.source.git_text import FEW_COMMITS, LOG_FORMAT, NewCommit, import_stream, parse_commits
from gitops_agent.source.gitpython import (
    FOREIGN,
    BareRepo,
    CommandFailed,
    FetchProgress,
    GitPythonCannot,
    NoSuchObject,
)
from gitops_agent.source.mirror_dir import unwritable
from gitops_agent.support.atomic_file import write_atomic

_CHUNK_BLOBS = 512
_CHUNK_BYTES = 4 * 1024 * 1024
_QUIET_FETCH = {"quiet": True, "no_tags": True, "no_recurse_submodules": True, "no_auto_maintenance": True}
_PLAIN_PUSH = {"no_verify": True, "no_signed": True, "recurse_submodules": "no"}


@dataclass(eq=False, repr=False)
class Git:
    """Hermetic git for one repository directory of ours and one remote address. Safe for several threads."""

    directory: Path
    address: Address
    settings: Settings
    environment: Mapping[str, str]
    clock: Clock
    on_progress: OnProgress | None = None
    _config: Path | None = field(default=None, init=False)
    _repository: BareRepo | None = field(default=None, init=False)
    _reading: threading.RLock = field(default_factory=threading.RLock, init=False)

    def at(self, directory: Path) -> "Git":
        """The same git for another directory of ours."""
        return replace(self, directory=directory)

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
            raise self._failure(args[0], answer.errors or f"exit code {answer.code}")
        return answer

    def remote(self, *args: str) -> Answer:
        """The answer of git to a question to the remote; SourceUnavailable or SourceRefused when it fails."""
        credentials = credentials_for(self.address, self.settings, self.environment)
        answer = self._call(args, None, credentials.variables)
        if answer.code:
            raise explain(answer.errors, self.address, credentials.secrets, self.clock.now())
        return answer

    def _call(self, args: Sequence[str], stdin: bytes | None, variables: Mapping[str, str]) -> Answer:
        with self._translated(args[0]):
            return self._runner(variables).run(args, stdin)

    def _failure(self, verb: str, errors: str) -> LocalFailure:
        return LocalFailure(
            f"mirror {self.directory}: git {verb} failed: {redact(errors, ())[-600:]}",
            hint="the mirror is rebuilt by itself from the remote when that answers",
        )

    def check_version(self) -> None:
        """UsageError unless the installed git knows all that we rely on."""
        found = re.match(r"git version (\d+)\.(\d+)", self.local("version").text)
        if found is None or (int(found[1]), int(found[2])) < OLDEST:
            raise UsageError(
                f"the installed git is too old: {found[0] if found else 'unknown version'}",
                hint=f"install git {OLDEST[0]}.{OLDEST[1]} or later",
            )

    # ----- refs and objects

    def ref(self, name: str) -> str | None:
        """The sha that a ref (by its full name) has; None when there is none."""
        return self._repo().ref(name)

    def find(self, expression: str, kind: str) -> str | None:
        """The sha of an object by any name git knows for it; None unless it exists and is of this kind."""
        if "\n" in expression or "\0" in expression:
            return None
        try:
            with self.conversation() as repo:
                header: Any = list(repo.git.get_object_header(expression))
        except NoSuchObject:
            return None
        except GitPythonCannot:
            # A reader that died must not look like a missing commit, which would read as a force-push.
            given = expression.encode(errors="surrogateescape") + b"\n"
            header = self.local("cat-file", "--batch-check", stdin=given, ok=(0, 1, 128)).output.split()
        return str(header[0], "ascii") if header[1:2] == [kind.encode()] else None

    def revisions(self, shas: Sequence[str], trees: Sequence[str]) -> list[Revision]:
        """The commits as values, each with its tree below the path."""
        if len(shas) <= FEW_COMMITS and all(len(sha) == 40 for sha in shas):
            with suppress(GitPythonCannot), self.conversation() as repo:
                return [repo.revision(sha, tree) for sha, tree in zip(shas, trees, strict=True)]
        given = "".join(f"{sha}\n" for sha in shas).encode()
        shape = ("--no-walk=unsorted", "--encoding=UTF-8", f"--format={LOG_FORMAT}", "--stdin")
        return list(parse_commits(self.local("log", *shape, stdin=given).output, iter(trees)))

    def contains(self, old: str, new: str) -> bool:
        """Whether a commit is the other one or one of its ancestors; False when the mirror has no such commit."""
        repo: Any = self._repo()  # its annotation asks for commits, names do as well
        with self._translated("merge-base"):
            if not self.find(f"{old}^{{commit}}", "commit"):
                return False
            return self.find(f"{new}^1", "commit") == old or repo.is_ancestor(old, new)  # most are neighbours

    def blobs(self, ids: Sequence[str], cap: int) -> Iterator[tuple[str, bytes]]:
        """The blobs in the order given, by one process; SourceRefused when one is larger than ``cap`` bytes.

        The deadline counts reading only, not what the caller does in between.
        """
        if not ids:
            return
        asked, waiting = "".join(f"{blob}\n" for blob in ids).encode(), iter(ids)
        with (
            self._translated("cat-file"),
            closing(Bounded(self._runner({}), ("cat-file", "--batch", "--buffer"), asked)) as process,
        ):
            while chunk := self._chunk(process, waiting, cap):
                yield from chunk

    def _chunk(self, process: Bounded, waiting: Iterator[str], cap: int) -> list[tuple[str, bytes]]:
        chunk: list[tuple[str, bytes]] = []
        size = 0
        with process.deadline():
            for blob in islice(waiting, _CHUNK_BLOBS):
                content = self._content(process, blob, cap)
                chunk.append((blob, content))
                size += len(content)
                if size > _CHUNK_BYTES:
                    break
        return chunk

    def _content(self, process: Bounded, blob: str, cap: int) -> bytes:
        header = process.stdout.readline(256).split()
        if len(header) != 3 or header[0] != blob.encode() or header[1] != b"blob":
            raise LocalFailure(f"mirror {self.directory}: blob {blob} is missing or broken")
        size = int(header[2])
        if size > cap:
            raise SourceRefused(
                f"blob {blob} has {size} bytes, more than the {cap} allowed",
                hint="make the file smaller, or raise limits.fileBytes",
            )
        content = process.stdout.read(size)
        if len(content) != size or process.stdout.read(1) != b"\n":
            raise LocalFailure(f"mirror {self.directory}: blob {blob} is broken")
        return content

    def write_commits(self, ref: str, by: Identity, *commits: NewCommit) -> list[str]:
        """The shas of new commits, written by one process; the ref is set to the last of them."""
        stream = import_stream(ref, by, commits)
        return self.local("fast-import", "--quiet", "--force", "--done", stdin=stream).text.split()

    def reopen(self) -> None:
        """Forget what was opened: the directory holds another repository now."""
        with self._reading:
            if self._repository is not None:
                self._repository.git.clear_cache()
            self._repository = None

    @contextmanager
    def conversation(self) -> Iterator[BareRepo]:
        """The repository for one thread at a time and a bounded time; GitPythonCannot when an answer is broken.

        A conversation that went wrong leaves the reader in the middle of an answer, so the reader goes with it.
        """
        with self._reading:
            repo = self._repo()
            if not (self.directory / "HEAD").exists():
                raise GitPythonCannot("it is gone")  # a reader that is open goes on answering from files that are
            try:
                with repo.git.deadline():
                    yield repo
            except (*FOREIGN, Overrun) as problem:
                self.reopen()
                raise GitPythonCannot(str(problem)) from problem

    def _repo(self) -> BareRepo:
        """The one repository object that reads."""
        with self._reading:
            if self._repository is None:
                self._repository = BareRepo(self._runner({}))
            return self._repository

    # ----- the remote, carried by GitPython

    def fetch(self, *refspecs: str) -> None:
        """Bring refs of the remote here, with the objects they need."""
        with self._transport("fetch") as (remote, progress):
            remote.fetch(list(refspecs), progress, verbose=False, **_QUIET_FETCH)

    def push(self, refspec: str) -> str:
        """Send one ref, never by force; why the remote rejected it, "" when it took it."""
        with self._transport("push") as (remote, progress):
            infos = remote.push([refspec], progress, **_PLAIN_PUSH)
        rejected = [info.summary for info in infos if info.flags & info.ERROR]
        return display(rejected[0].strip()) if rejected else ""

    @contextmanager
    def _transport(self, verb: str) -> Iterator[tuple[Any, FetchProgress]]:
        """GitPython's remote with credentials for this block alone, and the reader of its messages."""
        credentials = credentials_for(self.address, self.settings, self.environment)
        repo = BareRepo(self._runner(credentials.variables))
        progress = FetchProgress(self.on_progress)
        with self._translated(verb):
            try:
                with repo.git.deadline():
                    yield repo.remote_at(self.address.target), progress
            except FOREIGN:
                raise explain(progress.text, self.address, credentials.secrets, self.clock.now()) from None

    # ----- what each process is given, and how it may end

    def _runner(self, variables: Mapping[str, str]) -> Runner:
        if self._config is None or not self._config.exists():
            self._config = self._write_config()
        given = base_environment(self.environment, self.address, str(self._config))
        return Runner(self.directory, {**given, **variables}, self.settings.git_timeout)

    def _write_config(self) -> Path:
        local = self.address.local
        text = config_text(self.address, self.environment, [local, local.resolve()] if local else [])
        data = text.encode(errors="surrogateescape")
        # Named by its content: another process with other settings writes another file.
        path = self.settings.state.absolute() / f"git-{hashlib.sha256(data).hexdigest()[:12]}.config"
        try:
            if not path.exists() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, data)
        except OSError as problem:
            raise unwritable(path.parent, problem) from problem
        return path

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        where = f"repository {self.address.target}: git {verb} was ended"
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
        except CommandFailed as problem:
            raise self._failure(verb, problem.stderr.strip()) from None
        except FileNotFoundError as problem:
            raise UsageError(
                "git cannot be started", hint="install git 2.38 or later and put it on PATH"
            ) from problem
        except OSError as problem:
            hint = "see the limits of processes, files and memory of this machine; it is tried again"
            raise SourceUnavailable(f"git cannot be started: {problem.strerror}", hint=hint) from problem
