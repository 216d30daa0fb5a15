"""Our own record is the live system: what is in it is what is live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops_agent.drivers.health.spec import DRIVER
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.ports import NO_CLAIMS, Claims, Clock, Scope


class HealthObserver:
    """The reading part of the health driver."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def observe(
        self,
        scope: Scope,
        bases: Mapping[ResourceKey, Base],
        claims: Claims = NO_CLAIMS,  # noqa: ARG002 - nobody else writes our record
    ) -> Sequence[Observation]:
        """One observation for each record in the scope."""
        now = self._clock.now()
        return [
            Observation(
                key=key, driver=DRIVER, owner=Owner.OURS, fields=base.fields, state="Recorded", observed_at=now
            )
            for key, base in bases.items()
            if base.driver == DRIVER and (scope is None or key.agent in scope)
        ]
