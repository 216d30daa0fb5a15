"""Health: probes, heartbeat and minimum uptime decide whether an agent is Ready, and whether it is stuck.

Agents are held to the enforced spec, the one last applied (the field ``health`` of the runtime's base), never to
HEAD. A probe is believed under the definition it has passed under: one that was changed starts anew.
"""

import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace

from gitops_agent.drivers.api import ExecResult, Executing, RunAs
from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.health import Health, HealthState, Progress
from gitops_agent.model.key import AgentKey, Scope
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.quantity import seconds
from gitops_agent.model.status import AgentStatus
from gitops_agent.observe.health.evaluate import (
    REPLICAS_FOLLOW,
    aggregate,
    alive,
    combined,
    cross_checked,
    known_health,
    suspicion,
)
from gitops_agent.observe.health.history import ClockReading, HealthHistory, ProbeState
from gitops_agent.observe.health.targets import HealthTarget, ProbeSpec
from gitops_agent.ports import Clock
from gitops_agent.support.http import HttpError, request
from gitops_agent.support.text import one_line

MIN_RECHECK_SECONDS = 0.05
"""Two looks are at least this far apart, so that no mistake about what is due can become a hot loop."""

DRIVER_RECHECK_SECONDS = 2.0
"""When an agent that its driver reports not to be healthy is looked at again."""

_READ_CAP_BYTES = 4096
_HEADERS = {"User-Agent": "gitops-agent-probe"}
_COMMAND_CHARACTERS, _ANSWER_CHARACTERS = 60, 200

_SETTLED = (HealthState.HEALTHY, HealthState.STOPPED)
Statuses = Mapping[AgentKey, AgentStatus]


