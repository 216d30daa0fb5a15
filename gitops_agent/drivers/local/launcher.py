"""How a driver brings a program to life: the one thing in which drivers for local processes differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops_agent.drivers.local.process_tree import ProcessTree
from gitops_agent.model.key import AgentKey


@dataclass(frozen=True, slots=True)
class Program:
    """One replica to be started. ``environment`` holds secrets; ``log`` is a descriptor of its log."""

    agent: AgentKey
    replica: int
    command: tuple[str, ...]
    workdir: str
    environment: Mapping[str, str] = field(repr=False)
    log: int


class Launcher:
    """Starts programs as session leaders. All but ``launch`` may be left as it is."""

    def launch(self, program: Program) -> int:
        """Start the program with exactly this environment; its pid. OSError when the kernel refused."""
        raise NotImplementedError

    def may_run_agents(self) -> bool:
        """Whether something started by this driver may run: False saves a sweep where no record asks for one."""
        return True

    def unsupervised(self, tree: ProcessTree) -> Collection[int]:  # noqa: ARG002 - the default has no supervisor
        """The pids of replicas that run outside of what they were started in, and must be replaced.

        Called once per observation, before anything is assessed; ObserveError when it cannot be known.
        """
        return ()

    def release(self, agent: AgentKey, first: int) -> None:
        """Remove what is left of the ended replicas numbered ``first`` and above."""

    def shown(self, agent: AgentKey) -> Mapping[str, Any]:  # noqa: ARG002 - as above
        """More for ``Observation.live``."""
        return {}
