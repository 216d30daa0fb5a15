"""The sink that keeps notes on commits: written to the mirror at once, pushed at most every two seconds.

What is not pushed yet needs no queue of its own: it is what the notes ref of the mirror holds and the remote
lacks. The ref is durable, and pushing it twice is harmless, so the sink pushes once after every start instead
of keeping a second record that a crash could set against the first.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import structlog

from gitops_agent.errors import GitopsAgentError, SourceUnavailable
from gitops_agent.model.status import CommitRecord
from gitops_agent.ports import Clock, NoteStore, Report
from gitops_agent.report.note import parse_note, render_note
from gitops_agent.report.sinks.push_timer import PushTimer
from gitops_agent.support.secrets import Redactor

_REMEMBERED = 512  # texts kept to see whether a note changed

Read = Callable[[Sequence[str]], Mapping[str, str]]
"""The notes that some commits have in the mirror now, by sha: what lets "only what changed" outlive a restart."""


class GitNotesSink:
    """Implements ``ports.Sink``. Nothing that goes wrong here fails a pass: it is logged and tried again."""

    def __init__(
        self,
        store: NoteStore,
        clock: Clock,
        *,
        push: bool = True,
        interval: float = 2.0,
        redactor: Redactor | None = None,
        read: Read | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._push = push
        self._redact = redactor or Redactor()
        self._read = read
        self._timer = PushTimer(interval, random.random)
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._pending: dict[str, str] = {}
        self._lock = threading.Lock()  # guards the fields above; never held while git works
        self._git = threading.Lock()  # one writer or pusher at a time
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger("gitops_agent.notes")

    @property
    def pending(self) -> bool:
        """Whether something waits to be written or pushed; asked without a lock, so that nobody waits."""
        return bool(self._pending) or self._timer.waits

    def start(self) -> None:
        """Begin to push from a thread of its own, beginning with what an earlier run left unpushed."""
        self._mark_dirty()
        self._thread = threading.Thread(target=self._run, name="git-notes", daemon=True)
        self._thread.start()

    def publish(self, report: Report) -> None:
        """Render the notes of the commits that changed, and write them to the mirror unless a push is going on."""
        try:
            self._recall([record.sha for record in report.commits])
            texts = {record.sha: self._render(report, record) for record in report.commits}
        except Exception:
            self._log.exception("notes could not be rendered", commits=[record.sha for record in report.commits])
            return
        with self._lock:
            known = {**self._texts, **self._pending}
            self._pending.update({sha: text for sha, text in texts.items() if known.get(sha) != text})
            if not self._pending:
                return
        if self._git.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._git.release()
        self._mark_dirty()

    def step(self) -> None:
        """Write and push, if it is time. Called by the thread; tests call it with a clock of theirs."""
        with self._git:
            with self._lock:
                due = self._timer.delay(self._clock.monotonic()) == 0
            if due:
                self._write_and_push()

    def flush(self, timeout: float) -> bool:
        """One final write and push, as soon as the interval allows; whether nothing is left to send."""
        deadline = self._clock.monotonic() + timeout
        if not self._git.acquire(timeout=max(0.0, timeout)):
            return False
        try:
            with self._lock:
                now = self._clock.monotonic()
                wait = self._timer.earliest(now)
            if wait is None:
                return True
            if now + wait > deadline:
                # Out of time to push; what is written stays in the mirror for the next start.
                return self._write() and not self._push
            # Nobody else can push meanwhile, so one wait is enough.
            time.sleep(wait)
            return self._write_and_push()
        finally:
            self._git.release()

    def close(self, timeout: float = 10.0) -> bool:
        """Flush, then end the thread; whether everything was sent."""
        deadline = self._clock.monotonic() + timeout
        sent = self.flush(timeout)
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(max(1.0, deadline - self._clock.monotonic()))
            self._thread = None
        return sent

    def _run(self) -> None:
        while not self._closing:
            self.step()
            with self._lock:
                delay = self._timer.delay(self._clock.monotonic())
            if delay != 0 and not self._closing:
                self._wake.wait(delay)
                self._wake.clear()

    def _render(self, report: Report, record: CommitRecord) -> str:
        with self._lock:
            known = self._pending.get(record.sha) or self._texts.get(record.sha)
        previous = parse_note(known) if known and record.phase.terminal else None
        return render_note(
            report.instance,
            record,
            report.statuses,
            report.entries.get(record.sha, ()),
            previous=previous,
            redact=self._redact,
        )

    def _recall(self, shas: Sequence[str]) -> None:
        """Learn the notes that an earlier run wrote."""
        with self._lock:
            unknown = [sha for sha in shas if sha not in self._texts and sha not in self._pending]
        if self._read is None or not unknown:
            return
        try:
            self._remember(self._read(unknown))
        except GitopsAgentError as problem:
            self._complain("notes could not be read back", problem)

    def _write(self) -> bool:
        """Write what is pending; whether nothing is pending any more. The caller holds ``_git``."""
        with self._lock:
            notes = dict(self._pending)
        if not notes:
            return True
        try:
            self._store.write(notes)
        except Exception as problem:
            self._complain("notes could not be written", problem)
            return False
        self._remember(notes)
        with self._lock:
            for sha, text in notes.items():
                if self._pending.get(sha) == text:
                    del self._pending[sha]
        return True

    def _write_and_push(self) -> bool:
        with self._lock:
            self._timer.begin(self._clock.monotonic())
        retry_after: float | None = None
        done = self._write()
        if done and self._push:
            try:
                self._store.push()
            except Exception as problem:
                self._complain("notes could not be pushed; they stay queued", problem)
                retry_after = problem.retry_after if isinstance(problem, SourceUnavailable) else None
                done = False
        with self._lock:
            self._timer.end(self._clock.monotonic(), done=done, retry_after=retry_after)
        return done

    def _remember(self, notes: Mapping[str, str]) -> None:
        with self._lock:
            for sha, text in notes.items():
                self._texts[sha] = text
                self._texts.move_to_end(sha)
            while len(self._texts) > _REMEMBERED:
                self._texts.popitem(last=False)

    def _mark_dirty(self) -> None:
        with self._lock:
            self._timer.dirty(self._clock.monotonic())
        self._wake.set()

    def _complain(self, event: str, problem: Exception) -> None:
        if isinstance(problem, GitopsAgentError):
            self._log.warning(event, error=self._redact(str(problem)), hint=self._redact(problem.hint))
        else:
            self._log.error(event, error=self._redact(repr(problem)), exc_info=problem)
