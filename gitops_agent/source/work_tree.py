"""The commit that a work tree of people is compared with, as a reader of blobs. Only read; no remote is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.ports import TreeEntry
from gitops_agent.source.address import Address
from gitops_agent.source.bounded_process import Answer, Overrun, Runner
from gitops_agent.source.git_environment import NOWHERE, base_environment
from gitops_agent.source.git_text import parse_entries

_NOTHING_REMOTE = {"GIT_ALLOW_PROTOCOL": ""}


class CommitReader:
    """Reads one commit below one folder of a work tree. A ``ports.BlobReader``. ``name``: the commit in words."""

    def __init__(self, runner: Runner, ref: str, sha: str, folder: str) -> None:
        self.name = f"{ref} {sha[:10]}"
        self._runner = runner
        self._tree = f"{sha}:{folder}"

    def entries(self, sha: str) -> Sequence[TreeEntry]:
        """Every file below the folder, whatever ``sha`` is; none when the commit does not have the folder."""
        del sha
        answer = _answer(self._runner, "ls-tree", "-r", "-l", "-z", "--full-tree", self._tree)
        return parse_entries(answer.output) if answer.code == 0 else []

    def changed(self, old_sha: str, new_sha: str) -> Sequence[TreeEntry]:
        """Never asked: one commit is loaded, once."""
        raise NotImplementedError

    def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of blobs in the order given; SourceRefused when one is not here (a partial clone)."""
        asked = "".join(f"{blob}\n" for blob in ids).encode()
        rest = memoryview(_answer(self._runner, "cat-file", "--batch", "--buffer", stdin=asked).output)
        for blob in ids:
            header, _, _ = bytes(rest[:256]).partition(b"\n")
            words = header.split()
            if len(words) != 3 or words[1] != b"blob":
                raise SourceRefused(f"blob {blob} is not in this clone", hint="fetch it with git")
            start, size = len(header) + 1, int(words[2])
            yield blob, bytes(rest[start : start + size])
            rest = rest[start + size + 1 :]


def commit_before(folder: Path, environment: Mapping[str, str], timeout: float) -> CommitReader | None:
    """The reader of what was pushed: the upstream of the branch as it is known here, or else HEAD. None outside
    of a work tree and before its first commit. SourceUnavailable when git cannot be asked."""
    place = folder.resolve()
    for root in (place, *place.parents):
        if (directory := _git_dir(root / ".git")) is not None:
            address = Address("path", str(root))
            variables = {**base_environment(environment, address, NOWHERE), **_NOTHING_REMOTE}
            relative = "" if place == root else place.relative_to(root).as_posix()
            return _first_of(("@{upstream}", "HEAD"), Runner(directory, variables, timeout), relative)
    return None


def _first_of(refs: Sequence[str], runner: Runner, folder: str) -> CommitReader | None:
    for ref in refs:
        commit = _answer(runner, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        if commit.code == 0:
            name = _answer(runner, "rev-parse", "--abbrev-ref", ref).text if ref != "HEAD" else ref
            return CommitReader(runner, name, commit.text, folder)
    return None


def _git_dir(path: Path) -> Path | None:
    """The folder of the repository that a ``.git`` is or, as a file, names; None when it is neither."""
    try:
        if path.is_dir():
            return path
        word, _, named = path.read_text(encoding="utf-8", errors="surrogateescape").strip().partition(": ")
    except OSError:
        return None
    return Path(os.path.normpath(path.parent / named)) if word == "gitdir" and named else None


def _answer(runner: Runner, *args: str, stdin: bytes | None = None) -> Answer:
    try:
        return runner.run(args, stdin)
    except (OSError, Overrun) as problem:
        raise SourceUnavailable(f"git cannot be asked: {problem}", hint="put git on PATH") from problem
