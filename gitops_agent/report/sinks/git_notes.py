"""The sink that keeps notes on commits: written to the mirror, then pushed."""

from collections.abc import Sequence

import structlog

from gitops_agent.ports import CommitChange, Sink
from gitops_agent.report.note import parse_note, render_note
from gitops_agent.source.notes import Notes
from gitops_agent.support.secrets import Redactor

log = structlog.get_logger(__name__)


class GitNotesSink(Sink):
    """Writes one note per changed commit. A delivery ends with the push, so what was written and not pushed is
    still owed after a crash; without ``push`` it is a later process that pushes. ``redactor`` masks every text."""

    name = "notes"
    durable = True
    min_interval_seconds = 2.0

    def __init__(self, instance: str, store: Notes, redactor: Redactor, *, push: bool = True) -> None:
        self._instance = instance
        self._store = store
        self._redactor = redactor
        self.complete = push

    def deliver(self, changes: Sequence[CommitChange]) -> None:
        """Write the notes that differ from those in the mirror, and push; SourceError when it cannot be done."""
        present = self._store.read_all([change.record.sha for change in changes])
        notes = {}
        for change in changes:
            sha = change.record.sha
            text = self._rendered(change, present.get(sha))
            if text is not None and text != present.get(sha):
                notes[sha] = text
        if notes:
            self._store.write(notes)
        if self.complete:
            self._store.push()

    def _rendered(self, change: CommitChange, present: str | None) -> str | None:
        """The text of a note. One of a commit that had ended keeps the agents it names: they are those of its
        end."""
        try:
            previous = parse_note(present) if present and change.record.phase.terminal else None
            return render_note(self._instance, change, previous, self._redactor.tree)
        except Exception:  # trying again would not help, and the other commits must get their notes
            log.exception("a note could not be rendered", commit=change.record.sha)
            return None
