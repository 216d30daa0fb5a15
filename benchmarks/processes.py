"""Local processes: 200 agents observed in one pass, against one bare psutil sweep over the same processes.

Starts 200 small agents, looks at them both ways, and stops everything it started.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial

import psutil

from benchmarks import Row
from benchmarks.timing import medians, timed
from gitops_agent.drivers.api import Compilation, Context, ObserveRequest
from gitops_agent.drivers.local.context import Options
from gitops_agent.drivers.local.driver import LocalDriver
from gitops_agent.drivers.local.spec import runtime_key
from gitops_agent.drivers.process import DRIVER, PLUGIN
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb

AGENTS = 200
ROUNDS = 9
TARGET = 2.0


class _Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


def _document(agent: AgentKey) -> AgentDocument:
    content = {
        "apiVersion": "gitops-agent.dev/v1",
        "kind": "Agent",
        "metadata": {"name": agent.name, "tenant": agent.tenant},
        "spec": {"runtime": {"driver": "process", "command": ["sleep", "3600"], "stop": {"grace": "1s"}}},
    }
    return AgentDocument.model_validate_json(Fields.of(content).raw)


def _act(driver: LocalDriver, verb: Verb, key: ResourceKey, desired: Fields | None, base: Base | None) -> Fields:
    action = Action(
        key=key,
        driver="process",
        verb=verb,
        drift_class=Class.CHANGE,
        reason="Benchmark",
        message="",
        confidence=Confidence.HIGH,
        decision=Decision.REPAIR,
        base=base.fields if base else None,
        desired=desired,
        handle=base.handle if base else None,
    )
    return driver.apply(action, "benchmark").handle


def _sweep(pids: list[int]) -> None:
    for pid in pids:
        process = psutil.Process(pid)
        process.cmdline()
        process.environ()
        process.status()
        process.create_time()


def measure() -> tuple[float, float, float]:
    """Seconds for a first pass, for a later pass, and for the bare sweep."""
    with tempfile.TemporaryDirectory(prefix="gitops-agent-bench-") as state:
        place = Context(f"bench-{uuid.uuid4().hex[:8]}", state, _Clock())
        driver = LocalDriver(DRIVER, place, Options(groups=None))
        bases: dict[ResourceKey, Base] = {}
        try:
            for number in range(AGENTS):
                agent = AgentKey(place.instance, f"agent-{number}")
                fields = PLUGIN.compile(Compilation(agent, _document(agent)))[0].fields
                key = runtime_key(agent, DRIVER)
                handle = _act(driver, Verb.CREATE, key, fields, None)
                bases[key] = Base(key, "process", fields, "", 0.0, handle=handle)
            pids = [
                r["pid"] for seen in driver.observe(ObserveRequest(None, bases)) for r in seen.live["replicas"]
            ]
            assert len(pids) == AGENTS, f"{len(pids)} of {AGENTS} agents run"
            jobs: list[Callable[[], object]] = [
                lambda: LocalDriver(DRIVER, place, Options(groups=None)).observe(ObserveRequest(None, bases)),
                lambda: driver.observe(ObserveRequest(None, bases)),
                lambda: _sweep(pids),
            ]
            first, later, bare = medians(ROUNDS, *(partial(timed, job) for job in jobs))
        finally:
            for key, base in bases.items():
                _act(driver, Verb.DELETE, key, None, base)
    return first, later, bare


def run() -> list[Row]:
    """The rows of ``make bench``."""
    first, later, bare = measure()
    note = f"{AGENTS} agents, bare psutil sweep {bare * 1000:.1f} ms"
    return [
        Row("observe local processes: first pass / psutil sweep", first / bare, TARGET, note=note),
        Row("observe local processes: later pass / psutil sweep", later / bare, TARGET, note=note),
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
