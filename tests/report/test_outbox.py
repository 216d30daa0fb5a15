"""The outbox: nothing that was delivered is delivered again, nothing that is owed is forgotten, no pass waits."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.errors import JournalError, SourceUnavailable
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.fields import Fields
from gitops_agent.model.outcome import Intent
from gitops_agent.model.passes import PassResult
from gitops_agent.model.state import CommitsState, State
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.ports import ActionRecord, Clock, CommitChange, Sink
from gitops_agent.report.outbox import Outbox
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.secrets import Redactor
from gitops_agent.testing.clock import FrozenClock

from .passes import a_pass, a_state
from .values import BOT, OTHER, SHA, a_record, a_status, an_action

pytestmark = pytest.mark.unit


class FakeOwedJournal:
    """Keeps what is owed in memory, as the journal does in its table."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, int]] = {}
        self.records: dict[str, CommitRecord] = {}
        self.version = 0
        self.error: Exception | None = None
        self.reads = 0

    def commit(self, records: Sequence[CommitRecord], owed_to: Sequence[str]) -> CommitsState:
        """Write records that changed; the commits of the state as it is then."""
        for record in records:
            self.version += 1
            self.records[record.sha] = record
            for name in owed_to:
                self.rows.setdefault(name, {})[record.sha] = self.version
        return CommitsState(dict(self.records))

    def owed(self) -> Mapping[str, Mapping[str, int]]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return {name: dict(rows) for name, rows in self.rows.items()}

    def delivered(self, sink: str, versions: Mapping[str, int]) -> None:
        if self.error is not None:
            raise self.error
        rows = self.rows[sink]
        for sha, version in versions.items():
            if rows.get(sha, version + 1) <= version:
                del rows[sha]

    def commit_record(self, sha: str) -> CommitRecord | None:
        return self.records.get(sha)

    def entries(self, *, commit: str) -> Sequence[ActionRecord]:
        del commit
        return ()


class Recording(Sink):
    """A durable sink that keeps what it gets, and fails or hangs when a test wants it."""

    name = "recording"
    durable = True
    min_interval_seconds = 2.0

    def __init__(self) -> None:
        self.batches: list[tuple[CommitChange, ...]] = []
        self.tries = 0
        self.error: Exception | None = None
        self.gate: threading.Event | None = None
        self.delivering = threading.Event()

    def deliver(self, changes: Sequence[CommitChange]) -> None:
        self.tries += 1
        self.delivering.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        self.batches.append(tuple(changes))

    @property
    def phases(self) -> list[tuple[str, Phase]]:
        return [(change.record.sha, change.record.phase) for batch in self.batches for change in batch]


class Quick(Recording):
    min_interval_seconds = 0.05


class PassCounter(Sink):
    name = "counter"

    def __init__(self, error: Exception | None = None) -> None:
        self.passes = 0
        self.error = error

    def on_pass(self, result: PassResult) -> None:
        del result
        self.passes += 1
        if self.error is not None:
            raise self.error


class Bench:
    """An outbox with a journal behind it; ``boot`` starts another process on the same journal."""

    def __init__(self, sink: Recording | None = None, clock: Clock | None = None) -> None:
        self.journal = FakeOwedJournal()
        self.sink = sink or Recording()
        self.frozen = FrozenClock()
        self.clock = clock or self.frozen
        self.leading = True
        self.state = a_state()
        self.boot()

    def boot(self) -> None:
        self.outbox = Outbox([self.sink], self.journal, self.clock, Redactor(), lambda: self.leading)

    def commit(self, *records: CommitRecord, **state: object) -> State:
        commits = self.journal.commit(records, self.outbox.owed_to)
        self.state = replace(self.state, commits=commits, **state)  # type: ignore[arg-type]
        return self.state

    def publish(self, *records: CommitRecord, **state: object) -> None:
        self.outbox.publish(a_pass(state=self.commit(*records, **state)))

    def after(self, seconds: float) -> None:
        self.frozen.advance(seconds)
        self.outbox.step()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_change_is_delivered_after_the_interval_and_once(bench: Bench) -> None:
    bench.publish(a_record())
    assert bench.outbox.pending == 1
    bench.after(1.9)
    assert bench.sink.batches == []
    bench.after(0.1)
    assert bench.sink.phases == [(SHA, Phase.CONVERGED)]
    assert (bench.outbox.pending, bench.journal.rows) == (0, {"recording": {}})
    bench.after(100)
    assert bench.sink.tries == 1


