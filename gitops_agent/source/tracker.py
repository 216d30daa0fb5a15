"""From the repository to what is desired: fetch, register, check, load, or fall back.

The newest commit is a candidate when it is trusted and valid. Otherwise the last good one stays in force, and
the newest one's record says why. A source that does not answer changes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from gitops_agent.errors import (
    InvalidDesiredState,
    JournalError,
    SourceError,
    SourceRefused,
    SourceUnavailable,
    UsageError,
)
from gitops_agent.model.control import frozen_since
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding, Severity, errors
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import Now, SourceResult
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, changed_agents, with_agents_of
from gitops_agent.model.state import RolloutState, SourceState, State
from gitops_agent.model.status import Phase
from gitops_agent.ports import Clock
from gitops_agent.source.checks import NewHead, examine, last_of_policy_alone, unfreezing
from gitops_agent.source.commits import Lookup, accept, refuse, register
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.stricter_rules import lost, remarks, unreadable, with_remarks
from gitops_agent.support.backoff import delay

FIRST_BACKOFF_SECONDS = 30.0
MAX_BACKOFF_SECONDS = 600.0
"""How long the remote is not asked again for a commit that it did not give."""

log = structlog.get_logger(__name__)

Load = Callable[[Revision, Snapshot | None], Snapshot]
"""``load(revision, in_force)``."""

Recall = Callable[[Revision], Snapshot | None]
"""``recall(revision)``: a commit that this version refuses, as it was compiled when it was accepted."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the remote last answered, or why it did not. ``fetched_at``: when it last did."""

    head: Revision | None = None
    problem: SourceError | None = None
    fetched_at: float | None = None


