"""A simulated election: the record is a file of this host, for tests of what ``run`` makes of an election.

As a plugin (``PLUGIN``, the name ``simulated``) it is installed by tests only. While a file of the same name with
``.down`` is there, it does not answer.
"""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import BaseModel

from gitops_agent.drivers.api import Context, Driver, ObserveError, Plugin
from gitops_agent.drivers.election import LEASE_SECONDS, Kept, Lease, LeaseElection
from gitops_agent.support.file_lock import locked

LOCK_SECONDS = 2.0


class SimulatedStore:
    """The record as JSON in a file; a number that grows is its version."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Kept | None:
        """The record; None when there is no file."""
        self._check()
        with suppress(FileNotFoundError):
            found = orjson.loads(self._path.read_bytes())
            return Kept(Lease(**found["lease"]), found["version"])
        return None

    def write(self, lease: Lease, over: Kept | None) -> Kept | None:
        """Compare and swap, one process at a time."""
        try:
            with locked(self._path.with_suffix(".lock"), LOCK_SECONDS):
                return self._swap(lease, over)
        except OSError as problem:
            raise ObserveError(f"the simulated election does not answer: {problem}") from problem

    def _swap(self, lease: Lease, over: Kept | None) -> Kept | None:
        found = self.read()
        if found != over:
            return None
        kept = Kept(lease, str(int(found.version) + 1 if found is not None else 1))
        new = self._path.with_suffix(".new")
        new.write_bytes(orjson.dumps(asdict(kept)))
        new.replace(self._path)
        return kept

    def _check(self) -> None:
        if self._path.with_suffix(".down").exists():
            raise ObserveError("the simulated election does not answer", hint="remove the file that ends in .down")


class SimulatedSettings(BaseModel):
    """``drivers.simulated``: the file of the record, and how long it is good for."""

    file: str
    seconds: float = LEASE_SECONDS


def elect(context: Context, identity: str) -> LeaseElection:
    """A candidacy for the file that the settings name."""
    assert isinstance(context.settings, SimulatedSettings)
    return LeaseElection(SimulatedStore(Path(context.settings.file)), identity, context.settings.seconds)


def _connect(_: Context) -> Driver:
    raise ObserveError("the simulated election drives nothing", hint="name another driver in documents")


PLUGIN = Plugin("simulated", (), lambda _: (), _connect, settings=SimulatedSettings, elect=elect)