def test_a_burst_is_one_delivery_of_the_newest_version(bench: Bench) -> None:
    for phase in (Phase.PENDING, Phase.RECONCILING, Phase.CONVERGED):
        bench.publish(a_record(phase=phase))
        bench.after(0.1)
    bench.after(2.0)
    assert bench.sink.phases == [(SHA, Phase.CONVERGED)]


def test_a_quiet_pass_asks_the_journal_for_nothing(bench: Bench) -> None:
    bench.publish(a_record())
    reads = bench.journal.reads
    for _ in range(5):
        bench.outbox.publish(a_pass(state=bench.state))
    assert bench.journal.reads == reads


def test_after_a_restart_only_what_is_owed_is_delivered(bench: Bench) -> None:
    bench.publish(a_record())
    assert bench.outbox.flush(0.0) is True
    bench.publish(a_record(OTHER, position=9))
    bench.boot()
    bench.outbox.start(bench.state)
    assert bench.outbox.close() is True
    assert bench.sink.phases == [(SHA, Phase.CONVERGED), (OTHER, Phase.CONVERGED)]
    bench.boot()
    bench.outbox.start(bench.state)
    assert bench.outbox.close() is True
    assert len(bench.sink.batches) == 2, "nothing that was delivered is delivered again"


def test_an_incomplete_delivery_leaves_one_commit_owed_for_a_later_process(bench: Bench) -> None:
    bench.sink.complete = False
    for position, sha in enumerate((SHA, OTHER, SHA[::-1])):
        bench.publish(a_record(sha, position=position))
        bench.frozen.advance(10)
        assert bench.outbox.flush(0.0) is True
        assert len(bench.journal.owed()["recording"]) == 1, "however long the history"
    assert len(bench.sink.batches) == 3, "and each was delivered once"
    bench.sink.complete = True
    bench.boot()
    bench.outbox.start(bench.state)
    assert bench.outbox.close() is True
    assert len(bench.sink.batches) == 4
    assert not bench.journal.owed()["recording"]


def test_what_is_owed_may_be_older_than_the_state_goes_back(bench: Bench) -> None:
    bench.commit(a_record())
    bench.outbox.collect(a_state(a_record(OTHER)))
    assert bench.outbox.flush(0.0) is True
    assert bench.sink.phases == [(SHA, Phase.CONVERGED)]


def test_a_commit_that_the_journal_no_longer_has_is_owed_nothing(bench: Bench) -> None:
    bench.commit(a_record())
    bench.journal.records.clear()
    bench.outbox.collect(a_state(a_record(OTHER)))
    assert bench.outbox.pending == 0


def test_a_process_that_does_not_lead_owes_and_delivers_nothing(bench: Bench) -> None:
    bench.leading = False
    assert bench.outbox.owed_to == ()
    bench.publish(a_record())
    assert bench.outbox.flush(0.0) is True
    bench.leading = True
    bench.publish(a_record(OTHER))
    bench.leading = False
    bench.after(10)
    assert bench.outbox.flush(10) is False
    assert (bench.sink.tries, bench.journal.rows) == (0, {"recording": {OTHER: 2}}), "it is still owed"
    bench.leading = True
    assert bench.outbox.flush(0.0) is True
    assert bench.sink.phases == [(OTHER, Phase.CONVERGED)], "what another process reported is not repeated"


def test_a_commit_that_ended_keeps_the_statuses_of_its_end(bench: Bench) -> None:
    bad = a_record(phase=Phase.DEGRADED)
    bench.publish(bad, status=a_state(statuses=(a_status(ready=False),)).status)
    bench.publish(replace(bad, rolled_back_by=OTHER), status=a_state(statuses=(a_status(commit=OTHER),)).status)
    assert bench.outbox.flush(0.0) is True
    ((change,),) = bench.sink.batches
    assert (change.record.rolled_back_by, change.statuses[BOT].ready) == (OTHER, False)


def test_an_open_commit_has_the_newest_statuses(bench: Bench) -> None:
    bench.publish(a_record(phase=Phase.RECONCILING), status=a_state(statuses=(a_status(ready=False),)).status)
    bench.publish(a_record(), status=a_state(statuses=(a_status(),)).status)
    assert bench.outbox.flush(0.0) is True
    assert bench.sink.batches[0][0].statuses[BOT].ready is True