class SourceTracker:
    """Follows one branch. Keeps snapshots in memory; everything it knows of commits is in the state.
    ``load`` gives the snapshot of a revision that follows another one, or raises InvalidDesiredState with every
    finding; ``recorded`` the state on record."""

    def __init__(
        self,
        source: Mirror,
        load: Load,
        clock: Clock,
        lookup: Lookup,
        recorded: Callable[[], State],
        recall: Recall = lambda _: None,
    ) -> None:
        self._source = source
        self._recorded = recorded
        self._load = load
        self._recall = recall
        self._clock = clock
        self._lookup = lookup
        self._answer = _Answer()
        self._snapshots: dict[str, Snapshot] = {}
        self._refused: dict[str, InvalidDesiredState] = {}  # of those that were good once
        self._rejected: str | None = None
        self._in_force: tuple[object, Snapshot | None] = (None, None)
        self._regained = 0  # commits that were asked for by their ids
        self._withheld, self._bring_at = 0, 0.0  # how often none was given, and when the next try is due

    def fetch(self) -> bool:
        """Ask the remote, on any thread; whether it answered something new.

        Apart from ``resolve``, so that a remote that hangs holds up no repair.
        """
        before, regained = self._answer, self._regained
        try:
            head = self._source.refresh()
            self._bring_lost()  # before a pass can take the answer for all there is
            self._answer = _Answer(head, None, self._clock.now())
        except SourceError as problem:
            self._answer = replace(before, problem=problem)
        except UsageError as problem:  # a token file that is gone for a moment, a state directory that is full
            self._answer = replace(before, problem=SourceUnavailable(problem.message, hint=problem.hint))
        answer = self._answer
        return (answer.head, answer.problem, self._regained) != (before.head, before.problem, regained)

    def _bring_lost(self) -> None:
        """Ask for the commits that agents follow and the mirror lacks: a force-push took them off the branch, and
        the mirror that kept them was another one."""
        if self._clock.monotonic() < self._bring_at:
            return
        try:
            for sha in self._lost(self._recorded()):
                self._source.bring(sha)
                self._regained += 1
            self._withheld = 0
        except (SourceError, JournalError) as problem:
            wait = delay(self._withheld, FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
            self._withheld, self._bring_at = self._withheld + 1, self._clock.monotonic() + wait
            log.warning("a commit in force is neither here nor given by the remote", problem=problem.message)

    def _lost(self, state: State) -> Iterator[str]:
        """The commits in force that the mirror lacks, each looked for when the one before it was dealt with."""
        needed = (state.source.valid, state.rollout.enforced, *state.rollout.released.values())
        return (sha for sha in dict.fromkeys(needed) if sha is not None and not self._source.has(sha))

    @property
    def problem(self) -> SourceError | None:
        """Why the source did not answer when it was last asked."""
        return self._answer.problem

    def resolve(self, state: State, now: Now) -> tuple[State, SourceResult]:
        """The state with new commits registered and checked, and what is desired now. Whatever a commit holds,
        this does not fail."""
        answer = self._answer
        state = replace(state, source=_with_answer(state.source, answer))
        in_force, head = self.in_force(state.rollout), answer.head or self._known(state.source.head)
        if self._is_behind(state.rollout):
            head = None
        target, problem = None, answer.problem or self._unreadable(state)
        if problem is not None and answer.problem is None:
            state = replace(state, source=replace(state.source, problem=source_finding(problem)))
        if head is not None:
            try:
                state = self._registered(state, head, now)
                state, target = self._candidate(state, head, in_force, now)
                target = target or self.snapshot(state.source.valid)  # the last good one goes on where it was
                self._forget_unused(state, target)
            except SourceError as broken:  # the mirror could not be read: what is known stays in force
                problem = problem or broken
        valid = target or (self.snapshot(state.source.valid) if in_force is not None else None)
        return state, SourceResult(
            head,
            target,
            in_force,
            changed=changed_agents(in_force, target) if target is not None else frozenset(),
            policy=valid.policy if valid is not None else None,
            unavailable=source_finding(problem) if problem is not None else None,
            retry_after=getattr(problem, "retry_after", None),
        )

    def refuse(self, state: State, head: Revision) -> None:
        """SourceRefused when this head would not be followed."""
        if found := errors(self._examine(state, head, self.in_force(state.rollout))):
            raise SourceRefused(found[0].summary, hint=found[0].detail)

    def in_force(self, rollout: RolloutState) -> Snapshot | None:
        """The spec in force for every agent; None when nothing was ever enforced, or it cannot be read."""
        if self._is_behind(rollout):
            return None
        specs = (rollout.enforced, rollout.released, self._regained)
        if self._in_force[1] is None or self._in_force[0] != specs:
            self._in_force = (specs, self._overlaid(rollout))
        return self._in_force[1]

    def snapshot(self, sha: str | None) -> Snapshot | None:
        """The snapshot of a commit that was good once, if it can still be read. What this version has against it
        is among its findings: new rules are for new commits."""
        try:
            return self._accepted_once(sha)
        except SourceError:
            return None  # the mirror lost it: nothing is concluded

    def _accepted_once(self, sha: str | None) -> Snapshot | None:
        """The same; SourceError when the mirror cannot be read."""
        if sha is not None and sha not in self._snapshots:
            revision = self._source.revision(sha)
            try:
                self._snapshots[sha] = self._load(revision, None)
            except InvalidDesiredState as refused:
                recalled = self._recall(revision)
                self._refused[sha] = refused
                if recalled is not None:
                    self._snapshots[sha] = replace(recalled, findings=remarks(revision, refused))
        return self._snapshots.get(sha or "")

    def _valid_now(self, sha: str) -> Snapshot | None:
        """The snapshot of any commit, if this version accepts it."""
        try:
            return self._load(self._source.revision(sha), None)
        except (InvalidDesiredState, SourceError):
            return None

    def _unreadable(self, state: State) -> SourceRefused | None:
        """Why the commit in force says nothing: the remote was asked for it in vain; or it is refused, and how it
        was compiled is not known."""
        enforced = state.rollout.enforced
        if enforced is None or enforced in self._snapshots:
            return None
        if self._withheld and not self._source.has(enforced):
            return lost(enforced)
        refused = self._refused.get(enforced)
        return unreadable(enforced, refused) if refused else None

    def _overlaid(self, rollout: RolloutState) -> Snapshot | None:
        good = self.snapshot(rollout.enforced)
        by_commit: dict[str, list[AgentKey]] = {}
        for key, sha in rollout.released.items():
            by_commit.setdefault(sha, []).append(key)
        for sha, keys in by_commit.items():
            snapshot = self.snapshot(sha)
            if good is not None and snapshot is not None:  # what cannot be read says nothing: the good spec stays
                good = with_agents_of(good, snapshot, keys)
        return good

    def _is_behind(self, rollout: RolloutState) -> bool:
        """Whether agents follow a commit that the mirror lacks, and the remote was not asked yet: another process
        led meanwhile. What it added is in no commit that is known here, and would be taken for removed."""
        if self._answer.fetched_at is not None:
            return False
        return any(self._known(sha) is None for sha in {*rollout.released.values()})

    def _known(self, sha: str | None) -> Revision | None:
        try:
            return self._source.revision(sha) if sha else None
        except SourceError:
            return None

    def _registered(self, state: State, head: Revision, now: Now) -> State:
        """The state with records for what a push brought. Counted from the last head that passed the checks: what
        was refused in between brought nothing, and back to that head is no news."""
        if head.sha == state.source.head:
            return state
        commits = state.commits
        if head.sha != state.source.verified:
            commits = register(commits, self._brought(state, head), head, self._look_up(state), now.wall)
        return replace(state, commits=commits, source=replace(state.source, head=head.sha))

    def _brought(self, state: State, head: Revision) -> Sequence[Revision]:
        return self._source.between(state.source.verified or state.source.head, head.sha)

    def _look_up(self, state: State) -> Lookup:
        return lambda sha: state.commits.records.get(sha) or self._lookup(sha)

    def _accepted(self, state: State, head: Revision, now: Now) -> State:
        """The state when the head has passed the checks: what was open is superseded, what it reverts marked."""
        if head.sha == state.source.verified:
            return state
        brought = self._brought(state, head) if state.source.verified else ()
        commits = accept(state.commits, brought, head, self._source, self._look_up(state), now.wall)
        return replace(state, commits=commits, source=replace(state.source, verified=head.sha))

    def _candidate(
        self, state: State, head: Revision, in_force: Snapshot | None, now: Now
    ) -> tuple[State, Snapshot | None]:
        """The snapshot of the head if it may be followed. A head is examined once."""
        if head.sha == state.source.valid and head.sha in self._snapshots:
            return with_remarks(state, self._snapshots[head.sha]), self._snapshots[head.sha]
        record = state.commits.records.get(head.sha)
        if head.sha == self._rejected and record is not None and record.phase.terminal:
            return state, None
        found = self._examine(state, head, in_force)
        if errors(found):
            return self._reject(state, head, Phase.REFUSED, found, now), None
        state = self._accepted(state, head, now)
        snapshot, found = self._loaded(state, head, in_force, found, now)
        known = self._accepted_once(head.sha) if snapshot is None and head.sha == state.source.valid else None
        if known is not None:
            return with_remarks(state, known), known  # on its way since before the rules were these
        if snapshot is None:
            return self._reject(state, head, Phase.INVALID, found, now), None
        snapshot = self._snapshots[head.sha] = replace(snapshot, findings=found + snapshot.findings)
        return _valid(state, snapshot, now), snapshot

    def _loaded(
        self, state: State, head: Revision, in_force: Snapshot | None, found: tuple[Finding, ...], now: Now
    ) -> tuple[Snapshot | None, tuple[Finding, ...]]:
        """The snapshot of a head, or everything that is wrong with it."""
        try:
            snapshot = self._load(head, None if self._is_rollback(state, head) else in_force)
            found += self._unfreezing(state, head, snapshot, now)
        except InvalidDesiredState as invalid:
            return None, found + invalid.findings
        except SourceRefused as refused:  # a tree that is too large to be listed, a blob to be read
            return None, (*found, source_finding(refused))
        except SourceError:
            raise
        except Exception as problem:  # a bug of ours must stop this commit, never the repair of the last good one
            log.exception("a commit could not be loaded", commit=head.sha)
            return None, (*found, _unexpected(head, problem))
        return (None if errors(found) else snapshot), found

    def _is_rollback(self, state: State, head: Revision) -> bool:
        """Whether it takes the fleet back to a commit that converged: what that one did not declare is meant."""
        record = state.commits.records.get(head.sha)
        earlier = record.rolls_back_to if record is not None else None
        known = (state.commits.records.get(earlier) or self._lookup(earlier)) if earlier else None
        return known is not None and known.is_in

    def _unfreezing(self, state: State, head: Revision, snapshot: Snapshot, now: Now) -> tuple[Finding, ...]:
        """Whether it may lift what it lifts, by itself or after the commits that were pushed along with it."""
        valid = self.snapshot(state.source.valid)
        found = unfreezing(valid, snapshot, now.wall)
        if found and valid is not None:
            brought = self._source.between(valid.revision.sha, head.sha)
            found = unfreezing(last_of_policy_alone(valid, brought, self._valid_now), snapshot, now.wall)
        return found

    def _examine(self, state: State, head: Revision, in_force: Snapshot | None) -> tuple[Finding, ...]:
        """What the trust checks find. Compared is the last head that passed them, so that a commit on top of a
        rewritten branch is refused like the rewrite itself."""
        last = state.source.verified
        contains_last = last is None or self._source.is_ancestor(last, head.sha)
        policy = in_force.policy if in_force else _policy_on_record(state.rollout)
        force_push = policy.force_push if policy else "refuse"
        return examine(NewHead(head, last, contains_last, self._source.branch, self._source.path, force_push))

    def _reject(
        self, state: State, head: Revision, phase: Phase, findings: tuple[Finding, ...], now: Now
    ) -> State:
        self._rejected = head.sha
        pushed = (*self._brought(state, head), head)
        return replace(state, commits=refuse(state.commits, pushed, phase, findings, now.wall))

    def _forget_unused(self, state: State, target: Snapshot | None) -> None:
        """Keep the snapshots in use and no others: each is a whole fleet."""
        used = {state.rollout.enforced, state.source.valid, *state.rollout.released.values()}
        used.add(target.revision.sha if target is not None else None)
        self._snapshots = {sha: each for sha, each in self._snapshots.items() if sha in used}
        self._refused = {sha: each for sha, each in self._refused.items() if sha in used}


def _policy_on_record(rollout: RolloutState) -> PolicySpec | None:
    """The policy of the commit in force, which cannot be read; None unless it is the one that converged."""
    return rollout.converged_policy if rollout.converged == rollout.enforced else None


def _valid(state: State, snapshot: Snapshot, now: Now) -> State:
    """The state when the newest commit is valid: its freezes are the ones in force."""
    sha, record = snapshot.revision.sha, state.commits.records.get(snapshot.revision.sha)
    if record is not None and record.phase in (Phase.REFUSED, Phase.INVALID):
        # Its refusal holds no longer (a corrected path, a newer us): it starts over.
        again = replace(record, phase=Phase.PENDING, findings=(), summary="", started_at=None, finished_at=None)
        state = replace(state, commits=state.commits.updated([again]))
    since = frozen_since(snapshot.policy, state.source.freezes_first_seen, now.wall)
    return replace(state, source=replace(state.source, valid=sha, freezes_first_seen=since))


def _with_answer(source: SourceState, answer: _Answer) -> SourceState:
    """What the source last answered; a process that has not asked yet keeps what an earlier one knew."""
    if answer.problem is not None:
        return replace(source, problem=source_finding(answer.problem))
    if answer.fetched_at is None:
        return source
    return replace(source, problem=None, fetched_at=answer.fetched_at)


def _unexpected(head: Revision, problem: Exception) -> Finding:
    return Finding(
        Severity.ERROR,
        "Unexpected",
        head.short,
        f"this commit could not be read: unexpected {type(problem).__name__}",
        "This is a mistake of gitops-agent, not of yours; the log has the details. The last good commit stays in "
        "force. Push a commit without what is unusual about this one, or report it.",
    )


def source_finding(problem: SourceError) -> Finding:
    """A source that does not answer, as a finding for status output."""
    code = "SourceRefused" if isinstance(problem, SourceRefused) else "SourceUnavailable"
    return Finding(Severity.ERROR, code, "source", problem.message, problem.hint)
