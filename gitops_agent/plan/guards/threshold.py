"""Thresholds: so many, and more than such a share of a tenant or of the fleet. Both numbers must trip."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from gitops_agent.model.control import EVERYTHING
from gitops_agent.model.document import TenantPolicy, Threshold
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.plan.context import PlanContext

Pick = Callable[[TenantPolicy], Threshold | None]


@dataclass(frozen=True, slots=True)
class Trip:
    """A threshold that tripped: where (``*`` or a tenant), by which agents, how many of what out of how many."""

    scope: str
    agents: frozenset[AgentKey]
    amount: int
    size: int
    limit: Threshold
    unit: str = "agents"

    @property
    def where(self) -> str:
        """The scope in words."""
        return "the fleet" if self.scope == EVERYTHING else f"tenant {self.scope}"

    @property
    def count(self) -> str:
        """How many out of how many, in words."""
        return f"{self.amount} of {self.size} {self.unit} of {self.where}"

    def allows(self, section: str) -> str:
        """What the numbers of a section of the policy allow, in words."""
        share = f"at most {self.limit.ratio * 100:g} % of {self.size}"
        return f"{section} allows fewer than {self.limit.min} {self.unit} of {self.where}, or {share}"


def runtimes_on_record(context: PlanContext) -> list[Base]:
    """The bases of all runtimes, apart from those that were let go of."""
    kind = Kind.RUNTIME  # looked up once: the record holds all that ten thousand agents consist of
    return [base for key, base in context.bases.items() if key.kind == kind and not base.retained]


def trips(agents: Collection[AgentKey], context: PlanContext, pick: Pick) -> Iterator[Trip]:
    """Every number that these agents trip: of the fleet, then of the tenants that are not all of it."""

    def recorded() -> dict[AgentKey, int]:
        return {base.key.agent: 1 for base in runtimes_on_record(context)}

    return weighed_trips(dict.fromkeys(agents, 1), recorded, context, pick)


def weighed_trips(
    lost: Mapping[AgentKey, int],
    had: Callable[[], Mapping[AgentKey, int]],
    context: PlanContext,
    pick: Pick,
    unit: str = "agents",
) -> Iterator[Trip]:
    """The same where agents weigh more than one: what each would lose, and what each has."""
    limits, total = _limits(lost, context, pick), sum(lost.values())
    if all(total < limit.min for limit in limits.values()):
        return  # too few to trip anywhere, however small the fleet is: no need to count it
    sizes, counts = Counter[str](), Counter[str]()
    for weights, by_tenant in ((had(), sizes), (lost, counts)):
        for agent, weight in weights.items():
            by_tenant[agent.tenant] += weight
    for tenant, limit in limits.items():
        those = frozenset(agent for agent in lost if tenant in (None, agent.tenant))
        amount, size = (each.total() if tenant is None else each[tenant] for each in (counts, sizes))
        is_all = tenant is not None and limit == limits.get(None) and sizes.keys() | counts.keys() == {tenant}
        # 0.29 * 100 is a little less than 29 in binary: exactly the ratio must not trip.
        if not is_all and amount >= limit.min and amount > limit.ratio * size + 1e-9:
            yield Trip(EVERYTHING if tenant is None else tenant, those, amount, size, limit, unit)


def _limits(agents: Collection[AgentKey], context: PlanContext, pick: Pick) -> dict[str | None, Threshold]:
    """The limits in force for the fleet (None) and for the tenants of some agents."""
    tenants = sorted({agent.tenant for agent in agents})
    limits = {tenant: pick(context.limits(tenant)) for tenant in (None, *tenants)}
    return {tenant: limit for tenant, limit in limits.items() if limit is not None}