def test_a_failed_delivery_is_tried_again_later_and_later(bench: Bench) -> None:
    bench.sink.error = SourceUnavailable("the remote does not answer")
    bench.publish(a_record())
    moments = []
    for _ in range(600):
        before = bench.sink.tries
        bench.after(1.0)
        if bench.sink.tries > before:
            moments.append(bench.frozen.monotonic())
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert 4 < len(moments) < 15
    assert gaps[-1] > gaps[0]
    bench.sink.error = None
    bench.after(1000)
    assert bench.sink.phases == [(SHA, Phase.CONVERGED)]


def test_the_other_side_may_ask_for_time(bench: Bench) -> None:
    bench.sink.error = SourceUnavailable("too many requests", retry_after=500)
    bench.publish(a_record())
    bench.after(2)
    for _ in range(49):
        bench.after(10)
    assert bench.sink.tries == 1
    bench.after(200)
    assert bench.sink.tries == 2


@pytest.mark.parametrize("error", [SourceUnavailable("mirror is being rebuilt"), OSError(28, "No space left")])
def test_no_error_of_a_sink_reaches_a_pass(bench: Bench, error: Exception) -> None:
    bench.sink.error = error
    bench.publish(a_record())
    bench.after(2.0)
    assert bench.outbox.pending == 1
    bench.sink.error = None
    bench.after(10.0)
    assert bench.sink.phases == [(SHA, Phase.CONVERGED)]


def test_a_mark_that_cannot_be_written_means_one_more_delivery(bench: Bench) -> None:
    bench.publish(a_record())
    bench.journal.error = JournalError("the disk is full")
    assert bench.outbox.flush(0.0) is False
    bench.journal.error = None
    bench.after(10)
    assert bench.sink.tries == 2
    assert bench.journal.rows == {"recording": {}}


def test_a_journal_that_cannot_be_read_is_asked_again_by_the_next_pass(bench: Bench) -> None:
    bench.journal.error = JournalError("the disk is full")
    bench.publish(a_record())
    assert bench.outbox.pending == 0
    bench.journal.error = None
    bench.outbox.publish(a_pass(state=bench.state))
    assert bench.outbox.pending == 1


def test_flush_keeps_the_interval_and_returns_false_without_time_for_it(bench: Bench) -> None:
    bench.publish(a_record())
    assert bench.outbox.flush(0.0) is True, "nothing was delivered lately"
    bench.publish(a_record(changed=4))
    assert bench.outbox.flush(1.0) is False
    assert bench.sink.tries == 1
    bench.frozen.advance(2.0)
    assert bench.outbox.flush(1.0) is True


def test_every_sink_gets_every_pass_whatever_the_others_do() -> None:
    broken, counting = PassCounter(RuntimeError("boom")), PassCounter()
    outbox = Outbox([broken, counting], FakeOwedJournal(), FrozenClock(), Redactor())
    for _ in range(2):
        outbox.publish(a_pass())
    assert (broken.passes, counting.passes) == (2, 2)
    assert outbox.owed_to == ()
    outbox.start(a_state())
    assert outbox.close() is True


def test_no_secret_gets_into_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench()
    bench.outbox = Outbox([bench.sink], bench.journal, bench.clock, Redactor(["canary-71f0a9c2"]))
    bench.sink.error = SourceUnavailable("https://x:canary-71f0a9c2@git.example does not answer")
    bench.publish(a_record())
    assert bench.outbox.flush(0.0) is False
    printed = capsys.readouterr()
    assert "not delivered" in printed.out + printed.err
    assert "canary" not in printed.out + printed.err


def test_no_sink_gets_a_secret_in_what_was_before_and_after(tmp_path: Path) -> None:
    secret, sink, clock = "canary-71f0a9c2", Recording(), FrozenClock()
    with open_journal(tmp_path) as journal:
        edited = Fields.of({"instructions": f"{'x' * 150} {secret}", "apiKey": "hunter2"})
        action = an_action(live=edited, desired=Fields.of({"instructions": "Be kind."}))
        journal.begin([Intent("i1", action, SHA, "digest", "run", 1.0)])
        outbox = Outbox([sink], journal, clock, Redactor([secret]))
        state = journal.state()
        outbox.collect(
            journal.commit(replace(state, commits=state.commits.updated([a_record()])), owed_to=[sink.name])
        )
        clock.advance(10)
        outbox.step()
    ((change,),) = sink.batches
    (entry,) = change.entries
    assert entry.before is not None
    assert entry.before.value == {"instructions": f"{'x' * 150} ***", "apiKey": "***"}


