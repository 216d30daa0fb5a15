"""Drift reports as notes, on a ref of their own: the reports on commits are not buried by daily ones."""

from __future__ import annotations

from gitops_agent.errors import SourceUnavailable
from gitops_agent.settings import Settings
from gitops_agent.source.identity import identity
from gitops_agent.source.mirror import Mirror


class DriftNotes:
    """Notes on ``refs/notes/gitops-agent-drift/<instance>``; each commit has the newest report made at it."""

    def __init__(self, mirror: Mirror, settings: Settings) -> None:
        self._mirror = mirror
        self._settings = settings
        self.ref = f"refs/notes/gitops-agent-drift/{settings.instance}"

    def write(self, text: str) -> None:
        """Set the note of the newest commit, here and (if pushing is on) at the remote; SourceError otherwise."""
        mirror = self._mirror
        sha = mirror.revision(mirror.branch).sha
        with mirror.exclusive():
            if self._settings.push:
                # Nobody else writes this ref: the remote has what we wrote, perhaps before our state was lost.
                mirror.fetch_ref(self.ref)
            add = ("notes", f"--ref={self.ref}", "add", "--force", "--file=-", sha)
            mirror.git.local(*add, stdin=text.encode(errors="replace"), env=identity(self._settings))
            said = mirror.send(self.ref, self.ref) if self._settings.push else ""
        if said:
            hint = f"allow this credential to write {self.ref}, or set driftNote to false"
            raise SourceUnavailable(f"{mirror.address.safe} did not take {self.ref}: {said}", hint=hint)
