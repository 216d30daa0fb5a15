"""A small fleet on the real process table, gone when the test is over."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Compilation, Context, ObserveRequest
from gitops_agent.drivers.local.context import Options
from gitops_agent.drivers.local.driver import LocalDriver
from gitops_agent.drivers.local.log_files import Rotation
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.spec import runtime_key, runtime_resources
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb

# One tenant per test process: an agent of the same name in another instance is, rightly, in the way.
BOT = AgentKey(f"acme-{os.getpid()}", "bot")
PYTHON = sys.executable
SLEEP = ("sleep", "300")


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def process_key(agent: AgentKey) -> ResourceKey:
    return runtime_key(agent, "process")


def agent_document(agent: AgentKey = BOT, *, spec: dict[str, Any] | None = None, **runtime: Any) -> AgentDocument:
    """A document with the process driver, unless ``driver`` is given."""
    return AgentDocument.model_validate_json(
        Fields.of(
            {
                "apiVersion": "gitops-agent.dev/v1",
                "kind": "Agent",
                "metadata": {"name": agent.name, "tenant": agent.tenant},
                "spec": {**(spec or {}), "runtime": {"driver": "process", **runtime}},
            }
        ).raw
    )


def action(
    key: ResourceKey,
    verb: Verb,
    *,
    desired: Fields | None = None,
    seen: Observation | None = None,
    base: Base | None = None,
) -> Action:
    return Action(
        key=key,
        driver="process",
        verb=verb,
        drift_class=Class.CHANGE,
        reason="Test",
        message="",
        confidence=Confidence.HIGH,
        decision=Decision.REPAIR,
        base=base.fields if base else None,
        desired=desired,
        live=seen.fields if seen else None,
        handle=seen.handle if seen else (base.handle if base else None),
    )


def until(condition: Callable[[], Any], seconds: float = 15.0) -> Any:
    """Poll for a condition; fail loudly when it never holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    found = ProcessTable().one(pid)
    return found is not None and found.alive


class Fleet:
    """One instance with its driver and the bases that a journal would keep."""

    name = "process"

    def __init__(self, state: Path, environment: dict[str, str] | None = None, **options: Any) -> None:
        self.instance = f"test-{uuid.uuid4().hex[:12]}"
        self.state = state
        self.environment = (
            environment if environment is not None else {"PATH": os.environ["PATH"], "HOME": "/nowhere"}
        )
        self.options = options
        self.bases: dict[ResourceKey, Base] = {}
        self.driver = self.fresh()

    def fresh(self, *, state: Path | None = None, groups: Path | None = None) -> LocalDriver:
        """A driver as a restarted gitops-agent has it: it remembers nothing."""
        options = {"rotation": Rotation(), "watch_every": 0.1, **self.options}
        return self.build(
            Context(self.instance, str(state or self.state), RealClock()),
            Options(environment=self.environment, groups=groups, **options),
        )

    def build(self, context: Context, options: Options) -> LocalDriver:
        return LocalDriver("process", context, options)

    def restart(self, *, state: Path | None = None, keep_bases: bool = True) -> None:
        self.driver = self.fresh(state=state)
        if not keep_bases:
            self.bases.clear()

    def see(self, agent: AgentKey = BOT) -> Observation | None:
        seen = self.driver.observe(self.request(agent))
        return next((one for one in seen if one.key.agent == agent), None)

    def request(self, *agents: AgentKey) -> ObserveRequest:
        """What core asks a driver for some agents."""
        bases = {key: base for key, base in self.bases.items() if key.agent in agents}
        return ObserveRequest(frozenset(agents), bases)

    def look(self, agent: AgentKey = BOT) -> Observation:
        found = self.see(agent)
        assert found is not None
        return found

    def apply(self, fields: Fields | None, verb: Verb = Verb.CREATE, agent: AgentKey = BOT) -> Applied:
        key = runtime_key(agent, self.name)
        base, seen = self.bases.get(key), self.see(agent)
        step = action(key, verb, desired=fields, seen=seen, base=base)
        if verb is Verb.RESTART and base is not None and base.fields == fields and seen and seen.reason is None:
            step = replace(step, drift_class=Class.STUCK_PROGRESS)  # no other restart is planned without a cause
        done = self.driver.apply(step, "intent")
        if fields is not None:
            self.bases[key] = Base(key, self.name, fields, "c0ffee", 0.0, handle=done.handle)
        else:
            self.bases.pop(key, None)
        return done

    def fields(self, *command: str, agent: AgentKey = BOT, **runtime: Any) -> Fields:
        spec = runtime.pop("spec", None)
        document = agent_document(agent, spec=spec, command=list(command), driver=self.name, **runtime)
        return runtime_resources(self.name, Compilation(agent, document))[0].fields

    def run(self, *command: str, agent: AgentKey = BOT, **runtime: Any) -> Fields:
        """Declare and create an agent."""
        fields = self.fields(*command, agent=agent, **runtime)
        self.apply(fields, Verb.CREATE, agent)
        return fields

    def pids(self, agent: AgentKey = BOT) -> list[int]:
        found = self.see(agent)
        return [replica["pid"] for replica in found.live["replicas"]] if found else []

    def folder(self, agent: AgentKey = BOT) -> Path:
        return self.state / "agents" / agent.tenant / agent.name

    def marked(self, *, runners: bool = False) -> list[int]:
        """The processes of agents; with ``runners`` also what we put above them."""
        found = [proc for proc in ProcessTable().sweep().values() if proc.alive and proc.marks]
        ours = [proc for proc in found if proc.marks and proc.marks.instance == self.instance]
        return [proc.pid for proc in ours if runners or not (proc.marks and proc.marks.runner)]

    def close(self) -> None:
        self.driver.stop()
        deadline = time.monotonic() + 10
        while (left := self.marked(runners=True)) and time.monotonic() < deadline:
            for pid in left:
                kill(pid)
            self.driver.observe(ObserveRequest())
        assert not left, f"still running: {left}"


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path / "state")
    yield fleet
    fleet.close()


@pytest.fixture
def make_fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(**options: Any) -> Fleet:
        made.append(Fleet(tmp_path / f"state-{len(made)}", **options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()