class HealthMonitor:
    """Evaluates the health of agents; remembers probe results and first sightings between passes.
    ``reported``: the statuses of agents as they were last reported, also before this process began."""

    def __init__(self, clock: Clock, pool: Executor, reported: Callable[[], Statuses] = dict) -> None:
        self._clock = clock
        self._pool = pool
        self._reported = reported
        self._histories: dict[AgentKey, dict[str, HealthHistory]] = {}  # of each running copy, by its id
        self._following: dict[AgentKey, frozenset[str]] = {}
        self._proven: dict[AgentKey, ProbeSpec | None] = {}
        self._recheck: dict[AgentKey, float] = {}

    def due(self) -> frozenset[AgentKey]:
        """The agents whose health must be looked at again now: a probe is due, or time has decided something."""
        now = self._clock.monotonic()
        return frozenset(key for key, at in self._recheck.items() if at <= now)

    def next_due(self) -> float | None:
        """Seconds until there is something to look at again."""
        first = min(self._recheck.values(), default=None)
        return None if first is None else max(MIN_RECHECK_SECONDS, first - self._clock.monotonic())

    def evaluate(self, targets: Sequence[HealthTarget], scope: Scope = None) -> dict[AgentKey, Health]:
        """The health of each target; probes that are due run side by side first.
        Agents of the scope that are not among the targets (retired, removed) are not to be looked at again."""
        now = self._now()
        copies = {target.agent: self._remember(target, now) for target in targets}
        there = [copy for each in copies.values() for copy in each]
        self._remember_proven(there)
        began = now.monotonic
        self._run_probes(there, lambda state: state.due_at <= began)
        # What a probe answered a period ago says nothing about a suspicion of now.
        suspected = [copy for copy in there if self._suspicion(copy) is not None]
        self._run_probes(suspected, lambda state: state.asked.monotonic < began)
        ended = self._now()
        doubted = {(copy.agent, copy.instance) for copy in suspected}
        verdicts = {each.agent: self._verdict(each, copies[each.agent], ended, doubted) for each in targets}
        for agent in tuple(self._recheck) if scope is None else scope:
            self._recheck.pop(agent, None)
        soon = ended.monotonic + DRIVER_RECHECK_SECONDS
        for target in targets:
            at = verdicts[target.agent].recheck_at
            if _is_unsettled(target):
                at = soon if at is None else min(at, soon)
            if at is not None:
                self._recheck[target.agent] = at
        return verdicts

    def forget(self, agents: Iterable[AgentKey]) -> None:
        """Agents that left Git are not looked at again."""
        for agent in agents:
            self._histories.pop(agent, None)
            self._following.pop(agent, None)
            self._proven.pop(agent, None)
            self._recheck.pop(agent, None)

    def _remember(self, target: HealthTarget, now: ClockReading) -> tuple[HealthTarget, ...]:
        """The copies whose health core has to find out, each with a history; what was seen of it is remembered."""
        seen = target.runtime
        ours = seen is not None and seen.fields is not None and seen.owner is Owner.OURS and seen.health is None
        if seen is None or not ours or seen.started_at is None:
            self._histories.pop(target.agent, None)
            return ()
        copies, known = target.copies, self._histories.get(target.agent, {})
        self._histories[target.agent] = {
            copy.instance: self._followed_up(known.get(copy.instance), copy, now) for copy in copies
        }
        return copies

    def _followed_up(self, known: HealthHistory | None, copy: HealthTarget, now: ClockReading) -> HealthHistory:
        """What is remembered of one copy, with what was just seen of it; anew when it was started again."""
        seen = copy.runtime
        assert seen is not None
        history = known if known is not None and known.is_of(seen) else None
        if history is None:
            history = HealthHistory.begin(seen, now)
            if known is None and copy.spec.get("heartbeat"):
                self._recall(history, copy, seen, now)
        history.set_probes(copy)
        history.read_heartbeat(copy, now)
        return history

    def _recall(self, history: HealthHistory, copy: HealthTarget, seen: Observation, now: ClockReading) -> None:
        """Take over what was last reported of this very copy, perhaps by an earlier process."""
        status = self._reported().get(copy.agent)
        for report in status.progress if status is not None else ():
            if report.instance == copy.instance and _is_since(seen, report):
                history.recall(report, now)

    def _history(self, copy: HealthTarget) -> HealthHistory:
        return self._histories[copy.agent][copy.instance]

    def _remember_proven(self, targets: Sequence[HealthTarget]) -> None:
        """An agent that was Ready before we began had passed its probes as they are defined."""
        strangers = {target.agent: target.probes.get("liveness") for target in targets}
        strangers = {agent: spec for agent, spec in strangers.items() if spec and agent not in self._proven}
        if strangers:
            reported = self._reported()
            for agent, spec in strangers.items():
                known = reported.get(agent)
                ready = known is not None and known.ready and known.lifecycle is Lifecycle.RUNNING
                self._proven[agent] = spec if ready else None

    def _run_probes(self, copies: Iterable[HealthTarget], wanted: Callable[[ProbeState], bool]) -> None:
        asked: dict[object, Future[ExecResult]] = {}
        runs = []
        for copy in copies:
            for name, state in self._history(copy).probes.items():
                if not wanted(state):
                    continue
                # Copies that answer at one address are asked once, and the answer is about all of them.
                about = copy.addresses if state.spec.get("http") else copy.instance
                key = (copy.agent, name, about)
                if key not in asked:
                    asked[key] = self._pool.submit(probe, state.spec, copy)
                runs.append((copy.agent, name, state, asked[key]))
        for agent, name, state, future in runs:
            state.take(future.result(), self._now())
            if state.passed and name == "liveness":
                self._proven[agent] = state.spec

    def _suspicion(self, copy: HealthTarget) -> str | None:
        return suspicion(copy, self._history(copy), self._proven.get(copy.agent), self._clock.monotonic())

    def _verdict(
        self,
        target: HealthTarget,
        copies: Sequence[HealthTarget],
        now: ClockReading,
        doubted: Container[tuple[AgentKey, str]],
    ) -> Health:
        known = known_health(target)
        if known is not None:
            return aggregate(known, target.others)
        found = [self._copy_verdict(copy, now, (copy.agent, copy.instance) in doubted) for copy in copies]
        together = combined(copies, found)
        if together.reason == REPLICAS_FOLLOW:
            together = self._followed(target.agent, together, now)
        return aggregate(together, target.others)

    def _copy_verdict(self, copy: HealthTarget, now: ClockReading, suspected: bool) -> Health:
        history = self._history(copy)
        # Asked afresh, the source may report otherwise.
        if suspected and (reason := self._suspicion(copy)) is not None:
            health = cross_checked(copy, history, reason, self._proven.get(copy.agent), now)
        else:
            health = alive(copy, history, now)
        history.was_healthy = history.was_healthy or health.state is HealthState.HEALTHY
        report = history.progress(copy.instance, now)
        return health if report is None else replace(health, progress=(report,))

    def _followed(self, agent: AgentKey, health: Health, now: ClockReading) -> Health:
        """The next copies may follow now: looked at again at once, and once only, should a guard hold them."""
        known = frozenset(self._histories[agent])
        if self._following.get(agent) == known:
            return health
        self._following[agent] = known
        return replace(health, recheck_at=now.monotonic)

    def _now(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._clock.now())


