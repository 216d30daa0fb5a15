"""A journal with fault points around every write: ``journal.commit:before``, ``:inside`` and ``:after``."""

from collections.abc import Callable
from typing import Any, cast

from gitops_agent.journal.store import SqlJournal
from gitops_agent.testing.faults import FaultInjector

WRITES = ("control", "commit", "begin", "finish", "take_back", "delivered", "prune")


class _FaultyJournal:
    """Passes everything on. A fault before a write prevents it, one inside it takes all of it back, one after it
    comes when it is durable. Reading cannot crash halfway."""

    def __init__(self, journal: SqlJournal, injector: FaultInjector) -> None:
        self._journal = journal
        self._injector = injector
        journal.inside = lambda method: injector.reach(f"journal.{method}:inside")

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._journal, name)
        if name not in WRITES:
            return method

        def between_points(*args: Any, **kwargs: Any) -> Any:
            self._injector.reach(f"journal.{name}:before")
            result = method(*args, **kwargs)
            self._injector.reach(f"journal.{name}:after")
            return result

        return between_points


FaultyJournal = cast("Callable[[SqlJournal, FaultInjector], SqlJournal]", _FaultyJournal)
"""The journal in front of another, as the type it stands in for."""
