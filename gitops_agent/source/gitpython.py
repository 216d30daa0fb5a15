"""GitPython's classes under our rules: each process they start is hermetic and bounded, and nothing that they read
in this process comes from outside the mirror.

Only ``git.py`` imports this module. GitPython costs a tenth of a second and one ``git version``, so ``mirror.py``
imports both late.
"""

import logging
import re
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import BytesIO, TextIOWrapper
from typing import IO, Any

import git

from gitops_agent.model.revision import Revision
from gitops_agent.source.bounded_process import OnProgress, Runner, limited
from gitops_agent.source.git_environment import OLDEST

COMMIT_BYTES = 2 * 1024 * 1024
"""No commit object above this is read into memory; as many as are read at once stay below the cap of an answer."""

FOREIGN = (ValueError, AssertionError, LookupError, OSError, git.GitError, git.exc.ODBError)
"""What GitPython raises when an answer is broken."""

CommandFailed = git.GitCommandError

_LINE_CHARACTERS = 4096
_LINES_KEPT = 500

# The text of a remote may hold secrets or control characters, and GitPython logs it as it is.
logging.getLogger("git").setLevel(logging.CRITICAL + 1)


class GitPythonCannot(Exception):
    """GitPython cannot read these commits: SHA-256, too large, or malformed. Git itself may."""


class NoSuchObject(GitPythonCannot):
    """Git has no object of that name; its answer was complete, so the next question may follow."""


class _ShortLines(TextIOWrapper):
    """A text stream that is read in lines of bounded length: a line without end must not fill the memory."""

    def __iter__(self) -> Any:
        return iter(lambda: self.readline(_LINE_CHARACTERS), "")


class _CommitStream(git.Git.CatFileContentStream):
    """The content of one object; ValueError before anything is read when it is too large."""

    def __init__(self, size: int, stream: IO[bytes]) -> None:
        super().__init__(size if 0 < size <= COMMIT_BYTES else 0, stream)
        if size > COMMIT_BYTES:
            raise ValueError(f"an object of {size} bytes, more than the {COMMIT_BYTES} allowed")


class HermeticGit(git.Git):
    """GitPython's command runner; whatever GitPython runs passes through ``execute``."""

    CatFileContentStream = _CommitStream
    version_info = OLDEST  # at least this: asking would cost a process for each transfer

    def __init__(self, runner: Runner) -> None:
        super().__init__("/")
        self._runner = runner
        self._read: list[subprocess.Popen[Any]] = []

    def execute(  # type: ignore[override]  # GitPython's overloads spell out each combination
        self,
        command: Sequence[str],
        istream: int | None = None,
        *,
        as_process: bool = False,
        universal_newlines: bool = False,
        with_stdout: bool = True,
        **_: Any,
    ) -> git.Git.AutoInterrupt | str:
        """The process that GitPython reads from, or the whole answer of one; GitCommandError when that failed."""
        if not as_process:
            answer = self._runner.run(command[1:], None)
            if answer.code:
                raise git.GitCommandError(list(command), answer.code, answer.errors)
            return answer.text
        stdout = subprocess.PIPE if with_stdout else subprocess.DEVNULL
        process: Any = self._runner.start(command[1:], istream, stdout)
        self._read.append(process)
        if universal_newlines:
            # Bytes of a remote that are no text must not end the thread that reads them.
            process.stderr = _ShortLines(process.stderr, "utf-8", "replace")
            process.stdout = process.stdout and _ShortLines(process.stdout, "utf-8", "replace")
        return self.AutoInterrupt(process, command)

    def deadline(self) -> AbstractContextManager[None]:
        """So many seconds for the processes that GitPython reads from; then their groups are killed: Overrun.

        GitPython's own timeout lists children by ``ps`` and can miss one; a group cannot.
        """
        return limited(self._runner.timeout, self._read)

    def _parse_object_header(self, header_line: str) -> tuple[str, str, int]:
        """Name, type and size; GitPython's own takes names of SHA-1 only."""
        tokens: list[Any] = header_line.split()
        if len(tokens) == 3 and len(tokens[0]) == 64:
            return tokens[0], tokens[1], int(tokens[2])
        if tokens and tokens[-1] in (b"missing", b"ambiguous"):
            raise NoSuchObject
        return super()._parse_object_header(header_line)


class BareRepo(git.Repo):
    """GitPython's repository object on a bare folder of ours.

    GitPython's constructor follows GIT_DIR, GIT_OBJECT_DIRECTORY and GIT_COMMON_DIR of this process, so it is not
    called; its configuration reader would read the files of the user and of the system.
    """

    git: HermeticGit
    re_hexsha_only = re.compile(r"^(?:[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})$")

    def __init__(self, runner: Runner) -> None:
        self.git_dir = self.working_dir = str(runner.directory)
        self._common_dir = ""
        self._working_tree_dir = None
        self._bare = True
        self.git = HermeticGit(runner)
        self.odb = git.GitCmdObjectDB(str(runner.directory / "objects"), self.git)

    def _config_reader(self, *_: Any, **__: Any) -> Any:
        return git.GitConfigParser((), read_only=True)

    def ref(self, name: str) -> str | None:
        """The sha that a ref has, read from its file without a process; None when there is none."""
        try:
            return git.SymbolicReference.dereference_recursive(self, name)
        except (ValueError, AssertionError, OSError, RecursionError):
            return None

    def revision(self, sha: str, tree: str) -> Revision:
        """A commit as our value; ``tree`` is that below the path."""
        commit = _PlainCommit(self, bytes.fromhex(sha))
        return Revision(
            sha=sha,
            tree=tree,
            parents=tuple(parent.hexsha for parent in commit.parents),
            author=f"{commit.author.name or ''} <{commit.author.email or ''}>",
            authored_at=float(commit.authored_date),
            committed_at=float(commit.committed_date),
            message=str(commit.message).strip("\n"),
            committer=f"{commit.committer.name or ''} <{commit.committer.email or ''}>",
        )

    def remote_at(self, address: str) -> Any:
        """The remote at an address, which no configuration names."""
        return git.Remote(self, address)


class _PlainCommit(git.Commit):
    """A commit object. Of its header only what we use reaches GitPython's parser.

    That parser misses the encoding of a message, and takes an empty line inside a header that it does not know (a
    second signature, say) for the end of all headers.
    """

    def _deserialize(self, stream: Any) -> "_PlainCommit":
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
        if self._on_progress is None or op_code & self.OP_MASK == self.FINDING_SOURCES:
            return
        phase = (self._cur_line or "").removeprefix("remote: ").partition(":")[0]  # of those that GitPython knows
        try:
            self._on_progress(phase, int(float(cur_count)), int(float(max_count)) if max_count else None)
        except Exception:
            # A bar that cannot be drawn must not end the thread that empties the pipe of git.
            self._on_progress = None
