"""Health: probes, heartbeat and minimum uptime decide whether an agent is Ready, and whether it is stuck.

What is judged is the enforced spec, the one last applied to the agent (its ``health`` base), never HEAD. A probe
is believed under the definition it has passed under: one that was changed starts anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Owner
from gitops_agent.model.status import Health, HealthState
from gitops_agent.observe.health.crosscheck import accusation, check
from gitops_agent.observe.health.evaluate import alive, not_running
from gitops_agent.observe.health.history import DEFAULTS, Life, Moment, ProbeSpec, ProbeState, Subject
from gitops_agent.observe.health.probe import probe
from gitops_agent.ports import Clock, JournalReader, Scope

__all__ = ["DEFAULTS", "HealthMonitor", "Recall", "Subject", "recalled"]

SHORTEST = 0.05
"""Two looks are at least this far apart, so that no mistake about what is due can become a hot loop."""

Recall = Callable[[Collection[AgentKey]], Collection[AgentKey]]
"""Which of some agents were Ready when they were last reported, before this process began."""


def recalled(journal: JournalReader) -> Recall:
    """The memory of a journal: the agents that were last reported Ready, and running."""

    def recall(agents: Collection[AgentKey]) -> Collection[AgentKey]:
        statuses = journal.statuses(agents).values()
        return [each.agent for each in statuses if each.ready and each.lifecycle is Lifecycle.RUNNING]

    return recall


class HealthMonitor:
    """Judges agents; remembers probe results and first sightings between passes."""

    def __init__(self, clock: Clock, pool: Executor, recall: Recall = lambda _: ()) -> None:
        self._clock = clock
        self._pool = pool
        self._recall = recall
        self._lives: dict[AgentKey, Life] = {}
        self._proven: dict[AgentKey, ProbeSpec | None] = {}
        self._recheck: dict[AgentKey, float] = {}

    def due(self) -> frozenset[AgentKey]:
        """The agents whose health must be looked at again now: a probe is due, or time has decided something."""
        now = self._clock.monotonic()
        return frozenset(key for key, at in self._recheck.items() if at <= now)

    def next_due(self) -> float | None:
        """Seconds until there is something to look at again."""
        first = min(self._recheck.values(), default=None)
        return None if first is None else max(SHORTEST, first - self._clock.monotonic())

    def judge(self, subjects: Sequence[Subject], scope: Scope = None) -> dict[AgentKey, Health]:
        """The health of each subject; probes that are due run side by side first.

        Agents of the scope that are not among the subjects (retired, removed) are not to be looked at again.
        """
        now = self._now()
        there = [subject for subject in subjects if self._remember(subject, now)]
        self._remember_proven(there)
        began = now.monotonic
        self._run_probes(there, lambda state: state.due_at <= began)
        # Whoever is accused is asked now: what a probe said a period ago is no answer to it.
        accused = {subject.agent: subject for subject in there if self._accusation(subject) is not None}
        self._run_probes(accused.values(), lambda state: state.asked.monotonic < began)
        ended = self._now()
        verdicts = {each.agent: self._verdict(each, ended, accused=each.agent in accused) for each in subjects}
        for agent in tuple(self._recheck) if scope is None else scope:
            self._recheck.pop(agent, None)
        for agent, health in verdicts.items():
            if health.recheck_at is not None:
                self._recheck[agent] = health.recheck_at
        return verdicts

    def forget(self, agents: Iterable[AgentKey]) -> None:
        """Agents that left Git are not looked at again."""
        for agent in agents:
            self._lives.pop(agent, None)
            self._proven.pop(agent, None)
            self._recheck.pop(agent, None)

    def _remember(self, subject: Subject, now: Moment) -> bool:
        """Whether there is somebody to ask; if so, what was seen of it is remembered."""
        seen = subject.runtime
        if seen is None or seen.fields is None or seen.started_at is None or seen.owner is not Owner.OURS:
            self._lives.pop(subject.agent, None)
            return False
        life = self._lives.get(subject.agent)
        if life is None or not life.is_of(seen):
            life = self._lives[subject.agent] = Life.begin(seen, seen.started_at, now)
        life.is_asked(subject.probes)
        life.listen(subject, now)
        return True

    def _remember_proven(self, subjects: Sequence[Subject]) -> None:
        """An agent that was Ready before we began had passed its probes as they are defined."""
        strangers = {subject.agent: subject.probes.get("liveness") for subject in subjects}
        strangers = {agent: spec for agent, spec in strangers.items() if spec and agent not in self._proven}
        if strangers:
            ready = set(self._recall(strangers.keys()))
            self._proven |= {agent: spec if agent in ready else None for agent, spec in strangers.items()}

    def _run_probes(self, subjects: Iterable[Subject], wanted: Callable[[ProbeState], bool]) -> None:
        runs = [
            (subject.agent, name, state, self._pool.submit(probe, state.spec, subject.agent, subject.runner))
            for subject in subjects
            for name, state in self._lives[subject.agent].probes.items()
            if wanted(state)
        ]
        for agent, name, state, future in runs:
            state.take(future.result(), self._now())
            if state.passed and name == "liveness":
                self._proven[agent] = state.spec

    def _accusation(self, subject: Subject) -> str | None:
        life, proven = self._lives[subject.agent], self._proven.get(subject.agent)
        return accusation(subject, life, proven, self._clock.monotonic())

    def _verdict(self, subject: Subject, now: Moment, *, accused: bool) -> Health:
        gone = not_running(subject)
        if gone is not None:
            return gone
        life = self._lives[subject.agent]
        # Asked afresh, the accuser may have changed its mind.
        reason = self._accusation(subject) if accused else None
        found = check(subject, life, reason, self._proven.get(subject.agent), now) if reason is not None else None
        health = alive(subject, life, found, now)
        life.was_well = life.was_well or health.state is HealthState.HEALTHY
        return health

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.now())
