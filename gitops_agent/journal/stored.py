"""Maps of the state that are read from the database when they are first looked at, and not before.

Every write to a table is preceded by a look at its map, so what is read here is what the state was when it was
given out.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gitops_agent.model.key import AgentKey
from gitops_agent.model.state import AgentStatuses, FrozenMap
from gitops_agent.model.status import AgentStatus

K = TypeVar("K")
V = TypeVar("V")

MAX_SINGLE_READS = 8
"""How many statuses are read one by one before all are."""


class StoredMap(FrozenMap[K, V]):
    """A map of the database."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], dict[K, V]]) -> None:
        self._read = read

    def __getattr__(self, name: str) -> Any:
        """Called for what the map holds until it has been read: reads it."""
        if name != "_known":
            raise AttributeError(name)
        self._known = self._read()
        return self._known


class StoredStatuses(AgentStatuses):
    """The statuses of the database. A few are read one by one; then, or when all are asked about, all at once."""

    __slots__ = ("_all_read", "_read", "_read_one", "_singles")

    def __init__(
        self,
        read: Callable[[], Mapping[AgentKey, AgentStatus]],
        read_one: Callable[[AgentKey], AgentStatus | None],
    ) -> None:
        self._read = read
        self._read_one = read_one
        self._all_read = False
        self._singles: dict[AgentKey, AgentStatus | None] = {}

    __contains__ = Mapping.__contains__

    def __getitem__(self, key: AgentKey) -> AgentStatus:
        if self._all_read or len(self._singles) >= MAX_SINGLE_READS:
            return super().__getitem__(key)
        if key not in self._singles:
            self._singles[key] = self._read_one(key)
        found = self._singles[key]
        if found is None:
            raise KeyError(key)
        return found

    def __getattr__(self, name: str) -> Any:
        """Called for what the statuses hold until they have been read: reads them."""
        if name not in ("_known", *AgentStatuses.__slots__):
            raise AttributeError(name)
        super().__init__(self._read())
        self._all_read = True
        return object.__getattribute__(self, name)
