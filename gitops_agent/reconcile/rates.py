"""Rate limits per driver: which lanes may take their next step now."""

from collections import deque
from collections.abc import Mapping

from gitops_agent.model.plan import Action
from gitops_agent.ports import Clock
from gitops_agent.support.token_bucket import Rate


class RateLimiter:
    """Hands out the next actions of lanes, no faster than their drivers take them."""

    def __init__(self, rates: Mapping[str, Rate], clock: Clock) -> None:
        self._clock = clock
        self._buckets = {name: rate.full(clock.monotonic()) for name, rate in rates.items()}

    def take_heads(self, lanes: deque[deque[Action]], room: int) -> list[Action]:
        """The first actions of up to ``room`` lanes, taken out; lanes whose driver has no token stay, in order."""
        heads: list[Action] = []
        kept: list[deque[Action]] = []
        while lanes and len(heads) < room:
            lane = lanes.popleft()
            if self._may_act(lane[0]):
                heads.append(lane.popleft())
            else:
                kept.append(lane)
        lanes.extendleft(reversed(kept))
        return heads

    def next_due(self) -> float | None:
        """Seconds until some driver that has no token now has one again; None when all have."""
        now = self._clock.monotonic()
        return min((wait for each in self._buckets.values() if (wait := each.wait(now)) > 0), default=None)

    def _may_act(self, action: Action) -> bool:
        bucket = self._buckets.get(action.driver) if action.verb.touches_live else None
        if bucket is None:
            return True
        left = bucket.take(self._clock.monotonic())
        if left is not None:
            self._buckets[action.driver] = left
        return left is not None
