"""The end of a pass: what it means for agents and commits, written once, on every path.

Turns what was seen and done into statuses and phases (by the pure rules in ``report/``), stores what changed
in the journal, and hands reports to the sinks. Keeps in memory only what can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from gitops_agent.intake import Intake, source_finding
from gitops_agent.model.agent import Agent
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Outcome, Result
from gitops_agent.model.plan import Action, Class, Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Health, HealthState, Phase
from gitops_agent.observe import Observed
from gitops_agent.plan.situation import Situation, is_hands_off
from gitops_agent.ports import Clock, Journal, Report, Scope, Sink
from gitops_agent.report.conditions import AgentView, judge
from gitops_agent.report.phases import Standing, judged, stopped

STABLE_AFTER = 60.0
"""A healthy agent this long after its last permitted retry starts again with a clean sheet."""

SOON = 0.25
"""How soon to look again while something is in progress and nothing says when it will be done."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass ended with. ``wait`` is how many seconds until there is something to do, if known."""

    commit: str | None
    enforced: str | None
    record: CommitRecord | None
    statuses: Mapping[AgentKey, AgentStatus]
    findings: tuple[Finding, ...]
    plan: Plan | None = None
    executed: Sequence[tuple[Action, Outcome]] = ()
    unavailable: bool = False
    retry_after: float | None = None
    busy: bool = False
    wait: float | None = None

    def no_later_than(self, seconds: float | None) -> PassResult:
        """The same result, with something to do in so many seconds at the latest."""
        if seconds is None or (self.wait is not None and self.wait <= seconds):
            return self
        return replace(self, wait=seconds)

    @property
    def phase(self) -> Phase | None:
        """The phase of the newest commit."""
        return self.record.phase if self.record else None


