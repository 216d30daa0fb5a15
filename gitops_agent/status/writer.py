"""StatusWriter: the three commit points of a pass, and what follows each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.passes import PassResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.state import State
from gitops_agent.model.status import CommitRecord
from gitops_agent.ports import Clock
from gitops_agent.report.outbox import Outbox

NOTHING: Mapping[ResourceKey, Observation] = MappingProxyType({})


class StatusWriter:
    """Writes the state of one instance, and has changed commits reported. Writes: all of ``State``."""

    def __init__(self, journal: SqlJournal, outbox: Outbox, clock: Clock) -> None:
        self._journal = journal
        self._outbox = outbox
        self._clock = clock
        self._observed: Mapping[ResourceKey, Observation] = {}
        self._records: Mapping[str, CommitRecord] | None = None

    def commit(
        self, state: State, plans: Sequence[Plan] = (), observed: Mapping[ResourceKey, Observation] = NOTHING
    ) -> State:
        """Write what differs from the last commit point in one transaction; sinks owe the commits that changed."""
        at = self._clock.now()
        # Who reports is a question to the host, and matters only when there is something to report.
        sinks = () if state.commits.records is self._records else self._outbox.owed_to
        # What was not observed again since the last commit point needs no second look.
        known, self._observed = self._observed, observed
        news = [seen for key, seen in observed.items() if known.get(key) is not seen]
        written = self._journal.commit(state, plans=plans, observations=news, owed_to=sinks, at=at)
        self._records = written.commits.records
        self._outbox.collect(written)
        return written

    def end(self, result: PassResult) -> PassResult:
        """Write the end of a pass, then hand it to the sinks."""
        seen = NOTHING if result.record is None else result.record.live.observed.seen
        result = replace(result, state=self.commit(result.state, observed=seen))
        self._outbox.publish(result)
        return result
