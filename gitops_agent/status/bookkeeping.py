"""The end of a pass: what it means for agents and commits, written once, on every path.

Turns what was seen and done into statuses and phases (by the pure rules in ``report/``), stores what changed
in the journal, and hands reports to the sinks. Keeps in memory only what can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import orjson
import structlog

from gitops_agent.model.agent import Agent
from gitops_agent.model.circuit import Circuit
from gitops_agent.model.control import Control, ControlVerb, freezes
from gitops_agent.model.finding import Finding, Severity, packed
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.one_shot import due_again
from gitops_agent.model.outcome import LONGEST_DELAY, Attempt
from gitops_agent.model.plan import Action, Class, Decision, Effect, Plan
from gitops_agent.model.policy_merge import limits_of, stricter
from gitops_agent.model.quantity import seconds
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Health, HealthState, Phase
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.freeze import is_frozen
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.ports import Clock, Journal, Report, Scope, Sink
from gitops_agent.proposals.revert import RevertProposer, told
from gitops_agent.reconcile.breaker import after_round, dump_circuits, load_circuits
from gitops_agent.rollout.deadlines import Deadlines
from gitops_agent.rollout.state import RolloutState
from gitops_agent.source.tracker import Intake, source_finding
from gitops_agent.status.conditions import AgentView, ended, halted, judge
from gitops_agent.status.phases import CommitProgress, judged, reopened, stopped
from gitops_agent.status.proceedings import PassRecord, PassResult, lasting

STABLE_AFTER = 60.0
"""A healthy agent this long after its last permitted retry starts again with a clean sheet."""

SOON = 0.25
"""How soon to look again while something is in progress and nothing says when it will be done."""

BLIND = 5.0
"""How soon to look again when a driver could not be asked."""

PUBLISHED = 100
"""How many of the newest commits are looked at for news while the branch stands still."""

log = structlog.get_logger(__name__)


class Bookkeeper:
    """Keeps the statuses of agents and the records of commits of one instance."""

    def __init__(
        self,
        instance: str,
        journal: Journal,
        sinks: Sequence[Sink],
        clock: Clock,
        reverter: RevertProposer | None = None,
    ) -> None:
        self._reverter = reverter
        self._instance = instance
        self._journal = journal
        self._sinks = sinks
        self._clock = clock
        self._touched = frozenset(AgentKey(*pair) for pair in orjson.loads(journal.get("touched") or "[]"))
        self._times = Deadlines(journal, clock)
        self._circuits = load_circuits(journal.get("circuits"))
        self._found: tuple[Finding, ...] = ()
        self._published: dict[str, CommitRecord] = {}
        self._head_told: str | None = None

    @cached_property
    def _statuses(self) -> dict[AgentKey, AgentStatus]:
        # Read when first asked for: a plan without dependencies never does.
        return dict(self._journal.statuses())

    # -- before a pass acts

    def unfinished(self) -> frozenset[AgentKey]:
        """The agents that a scoped pass must look at too: those on their way, those waiting for them, and those by
        which an open commit is judged."""
        return self._touched | frozenset(key for key, status in self._statuses.items() if not status.ready)

    def statuses(self) -> Mapping[AgentKey, AgentStatus]:
        """The last reported status of every agent (a live view)."""
        return self._statuses

    def circuits(self) -> Mapping[str, Circuit]:
        """The drivers that are given nothing to do for a while, or are on trial."""
        return self._circuits

    def obey(self, enforcement: RolloutState) -> None:
        """What operators asked to be tried again gets a fresh start; each order is carried out once."""
        told = int(self._journal.get("obeyed") or 0)
        if self._journal.last_control() <= told:
            return
        orders = [control for control in self._journal.controls() if control.seq > told]
        for control in orders:
            if control.verb is ControlVerb.RETRY:
                self._try_again(control.target, enforcement)
        self._journal.put({"obeyed": str(orders[-1].seq)})

    def _try_again(self, target: str, enforcement: RolloutState) -> None:
        if "/" in target:
            agent = AgentKey.parse(target)
            self._start_afresh(frozenset({agent}))
            if again := due_again(self._journal.bases().values(), agent):
                self._journal.finish((), bases=again)
            self._journal.put({_retried(agent): str(self._clock.now())})
            return
        record = self._journal.commit(target)
        enforcement.retry(target, record.tree if record is not None else "")
        rollout = enforcement.rollout
        # A commit that converged is not judged once more.
        failed = record is not None and record.phase is Phase.DEGRADED
        if failed and record is not None and rollout is not None and rollout.commit == target:
            self.release(frozenset(rollout.moving))
            self._journal.put_commits([reopened(record)])

    def welcome(self, intake: Intake) -> None:
        """A new commit is announced before anything is done about it."""
        record = self._journal.commit(intake.target.revision.sha) if intake.target is not None else None
        if record is not None and record.phase is Phase.PENDING and record.started_at is None:
            begun = replace(record, started_at=self._clock.now(), changed=len(intake.moved))
            self._journal.put_commits([begun])
        self._publish()

    def release(self, agents: frozenset[AgentKey]) -> None:
        """These agents follow the newest commit from now on: they start afresh, and it is judged by them."""
        if agents:
            self._touch(self._touched | agents)
            self._start_afresh(agents)

    def _start_afresh(self, agents: frozenset[AgentKey]) -> None:
        stale = {key: None for key in self._journal.attempts() if key.agent in agents}
        if stale:
            self._journal.finish((), attempts=stale)
        for key in agents:
            self._times.stops(key)

    # -- after it

    def idle(self, intake: Intake) -> PassResult:
        """Nothing is desired yet (no commit was ever good): touch nothing, say why."""
        self._publish()
        self._journal.put({"last_pass": str(self._clock.now())})
        return self._result(intake)

    def close(self, pass_: PassRecord, enforcement: RolloutState) -> PassResult:
        """Judge agents, then the newest commit; write both; tell the sinks."""
        self._times.policy = stricter(pass_.snapshot.policy, enforcement.policy_before())
        self._forgive(pass_.look.health)
        self._trip(pass_)
        self._freeze(pass_.plan)
        became_ready = self._judge_agents(pass_, enforcement)
        self._journal.record_observations(list(pass_.look.observed.seen.values()))
        if pass_.intake.target is not None:
            self._judge_commit(pass_, pass_.intake.target.revision.sha, enforcement)
        self._halt(replace(pass_, rollout=enforcement.rollout))
        moved = self._revert(pass_, enforcement)
        self._publish()
        plan = pass_.blocked or pass_.plan
        said = (*plan.findings, *pass_.plan.findings)
        self._found = _still_true(self._found, pass_.look.scope) + said
        found = orjson.dumps(packed(dict.fromkeys(self._found))).decode()
        self._journal.put({"last_pass": str(self._clock.now()), "findings": found})
        result = replace(
            self._result(pass_.intake),
            wait=min(self._waits(pass_, progressed=became_ready or bool(pass_.done)), default=None),
            plan=plan,
            executed=pass_.executed,
            frozen=bool(pass_.held_by("freeze", "mass_drift")),
            busy=moved or self._is_busy(pass_) or self._is_rolling(pass_, enforcement),
            moved=moved,
            rollout=enforcement.rollout,
        )
        again = self._reverter.next_due() if self._reverter is not None else None
        return result.no_later_than(0.0 if moved else enforcement.pause_left()).no_later_than(again)

    def _trip(self, pass_: PassRecord) -> None:
        """What became of the actions opens and closes the circuits of their drivers."""
        now = self._clock.now()
        after = after_round(
            self._circuits, pass_.executed, lambda tenant: limits_of(self._times.policy, tenant), now
        )
        if after != self._circuits:
            self._journal.put({"circuits": dump_circuits(after)})
            self._circuits = after

    def _freeze(self, plan: Plan) -> None:
        """A guard that doubts the desired state or our eyes stops all acting until people have looked."""
        now, tripped = self._clock.now(), [verdict for verdict in plan.verdicts if verdict.freeze]
        known = {control.target for control in freezes(self._journal.controls(), now)} if tripped else set()
        for verdict in tripped:
            if verdict.freeze not in known:
                why = "; ".join(finding.summary for finding in verdict.findings)
                who = f"guard {verdict.guard}"
                self._journal.control(Control(ControlVerb.FREEZE, verdict.freeze, who, now, why, plan=plan.digest))

    def _revert(self, pass_: PassRecord, enforcement: RolloutState) -> bool:
        """Answer a failed gate as the policy says; whether that is on its way, or there is news at the source.

        There is after every answer: our commit, or that of somebody who was quicker.
        """
        if self._reverter is None:
            return False
        rollout = None if self._is_frozen(pass_, enforcement) else enforcement.rollout
        revert = self._reverter.consider(rollout, pass_.intake.head)
        if revert is None:
            return self._reverter.is_busy
        record = self._journal.commit(revert.failed)
        if record is not None and told(revert) not in record.findings:
            self._journal.put_commits([replace(record, findings=(*record.findings, told(revert)))])
        self._reverter.remember(revert)  # last: after a crash in between it is sent once more, and told
        return True

    def _is_frozen(self, pass_: PassRecord, enforcement: RolloutState) -> bool:
        """Whether a freeze covers what a rollout has reached: then Git is left alone as well."""
        if enforcement.rollout is None or not enforcement.rollout.failed:
            return False
        context = PlanContext(self._clock.now(), pass_.snapshot, {}, freezes=pass_.order.freezes)
        return any(is_frozen(key, context) for key in enforcement.rollout.moving)

    def _halt(self, pass_: PassRecord) -> None:
        """Say it of every agent that a failed gate holds back, looked at in this pass or not."""
        rollout = pass_.rollout if pass_.halted else None
        held = frozenset(rollout.waiting) if rollout is not None else frozenset()
        known = {key for key, status in self._statuses.items() if status.has(ConditionType.HALTED)}
        changed = [
            halted(self._statuses[key], rollout if key in held else None, self._clock.now())
            for key in known ^ held
            if key in self._statuses
        ]
        if changed:
            self._journal.put_statuses(changed)
            self._statuses.update((status.agent, status) for status in changed)

    # -- agents

    def _judge_agents(self, pass_: PassRecord, enforcement: RolloutState) -> bool:
        """Write the statuses that changed; whether somebody became Ready."""
        snapshot, scope = pass_.snapshot, pass_.look.scope
        now = self._clock.now()
        # Who waits for another agent, or for a lease, has not begun: its time starts when it may.
        waiting = pass_.held_by("dependencies", "lease")
        changed: list[AgentStatus] = []
        became_ready = False
        ahead, good = enforcement.ahead(), enforcement.commit or snapshot.revision.sha
        for view in self._views(pass_):
            key = view.agent.key
            previous = self._statuses.get(key)
            status = judge(view, previous, ahead.get(key, good), now)
            owing = bool(view.pending) and not view.held and key in self._touched
            if (status.ready and not owing) or key in waiting:
                self._times.stops(key)
            elif not view.unreachable:  # nobody's time runs because we could not look
                self._times.starts(key)
            if status != previous:
                became_ready |= status.ready and (previous is None or not previous.ready)
                changed.append(status)
        self._times.keep(self._touched)
        removed = self._gone(snapshot, scope)
        changed += self._ended(pass_, removed)
        if removed:
            self._journal.put({_retried(key): None for key in removed})
        if changed or removed:
            # Memory follows what is written, so that a full disk leaves neither ahead of the other.
            self._journal.put_statuses(changed, removed)
            self._statuses.update((status.agent, status) for status in changed)
            for key in removed:
                del self._statuses[key]
        return became_ready

    def _views(self, pass_: PassRecord) -> Iterator[AgentView]:
        snapshot, look = pass_.snapshot, pass_.look
        bases, attempts, unreachable = self._journal.bases(), self._journal.attempts(), look.observed.unreachable
        held, frozen = pass_.held_for_people, pass_.held_by("freeze", "mass_drift")
        behind = dict.fromkeys(pass_.rollout.waiting, pass_.rollout) if pass_.halted and pass_.rollout else {}
        # A hook that takes its time changes nothing about its agent.
        busy = {action.key.agent for action in pass_.busy if action.key.kind != Kind.HOOK}
        owed: dict[AgentKey, list[Action]] = {}
        for action in pass_.pending:
            owed.setdefault(action.key.agent, []).append(action)
        for key in snapshot.agents if look.scope is None else look.scope:
            agent = snapshot.agents.get(key)
            if agent is not None:
                yield AgentView(
                    agent=agent,
                    seen=look.observed.seen,
                    bases=bases,
                    health=look.health.get(key),
                    pending=owed.get(key, ()),
                    attempts=attempts,
                    unreachable=_unreachable_driver(agent, unreachable) if unreachable else None,
                    deadline_passed=self._times.overdue(agent),
                    held=key in held,
                    frozen=key in frozen,
                    busy=key in busy,
                    halted=behind.get(key),
                    longest_delay=self._longest_delay(key) if attempts else LONGEST_DELAY,
                )

    def _longest_delay(self, agent: AgentKey) -> float:
        return seconds(limits_of(self._times.policy, agent.tenant).backoff.longest)

    def _gone(self, snapshot: Snapshot, scope: Scope) -> list[AgentKey]:
        """Agents that left Git, once nothing of them is on record any more."""
        candidates = self._statuses if scope is None else scope
        absent = [key for key in candidates if key not in snapshot.agents and key in self._statuses]
        if not absent:
            return []
        held = {key.agent for key, base in self._journal.bases().items() if not base.retained}
        return [key for key in absent if key not in held]

    def _ended(self, pass_: PassRecord, removed: Sequence[AgentKey]) -> list[AgentStatus]:
        """Agents that left Git and run no more, and that something is still on record of: a hook, as a rule."""
        candidates = self._statuses if pass_.look.scope is None else pass_.look.scope
        agents = pass_.snapshot.agents
        absent = {key for key in candidates if key not in agents and key in self._statuses} - {*removed}
        if not absent:
            return []
        absent -= {key.agent for key in self._journal.bases() if key.kind == Kind.RUNTIME}
        left = {action.key.agent: action for action in reversed(pass_.pending)}
        made = [ended(self._statuses[key], left.get(key), self._clock.now()) for key in sorted(absent)]
        return [status for status in made if status != self._statuses[status.agent]]

    def _forgive(self, health: Mapping[AgentKey, Health]) -> None:
        """Retry states of agents that have been healthy for long enough are dropped."""
        now = self._clock.now()
        old: dict[ResourceKey, Attempt | None] = {
            key: None
            for key, attempt in self._journal.attempts().items()
            if now > attempt.next_at + STABLE_AFTER
            and (verdict := health.get(key.agent)) is not None
            and verdict.state in (HealthState.HEALTHY, HealthState.STOPPED)
        }
        if old:
            self._journal.finish((), attempts=old)

    # -- commits

    def _judge_commit(self, pass_: PassRecord, sha: str, enforcement: RolloutState) -> None:
        record = self._journal.commit(sha)
        if record is None:
            return
        if record.phase.terminal:
            self._judge_gate(pass_, record, enforcement)
            return
        now = self._clock.now()
        if pass_.blocked is not None:
            updated = stopped(record, Phase.BLOCKED, _block_findings(pass_.blocked), now, pass_.blocked.digest)
        elif unreachable := pass_.look.observed.unreachable:
            # Nothing is known about some resources, so nothing is concluded about the commit either.
            why = "; ".join(f"driver {name}: {said}" for name, said in sorted(unreachable.items()))
            updated = replace(record, phase=Phase.RECONCILING, summary=f"could not look: {why}")
        else:
            standing = self._standing(pass_)
            updated = judged(record, standing, now)
            if standing.failure:
                enforcement.fail(standing.failure, for_people=_is_undecided(standing))
            enforcement.look_at_gate(ready=standing.gate_is_open)
        if updated.phase is Phase.CONVERGED:
            self._establish()
            assert pass_.intake.target is not None
            enforcement.converged(pass_.intake.target, forward=record.rolls_back_to is None)
        self._halt(replace(pass_, rollout=enforcement.rollout))  # before the phase, so that nobody reads one alone
        if updated != record:
            self._journal.put_commits([updated])
        if updated.phase.terminal:
            self._touch(frozenset())

    def _judge_gate(self, pass_: PassRecord, record: CommitRecord, enforcement: RolloutState) -> None:
        """A commit superseded by one that may not be followed goes on with its rollout, gate by gate."""
        rollout = enforcement.rollout
        is_mine = rollout is not None and rollout.commit == record.sha and not rollout.done and not rollout.failed
        if not is_mine or pass_.blocked is not None or pass_.look.observed.unreachable:
            return
        standing = self._standing(pass_)
        if standing.failure:
            enforcement.fail(standing.failure, for_people=_is_undecided(standing))
        enforcement.look_at_gate(ready=standing.gate_is_open)

    def _standing(self, pass_: PassRecord) -> CommitProgress:
        now, agents = self._clock.now(), pass_.snapshot.agents
        # Who waits for a later wave may still suffer from an earlier commit: this one has not reached it yet.
        later = frozenset(pass_.rollout.waiting) if pass_.rollout is not None else frozenset[AgentKey]()
        # Of who left Git, only what is still to be taken away counts.
        exempt = later | {k for k in self._touched if k not in agents or is_hands_off(agents[k], now)}
        open_ = (action for action in (*pass_.pending, *pass_.busy) if action.key.agent not in later)
        owed = [a for a in open_ if is_from_commit(a) and not is_hands_off(agents.get(a.key.agent), now)]
        late = self._times.late(agents)
        # What only people can decide does not get better with time; what an earlier commit left is its own.
        doubtful = (a for a in pass_.pending if a.decision not in (Decision.REPAIR, Decision.WAIT))
        late += [a.key.agent for a in doubtful if a.drift_class is not Class.LAG]
        late += self._waiting_in_vain(pass_, late)
        frozen = any(action.key.agent in pass_.held_by("freeze", "mass_drift") for action in owed)
        warnings = tuple(f for f in pass_.snapshot.findings if f.severity is Severity.WARNING)
        findings = warnings + pass_.plan.findings
        return CommitProgress(
            pass_.plan,
            self._touched - exempt,
            owed,
            late,
            self._statuses,
            findings,
            frozen=frozen,
            rollout=pass_.rollout,
        )

    def _waiting_in_vain(self, pass_: PassRecord, late: Sequence[AgentKey]) -> list[AgentKey]:
        """Who waits for an agent that will not become Ready by itself: late, or not ours to act on for now."""
        waiting = pass_.held_by("dependencies")
        if not waiting:
            return []
        agents, now = pass_.snapshot.agents, self._clock.now()
        ready = {key for key, status in self._statuses.items() if status.ready}
        hopeless = {*late, *(key for key in agents if key not in ready and is_hands_off(agents[key], now))}
        found: list[AgentKey] = []
        while more := [
            key
            for key in waiting
            if key not in hopeless and any(other in hopeless for other in agents[key].depends_on)
        ]:
            hopeless.update(more)
            found += more
        return found

    def _touch(self, agents: frozenset[AgentKey]) -> None:
        """Remember, across restarts, which agents must be Ready before the newest commit has converged.

        A commit that is superseded before it could be judged leaves its agents to the next one.
        """
        if agents != self._touched:
            self._journal.put({"touched": orjson.dumps([list(key) for key in sorted(agents)]).decode()})
            self._touched = agents

    def _establish(self) -> None:
        """A commit converged: what is there now is there to stay, and its loss would be one."""
        young = [
            replace(base, established=True) for base in self._journal.bases().values() if not base.established
        ]
        if young:
            self._journal.finish((), bases=young)

    # -- what comes next

    def _is_busy(self, pass_: PassRecord) -> bool:
        """Whether somebody is on the way. Who waits for another agent is not, until nobody is in its way."""
        waiting, agents = pass_.held_by("dependencies"), pass_.snapshot.agents
        ready = {key for key, status in self._statuses.items() if status.ready} if waiting else set()
        moving = (key for key, status in self._statuses.items() if status.has(ConditionType.RECONCILING))
        return any(key not in waiting or all(other in ready for other in agents[key].depends_on) for key in moving)

    def _is_rolling(self, pass_: PassRecord, enforcement: RolloutState) -> bool:
        """Whether a rollout will go on by itself."""
        rollout = enforcement.rollout
        stopped_ = pass_.blocked is not None or pass_.held_by("freeze", "mass_drift")
        return rollout is not None and not rollout.done and not rollout.failed and not stopped_

    def _waits(self, pass_: PassRecord, *, progressed: bool) -> list[float]:
        """When there will be work: a retry is due, or what this pass did releases what it held back.

        What waits for people (a pause, an approval, a doubt) wakes nobody.
        """
        now, attempts, pending = self._clock.now(), self._journal.attempts(), pass_.pending
        resting = pass_.held_by("breaker", "oscillation")
        tries = [
            (attempts[a.key], self._longest_delay(a.key.agent))
            for a in pending
            if a.key in attempts and a.key.agent not in resting
        ]
        waits = [SOON if each.is_due(now, most) else max(SOON, each.next_at - now) for each, most in tries]
        allowed = {action.key for action in pass_.plan.allowed}
        skipped = any(action.key in allowed and action.key not in attempts for action in pending)
        released = progressed and pass_.held_by(
            "dependencies", "hook_ready", "host_restart", "breaker", "action_cap"
        )
        waits += self._rests(now) if pass_.held_by("breaker") else ()
        waits += [BLIND] if pass_.look.observed.unreachable else ()
        return [*waits, *self._deadlines(pass_), *([SOON] if skipped or released or pass_.busy else [])]

    def _rests(self, now: float) -> Iterator[float]:
        """When drivers that rest are given one action again."""
        ends = (circuit.open_until for circuit in self._circuits.values())
        return (max(1.0, end - now) for end in ends if end is not None)

    def _deadlines(self, pass_: PassRecord) -> Iterator[float]:
        """An open commit degrades when the time of one of its agents is up, also if nothing happens until then."""
        record = self._journal.commit(pass_.snapshot.revision.sha)
        if record is None or record.phase.terminal:
            return
        yield from (max(SOON, left) for left in self._times.left(pass_.snapshot.agents))

    def _publish(self) -> None:
        """Tell the sinks about commits whose record changed since they were last told."""
        head = self._journal.get("head")
        # Only a push can change records of long ago (what it rolls back) or bring more than a handful.
        records = self._journal.commits(None if head != self._head_told else PUBLISHED)
        changed = [record for record in records if self._published.get(record.sha) != record]
        self._head_told = head
        if not changed:
            return
        entries = {record.sha: self._journal.entries(commit=record.sha) for record in changed}
        report = Report(self._instance, tuple(changed), self._statuses, entries)
        for sink in self._sinks:
            try:
                sink.publish(report)
            except Exception:  # what a sink does with a report is its own affair, never the pass's
                log.exception("a report could not be published", sink=type(sink).__name__)
        self._published.update((record.sha, record) for record in changed)

    def _result(self, intake: Intake) -> PassResult:
        commit = intake.head.sha if intake.head else None
        record = self._journal.commit(commit) if commit else None
        problem = (source_finding(intake.problem),) if intake.problem else ()
        findings = problem + (lasting(record) if record else ()) + self._found
        return PassResult(
            commit=commit,
            enforced=self._journal.get("enforced"),
            record=record,
            statuses=self._statuses,
            findings=tuple(dict.fromkeys(findings)),
            unavailable=intake.problem is not None,
            retry_after=getattr(intake.problem, "retry_after", None),
        )


def _retried(agent: AgentKey) -> str:
    """Where the journal keeps when somebody last asked for an agent to be tried again."""
    return f"retried:{agent}"


def _is_undecided(standing: CommitProgress) -> bool:
    """Whether nothing has failed for certain: all are Ready, and of a one-shot effect nobody knows how it ended.

    It may have been our own end that interrupted it, so taking the commit back by ourselves would be a guess.
    """
    late = [action for action in standing.owed if action.key.agent in standing.overdue]
    return not standing.unready and bool(late) and all(a.reason == ReasonCode.HOOK_UNKNOWN for a in late)


def _still_true(findings: tuple[Finding, ...], scope: Scope) -> tuple[Finding, ...]:
    """What an earlier pass found about agents that this one did not look at."""
    if scope is None:
        return ()
    looked_at = {str(key) for key in scope}
    # About an agent ("tenant/name") or one of its resources ("tenant/name:kind/id"); not about a commit.
    agents = ((finding, finding.address.partition(":")[0]) for finding in findings)
    return tuple(finding for finding, agent in agents if "/" in agent and agent not in looked_at)


def _unreachable_driver(agent: Agent, unreachable: Mapping[str, str]) -> str | None:
    """Why nothing can be said about an agent, if one of its drivers could not be asked."""
    return next(
        (unreachable[resource.driver] for resource in agent.resources if resource.driver in unreachable), None
    )


def _block_findings(plan: Plan) -> tuple[Finding, ...]:
    said = tuple(f for verdict in plan.verdicts if verdict.effect is Effect.BLOCK for f in verdict.findings)
    # Who approved through Git, in vain, reads why in Git too.
    objections = tuple(finding for finding in plan.findings if finding.code.startswith("Approval"))
    return said + objections if said else plan.findings
