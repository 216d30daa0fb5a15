"""Circuit breaker: a driver that failed too often in a row is given a rest, then one action to prove itself.

What counts as a failure, and when a circuit opens, is in ``reconcile/breaker.py``.
"""

from collections import Counter
from collections.abc import Iterable

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import MAX_DELAY_SECONDS, Circuit
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.model.quantity import iso, seconds
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.reasons import Hold


def breaker(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of drivers whose circuit is open; of those half open let one go."""
    circuits = {name: each for name, each in context.circuits.items() if each.open_until is not None}
    if not circuits:
        return let_pass("breaker")
    tried = {name for name in circuits if is_open(circuits[name], context)} | _at_work(context)
    held: dict[ResourceKey, str] = {}
    stopped: set[AgentKey] = set()
    for action in due(plan):
        if action.driver not in circuits:
            continue
        # An action that follows a held one would not go anyway, so it is no proof of anything.
        if action.driver in tried or action.key.agent in stopped:
            held[action.key] = action.driver
            stopped.add(action.key.agent)
        else:
            tried.add(action.driver)
    return trim("breaker", held, _findings(held.values(), circuits, context))


def is_open(circuit: Circuit, context: PlanContext) -> bool:
    """Whether nothing is to be tried. An end further away than any pause was written down under a wall clock that
    has been set back since."""
    if circuit.open_until is None:
        return False
    longest = max(MAX_DELAY_SECONDS, seconds(context.limits().breaker.pause))
    return context.now < circuit.open_until <= context.now + longest


def _at_work(context: PlanContext) -> set[str]:
    """The drivers that have something under way already: that is their one action."""
    agents = context.snapshot.agents
    busy = (agents[key] for key in context.busy if key in agents)
    return {resource.driver for agent in busy for resource in agent.resources}


def _findings(drivers: Iterable[str], circuits: dict[str, Circuit], context: PlanContext) -> Iterable[Finding]:
    for driver, count in sorted(Counter(drivers).items()):
        circuit = circuits[driver]
        assert circuit.open_until is not None
        when = f"until {iso(circuit.open_until)}" if is_open(circuit, context) else "but for one action at a time"
        actions = "1 action waits" if count == 1 else f"{count} actions wait"
        yield Finding(
            Severity.WARNING,
            Hold.BREAKER_OPEN,
            f"driver {driver}",
            f"rests {when}: {len(circuit.failing)} agents failed in a row",
            f"{actions}. Last error: {circuit.error.rstrip('.')}. After the rest one action is tried, and if it "
            "succeeds everything goes on by itself; if not, the rest is longer. gitops-agent doctor looks at what "
            "drivers need.",
        )
