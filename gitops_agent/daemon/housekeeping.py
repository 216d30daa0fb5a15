"""Keeps the state directory from growing: old history leaves the journal, and folders of ended agents go.

``run`` asks every few minutes and both ``run`` and ``once`` at their end; what is due is done about once an hour,
in bounded steps, whichever process gets to it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from gitops_agent.drivers.api import ObserveRequest
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import GitopsAgentError
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation
from gitops_agent.ports import Clock
from gitops_agent.support.bounded_calls import BoundedCalls, NoAnswer

ASKED_EVERY_SECONDS = 600.0
PERIOD_SECONDS = 3600.0
"""How often it is done at most."""

MAX_FOLDERS = 100
"""How many folders go at once."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """What leaves the state directory of one instance, and when. Seconds after which history (``retention``) and
    the folder of an ended agent (``folder_retention``; 0: never) are no longer wanted. ``leading``: whether this
    process may act at all."""

    journal: SqlJournal
    drivers: Connections
    calls: BoundedCalls[Sequence[Observation]]
    dirs: AgentDir
    clock: Clock
    retention: float
    folder_retention: float
    leading: Callable[[], bool] = lambda: True

    def run(self) -> None:
        """Do what is due. Never raises: a journal that cannot be written is reported by the passes."""
        if not self.leading():
            return
        try:
            # A time ahead of us was written under another clock.
            if 0 <= (now := self.clock.now()) - self.journal.pruned_at() < PERIOD_SECONDS:
                return
            dropped = self.journal.prune(now - self.retention, now)
            folders = self._remove_folders(now - self.folder_retention) if self.folder_retention else 0
        except (GitopsAgentError, OSError, NoAnswer) as problem:
            log.warning("old history could not be dropped", error=str(problem))
            return
        if dropped or folders:
            log.info("dropped what is old", rows=dropped, folders=folders)

    def _remove_folders(self, before: float) -> int:
        """Remove the folders of agents of which nothing is left but what they wrote; how many."""
        known = self._on_record()
        ended = [agent for agent in self.dirs.agents() if agent not in known and self.dirs.used_at(agent) < before]
        if not ended:
            return 0
        # Asked only now: our record may be lost, and the agent of a folder still run.
        running = frozenset(self._live())
        gone = [agent for agent in ended if agent not in running][:MAX_FOLDERS]
        for agent in gone:
            self.dirs.remove(agent)
        return len(gone)

    def _on_record(self) -> frozenset[AgentKey]:
        state = self.journal.state()
        intents = (intent.action.key.agent for intent in state.reconcile.open_intents.values())
        bases = (key.agent for key in state.reconcile.bases)
        return frozenset((*bases, *intents, *state.status.agents, *state.rollout.released))

    def _live(self) -> Iterable[AgentKey]:
        """The agents of which something runs; ObserveError or NoAnswer when that cannot be known."""
        found = ((name, self.drivers.plugins.get(name)) for name in self.drivers.asked_for(()))
        names = [name for name, plugin in found if plugin is not None and plugin.is_runtime]
        asked = {name: partial(self._observe, name) for name in names}
        for answer in self.calls.ask(asked, self.drivers.observe_timeout).values():
            yield from (seen.key.agent for seen in answer.result())

    def _observe(self, name: str) -> Sequence[Observation]:
        return self.drivers[name].observe(ObserveRequest())
