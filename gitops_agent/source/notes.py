"""Notes on commits: our report in the repository itself, on one ref that only this instance writes."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from gitops_agent.errors import SourceError, SourceUnavailable
from gitops_agent.model.quantity import counted
from gitops_agent.settings import Settings
from gitops_agent.source.git_environment import identity
from gitops_agent.source.git_text import NewCommit, note_change, parse_entries
from gitops_agent.source.mirror import REMOTE_NOTES, Mirror
from gitops_agent.support.backoff import delay

MAX_PUSHES = 6


def read_notes(mirror: Mirror, ref: str, shas: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The notes on some commits, in their order: blob and text, however git has fanned them into folders."""
    if not shas or mirror.git.ref(ref) is None:
        return {}
    listed = mirror.git.local("ls-tree", "-r", "-z", "--full-tree", ref).output
    blobs = {entry.path.replace("/", ""): entry.blob for entry in parse_entries(listed) if entry.type == "blob"}
    noted = {sha: blobs[sha] for sha in shas if sha in blobs}
    texts = dict(mirror.blobs(dict.fromkeys(noted.values())))
    return {sha: (blob, texts[blob].decode(errors="replace")) for sha, blob in noted.items()}


@dataclass(eq=False)
class Notes:
    """Notes on commits, on ``refs/notes/gitops-agent/<instance>``, which only this instance writes."""

    mirror: Mirror
    settings: Settings
    _: KW_ONLY
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep

    def read_all(self, shas: Sequence[str]) -> dict[str, str]:
        """The notes on some commits, as far as there are any, with two git calls for all of them."""
        return {sha: text for sha, (_, text) in read_notes(self.mirror, self.mirror.notes_ref, shas).items()}

    def write(self, notes: Mapping[str, str]) -> None:
        """Set the notes of some commits, in one commit of the mirror.

        A commit that the mirror does not have any more cannot carry a note and is left out: it must not keep the
        others from theirs.
        """
        mirror = self.mirror
        with mirror.exclusive():
            known = [sha for sha in notes if mirror.git.find(sha, "commit")]
            changes = [note_change(sha, notes[sha]) for sha in known]
            message = f"Notes of {self.settings.instance} on {counted(len(known), 'commit')}\n"
            if known:
                commit = NewCommit(mirror.git.ref(mirror.notes_ref) or "", message, changes)
                mirror.git.write_commits(mirror.notes_ref, identity(self.settings), commit)

    def push(self, write: Callable[[], object] = lambda: None) -> None:
        """Take in the notes of the remote, have ``write`` set what is to be said on top of them, and send the ref.

        Of a note that was written here and at the remote theirs stays, unless it is written now: it comes from who
        reported for the instance meanwhile, and what is owed from here is written now. A rejected ref is fetched,
        written and tried again with jitter; SourceUnavailable after several times.
        """
        reason = ""
        for failures in range(MAX_PUSHES):
            if failures:
                self.sleep(delay(failures, 0.05, 1.0, None, self.jitter()))
            reason = self._send(write)
            if not reason:
                return
        raise SourceUnavailable(
            f"notes were rejected {MAX_PUSHES} times by {self.mirror.address.target}: {reason}",
            hint=f"allow this credential to write {self.mirror.notes_ref}, or set push to false",
        )

    def _send(self, write: Callable[[], object]) -> str:
        """Merge, write and push once; why the remote rejected the ref, "" when it took it or there is none."""
        mirror = self.mirror
        try:
            theirs = mirror.fetch_ref(mirror.notes_ref, REMOTE_NOTES)
        except SourceError:
            write()  # kept here until the remote answers: how agents were when a commit ended is known only now
            raise
        if theirs:
            self._take_in(theirs)
        write()
        ours = mirror.git.ref(mirror.notes_ref)
        return "" if ours is None or ours == theirs else mirror.send(ours, mirror.notes_ref)

    def _take_in(self, theirs: str) -> None:
        mirror = self.mirror
        with mirror.exclusive():
            if not mirror.git.ref(mirror.notes_ref):
                mirror.git.local("update-ref", mirror.notes_ref, theirs)
            elif not mirror.git.contains(theirs, mirror.notes_ref):
                merge = ("notes", f"--ref={mirror.notes_ref}", "merge", "--quiet", "--strategy=theirs", theirs)
                mirror.git.local(*merge, env=identity(self.settings).variables)


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
        if self._settings.push:
            # Only this instance writes this ref: what the remote has is ours, even after a loss of our state.
            mirror.fetch_ref(self.ref, self.ref)
        with mirror.exclusive():
            add = ("notes", f"--ref={self.ref}", "add", "--force", "--file=-", sha)
            mirror.git.local(*add, stdin=text.encode(errors="replace"), env=identity(self._settings).variables)
            ours = mirror.git.ref(self.ref)
        reason = mirror.send(ours, self.ref) if self._settings.push and ours else ""
        if reason:
            hint = f"allow this credential to write {self.ref}, or set driftNote to false"
            raise SourceUnavailable(f"{mirror.address.target} did not take {self.ref}: {reason}", hint=hint)
