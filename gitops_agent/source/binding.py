"""Which repository a state directory belongs to: notes and records of one must never reach another.

The address is kept in a file. Another address is accepted when the same history is found there: the repository has
moved. Otherwise a ``--repo`` was mistyped, or a state directory is reused.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gitops_agent.errors import SourceError, UsageError
from gitops_agent.source.address import display
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.mirror_dir import unwritable
from gitops_agent.support.atomic_file import write_atomic

FILE_NAME = "repository"


def require_own_repository(mirror: Mirror, state_dir: Path, known: Iterable[str | None], *, keep: bool) -> None:
    """UsageError when a state directory belongs to another repository than the one that is followed.
    ``known``: commits on record here. ``keep``: whether the address is written down, by verbs that act."""
    path, address = state_dir / FILE_NAME, mirror.address.target
    bound = _read(path)
    if bound == address:
        return
    commits = [sha for sha in known if sha]
    if commits:
        try:
            same = mirror.shares_history(commits)
        except SourceError:
            if not bound:
                return  # a state directory of before this was kept: asked again when the remote answers
            raise
        if not same:
            raise _other(state_dir, bound, address)
    if keep:
        try:
            write_atomic(path, f"{address}\n".encode())
        except OSError as problem:
            raise unwritable(state_dir, problem) from problem


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _other(state_dir: Path, bound: str, address: str) -> UsageError:
    whose = f"the repository {display(bound)}" if bound else "another repository"
    return UsageError(
        f"{state_dir}: this state directory belongs to {whose}, which has no commit in common with "
        f"{display(address)}",
        hint="correct --repo, or give this one its own --state-dir. If this instance is meant to follow the new "
        "repository from now on, move the state directory away: agents are found again by their marks",
    )
