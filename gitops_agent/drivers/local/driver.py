"""A driver for local processes: what observes and applies, with its capabilities."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gitops_agent.drivers.api import AS_IT_RUNS, AgentKey, ApplyError, Context, ExecResult, LogLine, RunAs
from gitops_agent.drivers.local.apply import ProcessApplier
from gitops_agent.drivers.local.context import Options, ProcessContext
from gitops_agent.drivers.local.exec import RunningCommands, run
from gitops_agent.drivers.local.log_files import read_logs
from gitops_agent.drivers.local.marks import as_agent, variables
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.drivers.local.start import Launcher
from gitops_agent.drivers.local.watch import ProcessWatcher


class LocalDriver(ProcessApplier):
    """A driver of ``drivers.api`` with all capabilities but leases, for which the host's lock files are right."""

    def __init__(
        self, name: str, context: Context, options: Options | None = None, launcher: type[Launcher] = Launcher
    ) -> None:
        shared = ProcessContext(name, context, options or Options())
        super().__init__(shared, launcher(shared))
        self.watcher = ProcessWatcher(shared, self)
        self.start, self.stop = self.watcher.start, self.watcher.stop
        self._commands = RunningCommands()
        self.close = self._commands.end_all

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run a command in the agent's environment; how it ended."""
        watched = self._registry.get(agent)
        if how.runtime is not None:
            desired = Desired.of_runtime(how.runtime)
        elif watched is not None:
            desired = watched.desired
        else:
            return ExecResult(False, f"{agent} has no process here to run it as", started=False)
        own = self._context.environment
        try:
            workdir = own.workdir(agent, desired)
            environment = {**own.build(agent, desired, self._number(agent, how.instance)), **how.env}
        except ApplyError as problem:
            return ExecResult(False, problem.message, started=False)
        done = run(command, workdir, environment, timeout, own.mask(desired, environment), self._commands)
        return replace(done, message=self._context.redactor(done.message))

    def _number(self, agent: AgentKey, instance: str) -> int:
        """The number of the replica with this pid; the first where none is named."""
        return next((known.number for known in self._registry.replicas(agent) if str(known.pid) == instance), 0)

    def knows_secrets(self, agent: AgentKey) -> bool:
        """Learn the secrets of an agent under watch; whether all of them could be resolved."""
        watched, own = self._registry.get(agent), self._context.environment
        if watched is None:
            return True  # nothing of it is on record, so it was given none
        running: dict[str, str] = {}
        for replica in watched.replicas:
            given = self._context.table.environ(replica.runner or replica.pid)
            running |= as_agent(variables(given or b""))
        return own.learn(agent, watched.desired, running)

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The log files of an agent, also of one that is gone, without the secrets that are known."""
        found = read_logs(Path(self._context.dirs.log(agent, 0)).parent, lines, follow=follow)
        return (replace(line, text=self._context.redactor(line.text)) for line in found)
