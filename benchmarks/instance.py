"""A whole instance on the in-memory driver: real wiring, source, journal and notes; the live system is a dict."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from benchmarks.fleet import build_fleet, commit, spec
from gitops_agent import pipeline, wiring
from gitops_agent.drivers.api import Compilation
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.journal.store import open_journal
from gitops_agent.model.agent import Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Owner
from gitops_agent.model.passes import PassResult, Request
from gitops_agent.model.plan import Plan
from gitops_agent.model.status import Phase
from gitops_agent.plan.build import build
from gitops_agent.settings import Settings
from gitops_agent.source.mirror import Mirror
from gitops_agent.testing.memory_driver import MemoryDriver, Thing

WIDE = "apiVersion: gitops-agent.dev/v1\nkind: Policy\nspec: {actionsPerMinute: 100000}\n"
"""A policy that lets a whole fleet come up in one pass: preparing is not what is measured."""

PATIENCE = 600.0
REPO, STATE = "fleet.git", "state"


class Unprobed(MemoryDriver):
    """A live system whose agents are not probed: what is measured is our own work, not ten thousand requests."""

    def compile(self, asked: Compilation) -> tuple[Resource, ...]:
        """The same resources, without probes."""
        config, *runtimes = super().compile(asked)
        return (config, *(replace(each, fields=_unprobed(each.fields)) for each in runtimes))


def _unprobed(fields: Fields) -> Fields:
    return Fields.of({name: value for name, value in fields.value.items() if name != "health"})


@dataclass
class Stopwatch:
    """When the source last answered, and when the plan that followed was ready."""

    fetched: float = 0.0
    planned: float = 0.0
    plan: Plan | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        """From fetched to plan ready."""
        return self.planned - self.fetched


@dataclass(frozen=True)
class Fleet:
    """A converged fleet and the pipeline that keeps it so."""

    repo: Path
    pipeline: pipeline.Pipeline
    driver: MemoryDriver

    def full_pass(self) -> PassResult:
        """One pass over everything, the remote asked as well."""
        return self.pipeline.run(Request(None, fetch=True, actor="bench"))

    def commit(self, number: int, lifecycle: str) -> str:
        """A commit that touches one spec; its sha."""
        path, text = spec(number, lifecycle=lifecycle)
        return commit(self.repo, {path: text})

    def follow(self) -> PassResult:
        """What the daemon does when a ref moved: only the agents that the commit changes are in scope."""
        return self.pipeline.run(Request(frozenset[AgentKey](), fetch=True, actor="bench"))


@contextmanager
def converged(folder: Path, size: int) -> Iterator[Fleet]:
    """A fleet of this size, brought up from its repository and Ready."""
    repo = folder / REPO
    build_fleet(repo, size)
    commit(repo, {"gitops-agent.yaml": WIDE}, message="A wide policy")
    with _opened(folder, Unprobed()) as fleet:
        _bring_up(fleet)
        yield fleet


@contextmanager
def reopened(folder: Path) -> Iterator[Fleet]:
    """The same fleet after a restart of gitops-agent: the live system still holds what the journal says."""
    driver = Unprobed()
    with open_journal(folder / STATE, read_only=True) as journal:
        for key, base in journal.state().reconcile.bases.items():
            if not base.fields.value.get("stopped"):
                driver.live[key] = Thing(base.fields, Owner.OURS, base.handle, base.applied_at)
    with _opened(folder, driver) as fleet:
        yield fleet


@contextmanager
def _opened(folder: Path, driver: MemoryDriver) -> Iterator[Fleet]:
    """An instance with this live system in place of the installed drivers."""
    settings = Settings(
        repo=str(folder / REPO), state_dir=str(folder / STATE), lease_dir=str(folder / "leases"), push=False
    )
    drivers = patch.object(wiring, "load_plugins", lambda: Plugins([driver.plugin]))
    with drivers, wiring.open_instance(settings, dict(os.environ)) as instance:
        yield Fleet(folder / REPO, instance.context.pipeline, driver)


def _bring_up(fleet: Fleet) -> None:
    deadline = time.monotonic() + PATIENCE
    while (result := fleet.full_pass()).phase is not Phase.CONVERGED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the fleet did not converge: {result.record}")
        time.sleep(result.wait or 0.1)


@contextmanager
def timed_plans() -> Iterator[Stopwatch]:
    """Stamp the moments between which a plan is made, in every pass that runs meanwhile."""
    watch, refresh = Stopwatch(), Mirror.refresh

    def refreshed(mirror: Mirror) -> object:
        head = refresh(mirror)
        watch.fetched = time.perf_counter()
        return head

    def built(*args: object) -> Plan:
        watch.plan = build(*args)  # type: ignore[arg-type]
        watch.planned = time.perf_counter()
        return watch.plan

    with patch.object(Mirror, "refresh", refreshed), patch.object(pipeline, "build", built):
        yield watch
