"""Circuit breaker: a driver that failed too often in a row is given a rest, then one action to prove itself.

What counts as a failure, and when a circuit opens, is in ``reconcile/retry.py``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import MAX_DELAY_SECONDS, Circuit
from gitops_agent.model.plan import Action, Plan, Verdict
from gitops_agent.model.quantity import counted, iso, seconds
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.reasons import Hold


def breaker(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of drivers whose circuit is open; of those half open let one go."""
    ends = {name: each.open_until for name, each in context.circuits.items() if each.open_until is not None}
    if not ends:
        return let_pass("breaker")
    # An end further away than any pause was written down under a wall clock that has been set back since.
    longest = max(MAX_DELAY_SECONDS, seconds(context.limits().breaker.pause))
    open_ = {name: end for name, end in ends.items() if context.now < end <= context.now + longest}
    # What a driver has under way already is its one action.
    busy = (context.snapshot.agents[key] for key in context.busy if key in context.snapshot.agents)
    tried = {*open_, *(resource.driver for agent in busy for resource in agent.resources)}
    held: list[Action] = []
    stopped: set[AgentKey] = set()
    for action in (action for action in due(plan) if action.driver in ends):
        # An action that follows a held one would not go anyway, so it is no proof of anything.
        if action.driver in tried or action.key.agent in stopped:
            held.append(action)
            stopped.add(action.key.agent)
        else:
            tried.add(action.driver)
    return trim("breaker", held, _findings(held, open_, context.circuits))


def _findings(
    held: Iterable[Action], open_: Mapping[str, float], circuits: Mapping[str, Circuit]
) -> Iterable[Finding]:
    for driver, count in sorted(Counter(action.driver for action in held).items()):
        circuit = circuits[driver]
        when = f"until {iso(open_[driver])}" if driver in open_ else "but for one action at a time"
        actions = "1 action waits" if count == 1 else f"{count} actions wait"
        yield Hold.BREAKER_OPEN.finding(
            f"driver {driver}",
            f"rests {when}: {counted(len(circuit.failing), 'agent')} failed in a row",
            f"{actions}. Last error: {circuit.error.rstrip('.')}. After the rest one action is tried, and if it "
            "succeeds everything goes on by itself; if not, the rest is longer. gitops-agent doctor looks at what "
            "drivers need.",
        )
