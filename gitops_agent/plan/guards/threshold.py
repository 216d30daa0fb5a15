"""Thresholds: so many agents, and more than such a share of a tenant or of the fleet. Both numbers must trip."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from gitops_agent.model.control import EVERYTHING
from gitops_agent.model.document import TenantPolicy, Threshold
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.plan.context import PlanContext


@dataclass(frozen=True, slots=True)
class Trip:
    """A threshold that tripped: where (``*`` or a tenant), by which agents, out of how many."""

    scope: str
    agents: frozenset[AgentKey]
    size: int
    limit: Threshold

    @property
    def where(self) -> str:
        """The scope in words."""
        return "the fleet" if self.scope == EVERYTHING else f"tenant {self.scope}"

    @property
    def count(self) -> str:
        """How many out of how many, in words."""
        return f"{len(self.agents)} of {self.size} agents of {self.where}"

    def allows(self, section: str) -> str:
        """What the numbers of a section of the policy allow, in words."""
        share = f"at most {self.limit.ratio:g} of {self.where} ({self.limit.ratio * self.size:g} agents)"
        return f"{section} allows fewer than {self.limit.min} agents, or {share}"


def trips(
    agents: Collection[AgentKey], context: PlanContext, pick: Callable[[TenantPolicy], Threshold | None]
) -> Iterator[Trip]:
    """Every number that these agents trip: of the fleet, then of the tenants that are not all of it."""
    counts = Counter(agent.tenant for agent in agents)
    scopes = {tenant: pick(context.limits(tenant)) for tenant in (None, *sorted(counts))}
    limits = {tenant: limit for tenant, limit in scopes.items() if limit is not None}
    if len(agents) < min((limit.min for limit in limits.values()), default=len(agents) + 1):
        return  # too few to trip anywhere, however small the fleet is: no need to count it
    recorded = {key.agent for key, base in context.bases.items() if key.kind == Kind.RUNTIME and not base.retained}
    sizes = Counter(agent.tenant for agent in recorded)
    for tenant, limit in limits.items():
        those = frozenset(agent for agent in agents if tenant in (None, agent.tenant))
        size = len(recorded) if tenant is None else sizes[tenant]
        is_all = tenant is not None and limit == limits.get(None) and sizes.keys() | counts.keys() == {tenant}
        # 0.29 * 100 is a little less than 29 in binary: exactly the ratio must not trip.
        if not is_all and len(those) >= limit.min and len(those) > limit.ratio * size + 1e-9:
            yield Trip(EVERYTHING if tenant is None else tenant, those, size, limit)
