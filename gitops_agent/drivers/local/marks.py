"""Ownership marks: what we put into the environment of an agent and of its runner, and how we read it back."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from gitops_agent.drivers.local.runner import PASSED, RUNNER
from gitops_agent.model.key import AgentKey

OWNER = "MANAGED_AGENT_OWNER"
REPLICA = "MANAGED_AGENT_REPLICA"
SPEC = "MANAGED_AGENT_SPEC"
CONFIG = "MANAGED_AGENT_CONFIG"
DRIVER = "MANAGED_AGENT_DRIVER"
OURS = "MANAGED_AGENT_"

RUNNER_VERSION = "2"  # 2: it touches the folder of its agent when that is suspended or resumed
UNNAMED_DRIVER = "process"  # what was started before drivers had names carries no mark of one, and never will

_OWNER = OWNER.encode() + b"="
# Any program may write an environment, and these names become paths: only the schema's grammar is a mark.
_NAME = r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)"
_GRAMMAR = re.compile(rf"{_NAME}/{_NAME}/{_NAME}\0([0-9]{{1,4}})\0([0-9a-f]{{1,64}})\0([a-z0-9-]{{1,63}})")


class Marks(NamedTuple):
    """The replica that a process belongs to, the driver that started it, and whether it is its runner."""

    instance: str
    agent: AgentKey
    replica: int
    spec: str
    driver: str = UNNAMED_DRIVER
    runner: bool = False

    @property
    def of_agent(self) -> "Marks":
        """The marks of what a runner with these marks runs."""
        return Marks(*self[:-1])


def owner(instance: str, agent: AgentKey) -> str:
    """The owner mark of an agent."""
    return f"{instance}/{agent.tenant}/{agent.name}"


def made(instance: str, agent: AgentKey, replica: int, spec: str, driver: str) -> dict[str, str]:
    """The variables by which a process is found again."""
    marks = {OWNER: owner(instance, agent), REPLICA: str(replica), SPEC: spec}
    return marks if driver == UNNAMED_DRIVER else {**marks, DRIVER: driver}


def read_marks(environ: bytes) -> Marks | None:
    """The marks in an environment block; None when there are none, or none that we could have written."""
    if not environ.startswith(_OWNER) and b"\0" + _OWNER not in environ:
        return None
    found = {DRIVER: UNNAMED_DRIVER, **variables(environ)}
    marks = _GRAMMAR.fullmatch("\0".join(found.get(name, "") for name in (OWNER, REPLICA, SPEC, DRIVER)))
    if marks is None:
        return None
    instance, tenant, name, replica, spec, driver = marks.groups()
    return Marks(instance, AgentKey(tenant, name), int(replica), spec, driver, RUNNER in found)


def for_runner(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a runner that starts an agent with this one: the rest but marks is disguised."""
    disguised = {name if name.startswith(OURS) else PASSED + name: value for name, value in environment.items()}
    return {**disguised, RUNNER: RUNNER_VERSION}


def as_agent(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of an agent, from its own or from that of its runner."""
    return {name.removeprefix(PASSED): value for name, value in environment.items()}


def variables(environ: bytes) -> dict[str, str]:
    """An environment block as a mapping; of a name given twice the first counts, as for ``getenv``."""
    found: dict[str, str] = {}
    for line in environ.split(b"\0"):
        name, equals, value = line.partition(b"=")
        if equals:
            found.setdefault(name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
    return found
