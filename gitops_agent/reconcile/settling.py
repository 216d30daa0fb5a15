"""What a crash left open is settled by looking: found done, tried again under its key, or closed."""

from __future__ import annotations

from gitops_agent.model.plan import Plan
from gitops_agent.observe import Observed
from gitops_agent.ports import Clock, Journal
from gitops_agent.reconcile.recovery import abandon, settle
from gitops_agent.status.proceedings import Look


class Recovery:
    """Works until nothing is open from an earlier life; until then every pass must look at everything."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self.done = False

    def settle(self, observed: Observed) -> bool:
        """Write the outcomes that can be seen; whether there were any."""
        if self.done:
            return False
        unreachable = observed.unreachable
        known = [intent for intent in self._journal.open_intents() if intent.action.driver not in unreachable]
        now, bases = self._clock.now(), self._journal.bases()
        outcomes, settled, forgotten = settle(known, observed.seen, now, bases)
        if outcomes:
            self._journal.finish(outcomes, bases=settled, forgotten=forgotten)
        return bool(outcomes)

    def abandon(self, plan: Plan, look: Look) -> None:
        """What is still open is tried again if the plan asks for it, and closed otherwise; never while blind."""
        if self.done or look.observed.unreachable:
            return
        wanted = {action.key for action in plan.actions}
        if outcomes := abandon(self._journal.open_intents(), wanted, self._clock.now()):
            self._journal.finish(outcomes)
        self.done = True