class Bookkeeper:
    """Keeps the statuses of agents and the records of commits of one instance."""

    def __init__(self, instance: str, journal: Journal, sinks: Sequence[Sink], clock: Clock) -> None:
        self._instance = instance
        self._journal = journal
        self._sinks = sinks
        self._clock = clock
        self._statuses: dict[AgentKey, AgentStatus] = dict(journal.statuses())
        self._unready_since: dict[AgentKey, float] = {}
        self._became_ready = False
        self._published: dict[str, CommitRecord] = {}

    def unfinished(self) -> frozenset[AgentKey]:
        """The agents that a scoped pass must look at too: those on their way, and those waiting for them."""
        return frozenset(key for key, status in self._statuses.items() if not status.ready)

    def situation(self, snapshot: Snapshot, scope: Scope, blind: frozenset[str]) -> Situation:
        """What guards may know besides the plan."""
        return Situation(
            now=self._clock.now(),
            snapshot=snapshot,
            bases=self._journal.bases(),
            attempts=self._journal.attempts(),
            ready=_Ready(self._statuses),
            unconverged=self._unconverged(),
            scope=scope,
            blind=blind,
        )

    def welcome(self, intake: Intake) -> None:
        """A new commit is announced before anything is done about it, and gives its agents a fresh start."""
        if not intake.is_candidate or not intake.moved or intake.head is None:
            self._publish()
            return
        record = self._journal.commit(intake.head.sha)
        if record is not None and record.phase is Phase.PENDING:
            begun = replace(record, started_at=self._clock.now(), changed=len(intake.moved))
            self._journal.put_commits([begun])
            known = self._journal.attempts()
            stale = {key: None for key in known if key.agent in intake.moved}
            if stale:
                self._journal.finish((), attempts=stale)
            for key in intake.moved:
                self._unready_since.pop(key, None)
        self._publish()

    def idle(self, intake: Intake) -> PassResult:
        """Nothing is desired yet (no commit was ever good): touch nothing, say why."""
        self._publish()
        self._journal.put({"last_pass": str(self._clock.now())})
        return self._result(intake, None, ())

    def close(
        self,
        intake: Intake,
        snapshot: Snapshot,
        plans: tuple[Plan, Plan | None],
        executed: Sequence[tuple[Action, Outcome]],
        look: tuple[Observed, Mapping[AgentKey, Health], Scope],
    ) -> PassResult:
        """Judge agents, then the newest commit; write both; tell the sinks."""
        plan, blocked = plans
        observed, health, _ = look
        done = {action.key for action, outcome in executed if outcome.result is Result.DONE}
        pending = [action for action in plan.actions if action.key not in done]
        # Who waits for another agent has not begun: its time to become healthy starts when it may.
        waiting = {
            key.agent for verdict in plan.verdicts if verdict.guard == "dependencies" for key in verdict.held
        }
        self._judge_agents(snapshot, pending, look)
        for key in waiting:
            self._unready_since.pop(key, None)
        self._journal.record_observations(list(observed.seen.values()))
        self._forgive(health)
        if intake.head is not None and intake.is_candidate:
            self._judge_commit(
                intake, snapshot, plan if blocked is None else blocked, pending, blocked is not None
            )
        self._publish()
        self._journal.put({"last_pass": str(self._clock.now())})
        result = self._result(intake, blocked or plan, executed)
        return replace(result, wait=min(self._waits(plan, pending, progressed=bool(done)), default=None))

    def _judge_agents(
        self,
        snapshot: Snapshot,
        pending: Sequence[Action],
        look: tuple[Observed, Mapping[AgentKey, Health], Scope],
    ) -> None:
        observed, health, scope = look
        now, monotonic, commit = self._clock.now(), self._clock.monotonic(), snapshot.revision.sha
        bases, attempts = self._journal.bases(), self._journal.attempts()
        owed: dict[AgentKey, list[Action]] = {}
        for action in pending:
            owed.setdefault(action.key.agent, []).append(action)
        self._became_ready = False
        changed = []
        for key in snapshot.agents if scope is None else scope:
            agent = snapshot.agents.get(key)
            if agent is None:
                continue
            view = AgentView(
                agent=agent,
                seen=observed.seen,
                bases=bases,
                health=health.get(key),
                pending=owed.get(key, ()),
                attempts=attempts,
                blind=next((observed.blind[r.driver] for r in agent.resources if r.driver in observed.blind), None)
                if observed.blind
                else None,
                deadline_passed=self._is_overdue(agent, monotonic),
            )
            previous = self._statuses.get(key)
            status = judge(view, previous, commit, now)
            self._became_ready |= status.ready and (previous is None or not previous.ready)
            self._track(key, status.ready, monotonic)
            if status != previous:
                self._statuses[key] = status
                changed.append(status)
        removed = self._gone(snapshot, scope, bases)
        if changed or removed:
            self._journal.put_statuses(changed, removed)

    def _gone(self, snapshot: Snapshot, scope: Scope, bases: Mapping[ResourceKey, Base]) -> list[AgentKey]:
        candidates = self._statuses if scope is None else scope
        absent = [key for key in candidates if key not in snapshot.agents and key in self._statuses]
        if not absent:
            return []
        held = {key.agent for key, base in bases.items() if not base.retained}
        removed = [key for key in absent if key not in held]
        for key in removed:
            del self._statuses[key]
        return removed

    def _track(self, key: AgentKey, ready: bool, monotonic: float) -> None:
        if ready:
            self._unready_since.pop(key, None)
        else:
            self._unready_since.setdefault(key, monotonic)

    def _is_overdue(self, agent: Agent, monotonic: float) -> bool:
        since = self._unready_since.get(agent.key)
        return since is not None and monotonic - since > agent.health_timeout

    def _judge_commit(
        self, intake: Intake, snapshot: Snapshot, plan: Plan, pending: Sequence[Action], is_blocked: bool
    ) -> None:
        record = self._journal.commit(snapshot.revision.sha if not is_blocked else intake.head.sha)  # type: ignore[union-attr]
        if record is None or record.phase.terminal:
            return
        now = self._clock.now()
        if is_blocked:
            verdict = tuple(f for v in plan.verdicts for f in v.findings if v.effect.value == "block")
            updated = stopped(record, Phase.BLOCKED, verdict or plan.findings, now, plan.digest)
        else:
            updated = judged(record, self._standing(record, snapshot, plan, pending), now)
        if updated != record:
            self._journal.put_commits([updated])

    def _standing(
        self, record: CommitRecord, snapshot: Snapshot, plan: Plan, pending: Sequence[Action]
    ) -> Standing:
        monotonic, now = self._clock.monotonic(), self._clock.now()
        exempt = {key for key, agent in snapshot.agents.items() if is_hands_off(agent, now)}
        owed = [a for a in pending if a.cls is Class.CHANGE and a.key.agent not in exempt]
        open_commits = self._unjudged(record)
        touched = {base.key.agent for base in self._journal.bases().values() if base.commit in open_commits}
        overdue = [
            key for key in self._unready_since
            if (agent := snapshot.agents.get(key)) is not None and self._is_overdue(agent, monotonic)
        ]  # fmt: skip
        return Standing(plan, touched - exempt, owed, overdue, self._statuses, plan.findings)

    def _unjudged(self, record: CommitRecord) -> frozenset[str]:
        """This commit, and those before it that were superseded before they could be judged."""
        shas = {record.sha}
        for older in self._journal.commits():
            if older.position >= record.position:
                continue
            if older.phase is not Phase.SUPERSEDED:
                break
            shas.add(older.sha)
        return frozenset(shas)

    def _unconverged(self) -> frozenset[str]:
        return frozenset(r.sha for r in self._journal.commits(100) if r.phase is not Phase.CONVERGED)

    def _forgive(self, health: Mapping[AgentKey, Health]) -> None:
        """Retry states of agents that have been healthy for long enough are dropped."""
        now, known = self._clock.now(), self._journal.attempts()
        old: dict[ResourceKey, Attempt | None] = {
            key: None
            for key, attempt in known.items()
            if now > attempt.next_at + STABLE_AFTER
            and (verdict := health.get(key.agent)) is not None
            and verdict.state in (HealthState.HEALTHY, HealthState.STOPPED)
        }
        if old:
            self._journal.finish((), attempts=old)

    def _waits(self, plan: Plan, pending: Sequence[Action], *, progressed: bool) -> list[float]:
        """When there will be work: a retry is due, or what this pass did releases what it held back.

        What waits for people (a pause, an approval, a doubt) wakes nobody.
        """
        now, attempts = self._clock.now(), self._journal.attempts()
        waits = [max(SOON, attempts[action.key].next_at - now) for action in pending if action.key in attempts]
        allowed = {action.key for action in plan.allowed}
        skipped = any(action.key in allowed and action.key not in attempts for action in pending)
        held_back = any(v.guard in ("dependencies", "action_cap") and v.held for v in plan.verdicts)
        return waits + [SOON] * (skipped or (held_back and (progressed or self._became_ready)))

    def _publish(self) -> None:
        """Tell the sinks about commits whose record changed since they were last told."""
        changed = [record for record in self._journal.commits(100) if self._published.get(record.sha) != record]
        if not changed:
            return
        self._published.update((record.sha, record) for record in changed)
        entries = {record.sha: self._journal.entries(commit=record.sha) for record in changed}
        report = Report(self._instance, tuple(changed), self._statuses, entries)
        for sink in self._sinks:
            sink.publish(report)

    def _result(self, intake: Intake, plan: Plan | None, executed: Sequence[tuple[Action, Outcome]]) -> PassResult:
        commit = intake.head.sha if intake.head else None
        record = self._journal.commit(commit) if commit else None
        problem = (source_finding(intake.problem),) if intake.problem else ()
        findings = problem + (record.findings if record else ()) + (plan.findings if plan else ())
        busy = any(
            condition.type is ConditionType.RECONCILING
            for s in self._statuses.values()
            for condition in s.conditions
        )
        return PassResult(
            commit=commit,
            enforced=self._journal.get("enforced"),
            record=record,
            statuses=self._statuses,
            findings=tuple(dict.fromkeys(findings)),
            plan=plan,
            executed=executed,
            unavailable=intake.problem is not None,
            retry_after=getattr(intake.problem, "retry_after", None),
            busy=busy,
        )


class _Ready(Set[AgentKey]):
    """The agents that are Ready, as a view: a scoped plan asks for a few, and must not pay for all."""

    def __init__(self, statuses: Mapping[AgentKey, AgentStatus]) -> None:
        self._statuses = statuses

    def __contains__(self, key: object) -> bool:
        status = self._statuses.get(key)  # type: ignore[call-overload]
        return status is not None and status.ready

    def __iter__(self) -> Iterator[AgentKey]:
        return (key for key, status in self._statuses.items() if status.ready)

    def __len__(self) -> int:
        return sum(1 for _ in self)
