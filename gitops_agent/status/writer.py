"""StatusWriter: the three commit points of a pass, and what follows each of them."""

from collections.abc import Sequence
from dataclasses import replace

from gitops_agent.model.observation import Observation
from gitops_agent.model.passes import PassResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.state import State
from gitops_agent.ports import Clock, Journal
from gitops_agent.report.outbox import Outbox


class StatusWriter:
    """Writes the state of one instance, and has changed commits reported. Writes: all of ``State``."""

    def __init__(self, journal: Journal, outbox: Outbox, clock: Clock) -> None:
        self._journal = journal
        self._outbox = outbox
        self._clock = clock

    def commit(self, state: State, plans: Sequence[Plan] = (), observed: Sequence[Observation] = ()) -> State:
        """Write what differs from the last commit point in one transaction; sinks owe the commits that changed."""
        sinks, at = self._outbox.owed_to, self._clock.now()
        written = self._journal.commit(state, plans=plans, observations=observed, owed_to=sinks, at=at)
        self._outbox.collect(written)
        return written

    def end(self, result: PassResult) -> PassResult:
        """Write the end of a pass, then hand it to the sinks."""
        seen = () if result.record is None else tuple(result.record.live.observed.seen.values())
        result = replace(result, state=self.commit(result.state, observed=seen))
        self._outbox.publish(result)
        return result
