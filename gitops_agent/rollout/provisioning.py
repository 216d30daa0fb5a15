"""Provisioning across passes: who is out of time, who was given up, and when they get another chance.

Time is counted while we run and by a clock that never jumps: taking down what was built must not depend on a wall
clock that was set forward. Who was given up is in the journal, until a commit changes the agent or a person says
``gitops-agent retry``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace

import orjson

from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import seconds
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus, Health, HealthState
from gitops_agent.plan.context import is_hands_off
from gitops_agent.ports import Clock, Journal, JournalReader
from gitops_agent.rollout.provisioning_rules import (
    compensated,
    may_compensate,
    out_of_time,
    spec_digest,
    terms,
    under_way,
)

VALUE = "abandoned"
Healths = Mapping[AgentKey, Health]
Statuses = Mapping[AgentKey, AgentStatus]
_WELL = (HealthState.HEALTHY, HealthState.STOPPED)


@dataclass(frozen=True, slots=True)
class GivenUpAgent:
    """One agent whose provisioning was given up: at which commit and spec, why and when. ``retried`` is what the
    journal said of retries then; another word there is a new one."""

    commit: str
    spec: str
    why: str
    at: float
    retried: str = ""


def given_up(journal: JournalReader) -> dict[AgentKey, GivenUpAgent]:
    """The agents that were given up."""
    known = orjson.loads(journal.get(VALUE) or "{}")
    return {AgentKey.parse(key): GivenUpAgent(**each) for key, each in known.items()}


class ProvisioningDeadlines:
    """Keeps count of the time new agents have had, and gives up those whose policy says so."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._known = given_up(journal)
        self._since: dict[AgentKey, float] = {}
        self._due: float | None = None

    def attend(self, snapshot: Snapshot, health: Healths, statuses: Statuses, policy: PolicySpec) -> Snapshot:
        """The snapshot to be planned: nothing is desired of agents that were given up.

        Nobody is given up unseen, nor who is healthy now and was not when it was last reported.
        """
        kept = {key: each for key, each in self._known.items() if self._still_holds(key, each, snapshot)}
        ready = {key for key, status in statuses.items() if status.ready} if may_compensate(policy) else set()
        late = self._late(snapshot, ready, policy)
        seen = {key: why for key, why in late.items() if key in health and health[key].state not in _WELL}
        for key, why in seen.items():
            spec, retried = spec_digest(snapshot.agents[key]), self._journal.get(f"retried:{key}") or ""
            kept[key] = GivenUpAgent(snapshot.revision.sha, spec, why, self._clock.now(), retried)
        self._keep(kept)
        return self.without(snapshot)

    def without(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without what is no longer desired of agents that were given up. Writes nothing."""
        gone = {
            key: compensated(snapshot.agents[key], each.why)
            for key, each in self._known.items()
            if self._still_holds(key, each, snapshot)
        }
        return replace(snapshot, agents={**snapshot.agents, **gone}) if gone else snapshot

    def next_due(self) -> float | None:
        """Seconds until the next agent is out of time, if nothing happens to it before."""
        return self._due

    def _late(self, snapshot: Snapshot, ready: Container[AgentKey], policy: PolicySpec) -> dict[AgentKey, str]:
        self._due = None
        if not may_compensate(policy):
            self._since = {}
            return {}
        now, bases = self._clock.monotonic(), self._journal.bases().values()
        moving = under_way(snapshot.agents, bases, ready)
        self._since = {key: self._since.get(key, now) for key in moving if self._is_ours_to_end(key, snapshot)}
        spent = {key: now - since for key, since in self._since.items()}
        late = out_of_time(spent, policy)
        left = [seconds(terms(policy, key).deadline) - had for key, had in spent.items() if key not in late]
        self._due = max(0.0, min(left)) if left else None
        return late

    def _is_ours_to_end(self, key: AgentKey, snapshot: Snapshot) -> bool:
        return key not in self._known and not is_hands_off(snapshot.agents[key], self._clock.now())

    def _still_holds(self, key: AgentKey, each: GivenUpAgent, snapshot: Snapshot) -> bool:
        agent = snapshot.agents.get(key)
        same = agent is not None and spec_digest(agent) == each.spec
        return same and (self._journal.get(f"retried:{key}") or "") == each.retried

    def _keep(self, kept: dict[AgentKey, GivenUpAgent]) -> None:
        if kept != self._known:
            text = orjson.dumps({str(key): asdict(each) for key, each in kept.items()}).decode()
            self._journal.put({VALUE: text if kept else None})
            self._known = kept
