"""GitPython's classes under our rules: each process they start is hermetic and bounded, and nothing that they read
in this process comes from outside the mirror.

Only ``git.py`` imports this module, and late: GitPython costs a tenth of a second and one ``git version``.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import git
from git.config import GitConfigParser
from gitdb import IStream

from gitops_agent.model.revision import Revision
from gitops_agent.source.bounded_process import Bounded, Overrun, kill_group
from gitops_agent.source.git import OnProgress
from gitops_agent.source.git_environment import foreign_names
from gitops_agent.support.deadline import deadline

COMMIT_BYTES = 16 * 1024 * 1024
"""No commit object above this is read into memory."""

EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
"""The tree without entries, which every repository of SHA-1 has."""

_LINE_CHARACTERS = 4096
_LINES_KEPT = 500

# The text of a remote may hold secrets or control characters, and GitPython logs it as it is.
logging.getLogger("git").setLevel(logging.CRITICAL + 1)


class ProcessLimits(NamedTuple):
    """What every process gets: its repository, its time, the size of its answer and of a file that it writes."""

    directory: Path
    timeout: float
    answer_bytes: int
    file_bytes: int


class _ShortLines:
    """A text stream that is read in lines of bounded length: a line without end must not fill the memory."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.close = stream.close
        self.read = stream.read

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def __iter__(self) -> Any:
        return iter(lambda: self._stream.readline(_LINE_CHARACTERS), "")


class _CommitStream(git.Git.CatFileContentStream):
    """The content of one object; ValueError before anything is read when it is too large."""

    def __init__(self, size: int, stream: IO[bytes]) -> None:
        super().__init__(size if 0 < size <= COMMIT_BYTES else 0, stream)
        if size > COMMIT_BYTES:
            raise ValueError(f"an object of {size} bytes, more than the {COMMIT_BYTES} allowed")


class MissingObject(Exception):
    """Git has no object of that name; its answer was complete, so the next question may follow."""


