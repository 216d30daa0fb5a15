"""Lanes: the actions of one agent in their order, and when the next of them may begin.

Hooks, stops, restarts and everything else have a place each with every driver, with room for so many at a time, so
that eight hooks that hang keep no agent from being started, nor one live system that is slow those of another. Who
takes long gives up its room: it waits alone, and the next begins.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from gitops_agent.model.catalog import plugin_name
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.outcome import Intent
from gitops_agent.model.plan import Action, Plan, Verb
from gitops_agent.plan.order import TEARDOWN
from gitops_agent.ports import Clock
from gitops_agent.support.token_bucket import Rate, TokenBucket

MAX_SLOW = 64
"""Slow actions in one place at most, beside as many quick ones as there are workers."""

Lane = deque[Action]

HOOKS, STOPS, RESTARTS, OTHERS = SORTS = ("hooks", "stops", "restarts", "others")

Place = tuple[str, str]
"""One of ``SORTS``, with the name of a driver."""

NOTHING_AHEAD: Mapping[Place, int] = {}


def place_of(action: Action) -> Place:
    """Where an action runs."""
    return _sort_of(action), action.driver


def _sort_of(action: Action) -> str:
    if action.key.kind == Kind.HOOK:
        return HOOKS
    if action.verb in TEARDOWN:
        return STOPS
    return RESTARTS if action.verb is Verb.RESTART else OTHERS


def room_left(quick: Counter[Place], slow: Counter[Place], workers: int) -> dict[Place, int]:
    """How many more actions may begin in each place; where nothing runs, as many as there are workers."""
    left = defaultdict[Place, int](lambda: workers)
    for place in quick.keys() | slow.keys():
        left[place] = workers - quick[place] if slow[place] < MAX_SLOW else 0
    return left


def lanes_of(plan: Plan) -> Iterator[dict[AgentKey, Lane]]:
    """The actions of each agent in their order: first the agents that only lose something, then the others."""
    lanes: dict[AgentKey, Lane] = {}
    for action in plan.allowed:
        lanes.setdefault(action.key.agent, deque()).append(action)
    ending = {agent for agent, lane in lanes.items() if all(action.verb in TEARDOWN for action in lane)}
    yield {agent: lane for agent, lane in lanes.items() if agent in ending}
    yield {agent: lane for agent, lane in lanes.items() if agent not in ending}


class WaitingLanes:
    """Lanes whose next action has not begun, by its place, first come, first served."""

    def __init__(self, lanes: Mapping[AgentKey, Lane]) -> None:
        self._lanes = defaultdict[Place, deque[Lane]](deque)
        for lane in lanes.values():
            self._lanes[place_of(lane[0])].append(lane)

    def __bool__(self) -> bool:
        return any(self._lanes.values())

    def put_back(self, lane: Lane) -> None:
        """A lane whose last action succeeded goes on before those that have not begun."""
        if lane:
            self._lanes[place_of(lane[0])].appendleft(lane)

    def take_heads(
        self,
        room: Mapping[Place, int],
        limiter: "RateLimiter",
        ahead: Mapping[Place, int] = NOTHING_AHEAD,
        may_be_ahead: Callable[[Action], bool] = lambda _: True,
    ) -> list[Action]:
        """The first actions of as many lanes as there is room for, taken out, and in some places of as many more
        as are to be ``ahead`` and may be; lanes whose driver has no token stay, in order."""
        heads: list[Action] = []
        for place, lanes in self._lanes.items():
            kept: list[Lane] = []
            left, least = room[place], -ahead.get(place, 0)
            while lanes and left > least:
                lane = lanes.popleft()
                if (left > 0 or may_be_ahead(lane[0])) and limiter.may_act(lane[0]):
                    heads.append(lane.popleft())
                    left -= 1
                else:
                    kept.append(lane)
            lanes.extendleft(reversed(kept))
        return heads


class Opened:
    """Intents on record whose actions have not begun, by place, first come, first served."""

    def __init__(self) -> None:
        self._intents = defaultdict[Place, deque[Intent]](deque)

    def __bool__(self) -> bool:
        return any(self._intents.values())

    def __iter__(self) -> Iterator[Intent]:
        return chain.from_iterable(self._intents.values())

    def counts(self) -> Counter[Place]:
        """How many there are in each place."""
        return Counter({place: len(intents) for place, intents in self._intents.items()})

    def add(self, intents: Iterable[Intent]) -> None:
        """Add some, which begin after those that are there."""
        for intent in intents:
            self._intents[place_of(intent.action)].append(intent)

    def take(self, room: Mapping[Place, int]) -> list[Intent]:
        """As many as there is room for, taken out."""
        return [
            intents.popleft()
            for place, intents in self._intents.items()
            for _ in range(min(room[place], len(intents)))
        ]


class RateLimiter:
    """Lets actions begin no faster than their drivers take them."""

    def __init__(self, rates: Mapping[str, Rate], clock: Clock) -> None:
        self._clock = clock
        self._rates = rates
        self._buckets: dict[str, TokenBucket] = {}

    def next_due(self) -> float | None:
        """Seconds until some driver that has no token now has one again; None when all have."""
        now = self._clock.monotonic()
        return min((wait for each in self._buckets.values() if (wait := each.wait(now)) > 0), default=None)

    def may_act(self, action: Action) -> bool:
        """Whether the driver of an action has a token for it, which is then taken."""
        rate = self._rates.get(plugin_name(action.driver)) if action.verb.touches_live else None
        if rate is None:
            return True
        now = self._clock.monotonic()
        left = (self._buckets.get(action.driver) or rate.full(now)).take(now)
        if left is not None:
            self._buckets[action.driver] = left
        return left is not None
