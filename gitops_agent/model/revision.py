"""Revision: a commit of the tracked branch as the source saw and verified it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit. ``tree`` is the id of the subtree below the instance's path ("" when the path is missing)."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    authored_at: float
    committed_at: float
    message: str
    signature: str | None = None
    committer: str = ""

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.split("\n", 1)[0]

    @property
    def short(self) -> str:
        """The sha as people write it."""
        return self.sha[:10]