def test_what_is_delivered_while_the_journal_is_read_is_not_queued_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish(a_record())
    read = bench.journal.owed

    def slow() -> Mapping[str, Mapping[str, int]]:
        rows = read()
        bench.after(2.0)
        return rows

    monkeypatch.setattr(bench.journal, "owed", slow)
    bench.outbox.collect(a_state(a_record(OTHER)))
    assert (bench.sink.tries, bench.outbox.pending) == (1, 0)


def test_what_waits_is_delivered_once_this_process_leads_again(running: Bench) -> None:
    running.leading = False
    running.outbox.publish(a_pass(state=running.state))
    running.leading = True
    running.publish(a_record())
    running.leading = False
    until(lambda: running.outbox.pending == 1)
    time.sleep(0.1)
    delivered = running.sink.tries
    running.leading = True
    running.outbox.publish(a_pass(state=running.state))
    until(lambda: running.outbox.pending == 0)
    assert delivered <= running.sink.tries == 1


def test_the_journal_keeps_what_is_owed_from_one_process_to_the_next(tmp_path: Path) -> None:
    sink = Recording()

    def outbox(journal: SqlJournal) -> Outbox:
        made = Outbox([sink], journal, FrozenClock(), Redactor())
        made.collect(journal.state())
        return made

    with open_journal(tmp_path) as journal:
        first = outbox(journal)
        for record in (a_record(SHA, position=1), a_record(OTHER, position=2)):
            state = journal.state()
            commits = state.commits.updated([record])
            state = replace(state, source=replace(state.source, head=record.sha), commits=commits)
            first.collect(journal.commit(state, owed_to=first.owed_to))
            if record.sha == SHA:
                assert first.flush(0.0) is True
    with open_journal(tmp_path) as journal:
        assert outbox(journal).flush(0.0) is True
    with open_journal(tmp_path) as journal:
        assert outbox(journal).pending == 0
    assert sink.phases == [(SHA, Phase.CONVERGED), (OTHER, Phase.CONVERGED)], "each once, in three processes"


@pytest.fixture
def running() -> Iterator[Bench]:
    bench = Bench(Quick(), SystemClock())
    bench.outbox.start(bench.state)
    yield bench
    if bench.sink.gate is not None:
        bench.sink.gate.set()
    bench.outbox.close(20.0)


def test_the_thread_delivers_by_itself(running: Bench) -> None:
    running.publish(a_record())
    until(lambda: running.sink.phases == [(SHA, Phase.CONVERGED)])


def test_a_pass_does_not_wait_for_a_slow_delivery(running: Bench) -> None:
    running.sink.gate = threading.Event()
    running.publish(a_record(phase=Phase.RECONCILING))
    assert running.sink.delivering.wait(20)
    running.publish(a_record())  # returns although the delivery hangs
    running.publish(a_record(OTHER))
    assert running.outbox.flush(0.05) is False
    running.sink.gate.set()
    until(lambda: running.outbox.pending == 0)
    assert running.sink.phases == [(SHA, Phase.RECONCILING), (SHA, Phase.CONVERGED), (OTHER, Phase.CONVERGED)]


class Other(Quick):
    name = "other"


def test_a_sink_that_hangs_holds_up_no_other_and_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gitops_agent.report.outbox.QUIET_SECONDS", 0.05)
    journal, hangs, other = FakeOwedJournal(), Quick(), Other()
    hangs.gate = threading.Event()
    outbox = Outbox([hangs, other], journal, SystemClock(), Redactor())  # type: ignore[arg-type]
    outbox.start(a_state())
    try:
        outbox.publish(a_pass(state=replace(a_state(), commits=journal.commit([a_record()], outbox.owed_to))))
        assert hangs.delivering.wait(20)
        until(lambda: other.phases == [(SHA, Phase.CONVERGED)])
        assert outbox.close(0.2) is False
        assert "waiting for reports to be delivered" in (told := capsys.readouterr().out)
        assert "recording" in told
        assert "other" not in told
    finally:
        hangs.gate.set()
    until(lambda: not outbox_threads())


def outbox_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("outbox")]


def test_close_delivers_the_last_change_and_ends_the_thread() -> None:
    bench = Bench(Quick(), SystemClock())
    bench.outbox.start(bench.state)
    bench.publish(a_record())
    assert bench.outbox.close(20.0) is True
    assert bench.sink.phases == [(SHA, Phase.CONVERGED)]
    assert not outbox_threads()
