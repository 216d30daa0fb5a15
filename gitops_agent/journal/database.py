"""What the journal asks of a database: ``sqlite`` and ``postgres`` each are one."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import RLock
from typing import Protocol

from sqlalchemy import Connection, Engine

Meanings = Mapping[str, tuple[str, str]]
"""By how the name of an error begins: what happened, the way out."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The ways out of what is found in a database, in words: no journal yet, something else than a journal, one of
    a newer version, one of before the first release."""

    none_yet: str
    foreign: str
    newer: str
    too_old: str


class Database(Protocol):
    """Transactions to read or to write in; raises JournalError only.

    ``place``: where it is, for people, without a password. ``shared``: whether a write may have become durable
    although it failed (its answer was lost). ``term``: the number under which this process writes, 0 without one.
    """

    place: str
    advice: Advice
    shared: bool
    read_only: bool
    mutex: RLock
    engine: Engine

    @property
    def term(self) -> int:
        """The number under which this process writes."""

    def reading(self) -> AbstractContextManager[Connection]:
        """One consistent view, whatever is written meanwhile."""

    def writing(self, *, by_anyone: bool = False) -> AbstractContextManager[Connection]:
        """One durable transaction, one at a time. ``by_anyone``: also for those that are not the writer."""

    def others_wrote(self) -> bool:
        """Whether others have committed since this was last asked."""

    def holder(self) -> str | None:
        """The process that writes now, in words; None when there is none."""

    def close(self) -> None:
        """Let go of it."""