def _is_since(seen: Observation, report: Progress) -> bool:
    """Whether a report is about the process that runs now, and not about an earlier one of the same number."""
    return seen.started_at is None or report.at >= seen.started_at


def _is_unsettled(target: HealthTarget) -> bool:
    """Whether some driver reports an object of an agent not to be healthy, and not when to look again."""
    own = target.runtime.health if target.runtime is not None else None
    reported = target.others if own is None else (own, *target.others)
    return any(health.state not in _SETTLED and health.recheck_at is None for health in reported)


# -- one probe: an HTTP request to the address of an agent, or a command run as the agent


def probe(spec: ProbeSpec, target: HealthTarget) -> ExecResult:
    """The answer of one probe; what goes wrong is an answer too, never an exception.
    An HTTP probe reaches the addresses that the driver reports and nothing else, whatever a document says. Where
    there are several, all must answer."""
    timeout = seconds(spec.get("timeout", "1s")) or 1.0
    try:
        if http_spec := spec.get("http"):
            return _http(target.addresses, http_spec["port"], http_spec.get("path", "/"), timeout)
        if target.executing is None:
            return ExecResult(False, "this runtime cannot run commands")
        return _exec(spec["exec"]["command"], target, timeout, target.executing)
    except (Exception, SystemExit) as problem:  # one agent's probe must not stop those of its siblings
        return ExecResult(False, f"unexpected {type(problem).__name__} in the probe")


def _exec(command: Sequence[str], target: HealthTarget, timeout: float, executing: Executing) -> ExecResult:
    """The answer of a command run as one copy, with the command and the begin of its output."""
    answer = executing.exec(target.agent, command, timeout, RunAs(instance=target.instance))
    shown = one_line(shlex.join(command), _COMMAND_CHARACTERS)
    return replace(answer, message=f"{shown}: {one_line(answer.message, _ANSWER_CHARACTERS)}")


def _http(addresses: Sequence[str], port: int, path: str, timeout: float) -> ExecResult:
    """The answer of the first address that fails, or of the last."""
    answer = ExecResult(False, f"GET :{port}{path}: the runtime reports no address to probe")
    for address in addresses:
        asked = f"GET {address if len(addresses) > 1 else ''}:{port}{path}"
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"
        try:
            status = request("GET", url, timeout=timeout, headers=_HEADERS, body_cap=_READ_CAP_BYTES).status
        except HttpError as problem:
            return ExecResult(False, f"{asked}: {problem}")
        answer = ExecResult(200 <= status < 400, f"{asked}: {status}")
        if not answer.ok:
            break
    return answer