class HermeticGit(git.Git):
    """GitPython's command runner; whatever GitPython runs passes through ``execute``."""

    CatFileContentStream = _CommitStream

    def __init__(self, limits: ProcessLimits, variables: Mapping[str, str]) -> None:
        super().__init__("/")
        self._limits = limits
        self._variables = variables
        self._read: list[subprocess.Popen[Any]] = []
        self.overrun: Overrun | None = None

    def execute(  # type: ignore[override]  # GitPython's overloads spell out each combination
        self,
        command: Sequence[str],
        istream: int | None = None,
        *,
        as_process: bool = False,
        with_exceptions: bool = True,
        universal_newlines: bool = False,
        with_stdout: bool = True,
        **_: Any,
    ) -> Any:
        """The process, or the text of its answer; GitCommandError when it ends with another code than 0."""
        handle = self._start(command[1:], istream, universal_newlines and as_process, with_stdout)
        if as_process:
            self._read.append(handle.proc)
            return handle
        code, output, errors = self.collect(handle, None)
        if with_exceptions and code:
            raise git.GitCommandError(list(command), code, errors, output)
        return output.decode(errors="surrogateescape").rstrip("\n")

    def run(self, args: Sequence[str], stdin: bytes | None) -> tuple[int, bytes, str]:
        """The exit code, the answer and the errors of ``git ARGS``; Overrun when it takes too long or too much."""
        return self.collect(self._start(args, None if stdin is None else subprocess.PIPE, False, True), stdin)

    def collect(self, handle: git.Git.AutoInterrupt, stdin: bytes | None) -> tuple[int, bytes, str]:
        """All that a started process answers, within its time and its size."""
        process = Bounded(release(handle), None if stdin is None else (lambda pipe: _write(pipe, stdin)))
        try:
            with process.deadline(self._limits.timeout):
                output = process.read_all(self._limits.answer_bytes)
                code = process.finish()
        finally:
            process.close()
        return code, output, process.errors

    def start(self, args: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process to converse with; the caller ends it."""
        return release(self._start(args, subprocess.PIPE, False, True))

    def _start(self, args: Sequence[str], istream: int | None, text: bool, with_stdout: bool) -> Any:
        command = ["git", f"--git-dir={self._limits.directory}", "--no-pager", *args]
        # GitPython always adds the environment of this process; env(1) takes it away again, by name.
        for name in foreign_names(os.environ, self._variables):
            command[:0] = ["-u", name]
        handle = super().execute(
            ["env", *command],
            istream=istream,
            as_process=True,
            env=self._variables,
            universal_newlines=text,
            with_stdout=with_stdout,
            start_new_session=True,
            # Bytes of a remote that are no text must not end the thread that reads them.
            **({"errors": "replace"} if text else {}),
        )
        assert isinstance(handle, git.Git.AutoInterrupt)
        assert handle.proc is not None
        _limit(handle.proc.pid, self._limits.file_bytes)
        if text:
            handle.proc.stderr = _ShortLines(handle.proc.stderr)  # type: ignore[assignment,arg-type]
        return handle

    def deadline(self) -> AbstractContextManager[object]:
        """So many seconds for the processes that GitPython reads from; then their groups are killed.

        GitPython's own timeout lists children by ``ps`` and can miss one; a group cannot.
        """
        return deadline(self._limits.timeout, self._kill_all)

    def _kill_all(self) -> None:
        # Also when a process itself has ended: what it started may still hold the pipe that is read.
        self.overrun = Overrun(f"no end after {self._limits.timeout:g} s")
        for process in self._read:
            kill_group(process.pid)

    def _parse_object_header(self, header_line: str) -> tuple[str, str, int]:
        """Name, type and size; GitPython's own takes names of SHA-1 only."""
        tokens: list[Any] = header_line.split()
        if len(tokens) == 3 and len(tokens[0]) == 64:
            return tokens[0], tokens[1], int(tokens[2])
        if tokens and tokens[-1] in (b"missing", b"ambiguous"):
            raise MissingObject
        return super()._parse_object_header(header_line)


def release(handle: git.Git.AutoInterrupt) -> subprocess.Popen[bytes]:
    """The process itself: GitPython would end it when its wrapper is collected."""
    process = handle.proc
    handle.proc = None
    assert process is not None
    return process


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(data)


def _limit(pid: int, file_bytes: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except (ProcessLookupError, PermissionError, ValueError):
        pass  # it has ended already, or a lower limit is in force


class BareRepo(git.Repo):
    """GitPython's repository object on a bare folder of ours.

    GitPython's constructor follows GIT_DIR, GIT_OBJECT_DIRECTORY and GIT_COMMON_DIR of this process, so it is not
    called; its configuration reader would read the files of the user and of the system.
    """

    re_hexsha_only = re.compile(r"^(?:[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})$")

    def __init__(self, directory: Path, runner: HermeticGit) -> None:
        self.git_dir = self.working_dir = str(directory)
        self._common_dir = ""
        self._working_tree_dir = None
        self._bare = True
        self.git = runner
        self.odb = git.GitCmdObjectDB(str(directory / "objects"), runner)

    def _config_reader(self, *_: Any, **__: Any) -> GitConfigParser:
        return GitConfigParser((), read_only=True)

    def ref(self, name: str) -> str | None:
        """The sha that a ref has, read from its file without a process; None when there is none."""
        try:
            return git.SymbolicReference.dereference_recursive(self, name)
        except (ValueError, AssertionError, OSError, RecursionError):
            return None


class PlainCommit(git.Commit):
    """A commit object. Of its header only what we use reaches GitPython's parser.

    That parser misses the encoding of a message, and takes an empty line inside a header that it does not know (a
    second signature, say) for the end of all headers.
    """

    def _deserialize(self, stream: Any) -> PlainCommit:
        head, _, body = stream.read().partition(b"\n\n")
        lines = head.split(b"\n")
        kept = [line for line in lines if line.startswith((b"tree ", b"parent ", b"author ", b"committer "))]
        encoding = next((line[9:] for line in lines if line.startswith(b"encoding ")), b"")
        raw = b"\n".join([*kept, b"", body])
        super()._deserialize(BytesIO(_as_utf8(raw, encoding.decode("ascii", "replace"))))
        return self


def _as_utf8(text: bytes, encoding: str) -> bytes:
    try:
        return text.decode(encoding, "replace").encode(errors="replace") if encoding else text
    except LookupError:
        return text


def revision_of(commit: git.Commit, tree: str) -> Revision:
    """The commit as our value; ``tree`` is that below the path."""
    return Revision(
        sha=commit.hexsha,
        tree=tree,
        parents=tuple(parent.hexsha for parent in commit.parents),
        author=f"{commit.author.name or ''} <{commit.author.email or ''}>",
        authored_at=float(commit.authored_date),
        committed_at=float(commit.committed_date),
        message=str(commit.message).strip("\n"),
    )


def write_tree(repo: BareRepo, tree: bytes, parts: Sequence[str], mode: int, sha: bytes) -> bytes:
    """The id of a new tree: the given one with another entry at the path ``parts``."""
    name, *rest = parts
    level = git.Tree(repo, tree, git.Tree.tree_id << 12, "")
    if rest:
        inner = next((each.binsha for each in level.trees if each.name == name), EMPTY_TREE)
        mode, sha = git.Tree.tree_id << 12, write_tree(repo, inner, rest, mode, sha)
    level.cache.add(sha, mode, name, force=True).set_done()
    data = BytesIO()
    level._serialize(data)
    stored = repo.odb.store(IStream(git.Tree.type, data.tell(), BytesIO(data.getvalue())))
    assert isinstance(stored.binsha, bytes)
    return stored.binsha


_PHASES = {
    git.RemoteProgress.COUNTING: "Counting objects",
    git.RemoteProgress.COMPRESSING: "Compressing objects",
    git.RemoteProgress.RECEIVING: "Receiving objects",
    git.RemoteProgress.RESOLVING: "Resolving deltas",
    git.RemoteProgress.WRITING: "Writing objects",
}


class FetchProgress(git.RemoteProgress):
    """GitPython's reader of git's messages: progress is reported, the end of all else is kept."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        super().__init__()
        self._on_progress = on_progress
        self._kept: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def text(self) -> str:
        """The messages of git besides its progress, errors last."""
        return "\n".join([*self._kept, *self.error_lines])

    def line_dropped(self, line: str) -> None:
        """Keep a line that is no progress."""
        self._kept.append(line)

    def _parse_progress_line(self, line: Any) -> object:
        super()._parse_progress_line(line)
        del self.other_lines[:-_LINES_KEPT], self.error_lines[:-_LINES_KEPT]
        return None

    def update(
        self, op_code: int, cur_count: str | float, max_count: str | float | None = None, _message: str = ""
    ) -> None:
        """Hand one step on."""
        phase = _PHASES.get(op_code & self.OP_MASK)
        if self._on_progress is None or phase is None:
            return
        try:
            self._on_progress(phase, int(float(cur_count)), int(float(max_count)) if max_count else None)
        except Exception:
            # A bar that cannot be drawn must not end the thread that empties the pipe of git.
            self._on_progress = None
