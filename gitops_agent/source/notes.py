"""Notes on commits: our report in the repository itself, on one ref that only this instance writes."""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from gitops_agent.errors import SourceUnavailable
from gitops_agent.settings import Settings
from gitops_agent.source.identity import identity
from gitops_agent.source.mirror import Mirror
from gitops_agent.support.backoff import delay

MAX_PUSHES = 6


class Notes:
    """Notes on commits, on ``refs/notes/gitops-agent/<instance>``, which only this instance writes."""

    def __init__(
        self,
        mirror: Mirror,
        settings: Settings,
        *,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._mirror = mirror
        self._settings = settings
        self._jitter = jitter
        self._sleep = sleep

    def read_all(self, shas: Sequence[str]) -> dict[str, str]:
        """The notes on some commits, as far as there are any, with two git calls for all of them."""
        listed = self._mirror.git.local("notes", f"--ref={self._mirror.notes_ref}", "list", ok=(0, 1, 128))
        wanted = set(shas)
        rows = (line.split() for line in listed.text.splitlines()) if listed.code == 0 else ()
        blob_of = {sha: blob for blob, sha in rows if sha in wanted}
        texts = dict(self._mirror.blobs(list(dict.fromkeys(blob_of.values()))))
        return {sha: texts[blob].decode(errors="replace") for sha, blob in blob_of.items() if blob in texts}

    def write(self, notes: Mapping[str, str]) -> None:
        """Set the notes of some commits, in one commit of the mirror.

        A commit that the mirror does not have any more cannot carry a note and is left out: it must not keep the
        others from theirs.
        """
        mirror = self._mirror
        with mirror.exclusive():
            known = {sha: notes[sha] for sha in mirror.known_commits(notes)}
            if known:
                stream = self._import(known, mirror.resolve(mirror.notes_ref))
                mirror.git.local("fast-import", "--quiet", "--done", "--date-format=now", stdin=stream)

    def _import(self, notes: Mapping[str, str], before: str | None) -> bytes:
        name, email = identity(self._settings)
        message = f"Notes of {self._settings.instance} on {len(notes)} commit(s)\n".encode()
        parts = [
            f"commit {self._mirror.notes_ref}\n".encode(),
            f"committer {name} <{email}> now\n".encode(),
            b"data %d\n%s" % (len(message), message),
            f"from {before}\n".encode() if before else b"",
        ]
        for sha, text in notes.items():
            data = text.encode(errors="replace")
            parts.append(b"N inline %s\ndata %d\n%s\n" % (sha.encode(), len(data), data))
        return b"".join([*parts, b"\ndone\n"])

    def push(self) -> None:
        """Send the ref to the remote, merging what is there (ours wins on a commit noted by both).

        A rejected ref is fetched, merged and tried again with jitter; SourceUnavailable after several times.
        """
        reason = ""
        for failures in range(MAX_PUSHES):
            if failures:
                self._sleep(delay(failures, 0.05, 1.0, None, self._jitter()))
            with self._mirror.exclusive():
                ours = self._mirror.resolve(self._mirror.notes_ref)
                theirs = self._mirror.fetch_notes() if ours else None
                reason = self._send(theirs) if ours else ""
            if not reason:
                return
        raise SourceUnavailable(
            f"notes were rejected {MAX_PUSHES} times by {self._mirror.address.safe}: {reason}",
            hint=f"allow this credential to write {self._mirror.notes_ref}, or set push to false",
        )

    def _send(self, theirs: str | None) -> str:
        """Merge and push once; why the remote rejected the ref, "" when it took it."""
        mirror = self._mirror
        if theirs and not mirror.is_ancestor(theirs, mirror.notes_ref):
            merge = ("notes", f"--ref={mirror.notes_ref}", "merge", "--quiet", "--strategy=ours", theirs)
            mirror.git.local(*merge, env=identity(self._settings).variables)
        if theirs == mirror.resolve(mirror.notes_ref):
            return ""
        return mirror.send(mirror.notes_ref, mirror.notes_ref)


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
                # Only this instance writes this ref: what the remote has is ours, even after a loss of our state.
                mirror.fetch_ref(self.ref)
            add = ("notes", f"--ref={self.ref}", "add", "--force", "--file=-", sha)
            mirror.git.local(*add, stdin=text.encode(errors="replace"), env=identity(self._settings).variables)
            reason = mirror.send(self.ref, self.ref) if self._settings.push else ""
        if reason:
            hint = f"allow this credential to write {self.ref}, or set driftNote to false"
            raise SourceUnavailable(f"{mirror.address.safe} did not take {self.ref}: {reason}", hint=hint)
