"""Timekeeping: since when agents are not Ready, and when their time is up.

Time runs on a clock that never jumps. Of the agents by whom a commit is judged it is also in the journal, so that
a restart of ours gives nobody more of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import orjson

from gitops_agent.model.agent import Agent
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds
from gitops_agent.ports import Clock, Journal


class Deadlines:
    """Keeps the time of agents that are on their way. ``policy`` may shorten what they are given."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.policy = PolicySpec()
        self._journal = journal
        self._clock = clock
        self._since = self._recalled()
        self._kept: frozenset[AgentKey] | None = None

    def starts(self, agent: AgentKey) -> None:
        """Its time runs from now on, unless it does already."""
        self._since.setdefault(agent, self._clock.monotonic())

    def stops(self, agent: AgentKey) -> None:
        """It is Ready, or may not begin, or starts afresh."""
        self._since.pop(agent, None)

    def keep(self, judged_by: Collection[AgentKey]) -> None:
        """Write down the time of those by whom a commit is judged."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        running = {key: since for key, since in self._since.items() if key in judged_by}
        if self._kept is None or running.keys() != self._kept:
            moments = {str(key): now - (monotonic - since) for key, since in running.items()}
            self._journal.put({"unready": orjson.dumps(moments).decode() if moments else None})
            self._kept = frozenset(running)

    def given(self, agent: Agent) -> float:
        """How long an agent may take to become Ready: its own time, or less if the policy says so."""
        most = limits_of(self.policy, agent.key.tenant).rollout.health_timeout
        return agent.health_timeout if most is None else min(agent.health_timeout, seconds(most))

    def overdue(self, agent: Agent) -> float | None:
        """The time an agent was given, once it is over."""
        since, given = self._since.get(agent.key), self.given(agent)
        return given if since is not None and self._clock.monotonic() - since > given else None

    def late(self, agents: Mapping[AgentKey, Agent]) -> list[AgentKey]:
        """Those whose time is over."""
        known = (agents[key] for key in self._since if key in agents)
        return [agent.key for agent in known if self.overdue(agent) is not None]

    def left(self, agents: Mapping[AgentKey, Agent]) -> Iterator[float]:
        """Seconds until the time of somebody is over."""
        monotonic = self._clock.monotonic()
        for key, since in self._since.items():
            if key in agents and (left := since + self.given(agents[key]) - monotonic) >= 0.0:
                yield left

    def _recalled(self) -> dict[AgentKey, float]:
        """The time that was used up until our last pass: nobody's time runs while we are not there to act."""
        monotonic, ended = self._clock.monotonic(), float(self._journal.get("last_pass") or 0.0)
        known: dict[str, float] = orjson.loads(self._journal.get("unready") or "{}")
        return {AgentKey.parse(key): monotonic - max(0.0, ended - at) for key, at in known.items()}
