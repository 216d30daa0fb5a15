"""Answers from the journal alone: what ``status``, ``explain``, ``history``, ``workflows`` and ``logs`` ask.

Reads only, needs no lock, works while a daemon runs, and says how old its knowledge is. Imports no driver, no git,
no scheduler: ``status`` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_agent.errors import GitopsAgentError, UsageError
from gitops_agent.model.key import listed, named
from gitops_agent.model.observation import listed_instances
from gitops_agent.model.status import ConditionType, Phase, ResourceStatus
from gitops_agent.report.json_shapes import explanation_shape, status_shape, to_json
from gitops_agent.report.words import Shape, is_about, own_name
from gitops_agent.status.findings import current_findings
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.secrets import Redactor

if TYPE_CHECKING:
    from gitops_agent.drivers.api import LogLine
    from gitops_agent.drivers.plugins import Connections
    from gitops_agent.model.finding import Finding
    from gitops_agent.model.key import AgentKey
    from gitops_agent.model.state import State
    from gitops_agent.ports import JournalReader
    from gitops_agent.report.workflows import WorkflowInputs
    from gitops_agent.settings import Settings

SHOWN_ACTIONS = 20  # the newest, that ``explain`` shows at first
_ALL_ACTIONS = 100_000  # more than the journal keeps of any agent within its retention
_SEARCHED_ACTIONS = 20_000  # the newest, searched for the name of an agent that is gone
_SUGGESTED_NAMES = 10
_SHOWN_LINES = 5  # of the last output
_TURNED_DOWN = (Phase.BLOCKED, Phase.INVALID, Phase.REFUSED)


@contextmanager
def open_reader(settings: Settings, environment: Mapping[str, str]) -> Iterator[FleetReader]:
    """The journal, read-only: no lock, no repository, no driver."""
    from gitops_agent.journal.place import journal_place
    from gitops_agent.journal.store import open_journal

    with open_journal(journal_place(settings), read_only=True) as journal:
        running, redactor = journal.holder() is not None, make_redactor(settings, environment)
        yield FleetReader(journal, settings.instance, SystemClock().now(), redactor, running)


def make_redactor(settings: Settings, environment: Mapping[str, str]) -> Redactor:
    """A redactor that knows our own secrets; what looks like one is masked anyway."""
    secrets = [settings.sentry_dsn or "", environment.get(settings.token_env or "", "")]
    if settings.journal_url or settings.journal_url_file:
        from gitops_agent.journal.place import journal_secrets

        secrets += journal_secrets(settings)
    if settings.token_file and Path(settings.token_file).is_file():
        secrets.append(Path(settings.token_file).read_text(encoding="utf-8", errors="replace").strip())
    return Redactor(secret for secret in secrets if secret)


@dataclass(frozen=True, slots=True)
class FleetReader:
    """One journal, read for people at one moment (``now``). The shapes it gives are not masked yet. ``running``:
    whether a process works with it."""

    journal: JournalReader
    instance: str
    now: float
    redactor: Redactor
    running: bool = False

    def fleet(self, agent: AgentKey | None = None) -> Shape:
        """The last reported state of the fleet, or of one agent (none, when it is gone)."""
        state = self.journal.state()
        agents, found = state.status.agents, current_findings(state)
        if agent is None:
            return status_shape(self.instance, state, agents.values(), found, self.now, running=self.running)
        own = [agents[agent]] if agent in agents else []
        concerning = _concerning(agent, state, found)
        return status_shape(self.instance, state, own, concerning, self.now, running=self.running)

    def explain(self, agent: AgentKey, *, everything: bool = False) -> Shape:
        """Everything known about one agent."""
        state = self.journal.state()
        head, status = state.head, state.status.agents.get(agent)
        own_commit = status.observed_commit if status else state.rollout.enforced
        turned_down = head.findings if head and status and head.sha != status.observed_commit else ()
        concerning = _concerning(agent, state, current_findings(state))
        shape = explanation_shape(
            agent,
            state,
            self.journal.commit_record(own_commit) if own_commit else None,
            self.journal.entries(agent=agent, limit=_ALL_ACTIONS if everything else SHOWN_ACTIONS),
            [finding for finding in concerning if finding not in turned_down],
            self.now,
        )
        shape["running"] = self.running
        if status is None and concerning:
            shape["undeclared"] = [to_json(each) for each in self._last_seen(agent)]
        return shape

    def _last_seen(self, agent: AgentKey) -> list[ResourceStatus]:
        """What was live of an agent when it was last observed, though no document declares it."""
        newest = {seen.key: seen for seen in reversed(self.journal.observations(agent, limit=SHOWN_ACTIONS))}
        there = (newest[key] for key in sorted(newest) if newest[key].fields is not None)
        return [ResourceStatus(seen.key, seen.driver, seen.state, "", seen.live) for seen in there]

    def workflows(self) -> WorkflowInputs:
        """What is known of everything in flight."""
        from gitops_agent.report.workflows import WorkflowInputs

        state = self.journal.state()
        return WorkflowInputs(state, current_findings(state), self.journal, self.now)

    def find(self, text: str) -> AgentKey:
        """The agent a person means, also one that is gone; UsageError with what there is otherwise."""
        state, text = self.journal.state(), text.partition(":")[0]  # a finding names a resource of it
        known, found = state.status.agents, named(text, state.status.agents) or named(text, _reported(state))
        gone = (entry.key.agent for entry in self.journal.entries(limit=_SEARCHED_ACTIONS))
        return one_agent(text, found or named(text, set(gone)), known)


def _reported(state: State) -> set[AgentKey]:
    """The agents that are not in Git and that findings speak of, such as orphans."""
    from gitops_agent.model.key import AgentKey

    names = (each.address.partition(":")[0] for each in state.status.findings)
    return {
        AgentKey.parse(name) for name in names if name.count("/") == 1 and not name.endswith((".yaml", ".yml"))
    }


def look_at_secrets(reader: FleetReader, agent: AgentKey, drivers: Connections) -> bool:
    """Have drivers find out which secrets an agent was given, to be hidden in what it wrote; whether all are known
    here: a secret in the environment of a daemon is known elsewhere only while the agent runs."""
    from gitops_agent.drivers.api import ObserveRequest

    bases = {key: base for key, base in reader.journal.state().reconcile.bases.items() if key.agent == agent}
    known = True
    for name in {base.driver for base in bases.values()}:
        try:
            if (hiding := drivers.hiding(name)) is not None:
                own = {key: base for key, base in bases.items() if base.driver == name}
                drivers[name].observe(ObserveRequest(frozenset([agent]), own))
                known = hiding.knows_secrets(agent) and known
        except GitopsAgentError:
            known = False
    return known


def one_agent(text: str, matches: Sequence[AgentKey], known: Iterable[AgentKey]) -> AgentKey:
    """The only match; UsageError with the names there are when a text names none or several."""
    if len(matches) == 1:
        return matches[0]
    problem = "more than one agent is" if matches else "no agent is"
    hint = f"agents: {listed(text, matches, list(known), _SUGGESTED_NAMES)}"
    raise UsageError(f"{problem} called {text!r}", hint=hint)


def agent_logs(
    agent: AgentKey, known: Shape, drivers: Connections, lines: int, *, follow: bool
) -> Iterator[LogLine]:
    """The last lines of every instance, and with ``follow`` what is added; UsageError where there are no logs.
    ``known``: the answer of ``explain``; of an agent that is gone, history knows the last driver."""
    resources = [(each["key"], each["driver"]) for each in _resources(known)]
    history = [(each["resource"], each["driver"]) for each in known["actions"]]
    runtimes = (driver for key, driver in (*resources, *history) if own_name(key).startswith("runtime/"))
    name = next(runtimes, "")
    logging = drivers.logging(name) if name else None
    if logging is None:
        why = f"the driver {name} keeps none" if name else "nothing of it was ever started"
        raise UsageError(f"{agent} has no logs: {why}")
    return logging.logs(agent, lines, follow=follow)


def keeps_ending(known: Shape) -> bool:
    """Whether an agent fails again and again, so that what it wrote last says why; ``known``: of ``explain``."""
    status = known["status"]
    return status is not None and not status["ready"] and any(_is_runtime(each) for each in known["attempts"])


def last_output(agent: AgentKey, known: Shape, drivers: Connections) -> list[str]:
    """The last lines that an agent wrote; none where its driver keeps no logs, or they cannot be read now."""
    try:
        found = [line.text for line in agent_logs(agent, known, drivers, _SHOWN_LINES, follow=False)]
    except (GitopsAgentError, OSError):
        return []
    return found[-_SHOWN_LINES:]


def _is_runtime(attempt: Shape) -> bool:
    return own_name(attempt["resource"]).startswith("runtime/")


def instances(known: Shape) -> list[str]:
    """The instances of an agent that may write, by the names its logs give them; ``known``: of ``explain``."""
    return [each.log for resource in _resources(known) for each in listed_instances(resource["live"])]


def _resources(known: Shape) -> Sequence[Shape]:
    return known["status"]["resources"] if known["status"] else ()


def _concerning(agent: AgentKey, state: State, findings: Iterable[Finding]) -> list[Finding]:
    """The findings about one agent, its document, the source, its freeze, or a newest commit not enforced."""
    status, head = state.status.agents.get(agent), state.head
    file = status.origin.rpartition(":")[0] if status else ""
    frozen = status is not None and status.has(ConditionType.FROZEN)
    scopes = {"*", agent.tenant, str(agent), *(["gitops-agent.yaml"] if frozen else [])}
    turned_down = head.findings if head and head.phase in _TURNED_DOWN else ()
    return [
        finding
        for finding in findings
        if is_about(finding, agent)
        or finding.code.startswith("Source")
        or (file and finding.address.startswith(f"{file}:"))
        or (finding.code in ("Frozen", "MassDrift") and finding.address in scopes)
        or finding in turned_down
    ]
