"""Exits: whether an agent that a rollout released has exited since. Pure.

Being Ready in every pass proves nothing: an agent that dies and is started again may be Ready whenever we look. So
the run in which each released agent was first seen up is kept, and compared with the one that is there now.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import EMPTY, Base, Observation
from gitops_agent.model.passes import Executed
from gitops_agent.model.plan import Action, Class
from gitops_agent.model.rollout import Rollout, Run
from gitops_agent.plan.guards.verdicts import is_from_commit

Seen = Mapping[ResourceKey, Observation]
NO_RUN = Run(())

_OWN_FAULT = (Class.MISSING_EXTERNAL, Class.STUCK_PROGRESS)
"""The classes of drift for which an agent is started (again) because of what itself did: it exited, or hung."""


def run_of(agent: Agent, seen: Seen) -> Run | None:
    """The run of an agent as it was observed; None when nothing is known about its instances."""
    key = next((each.key for each in agent.resources if each.key.kind == Kind.RUNTIME), None)
    found = seen.get(key) if key is not None else None
    if found is None or agent.lifecycle is not Lifecycle.RUNNING:
        return None
    if found.fields is None:
        return NO_RUN
    up = [(each, each.started_at) for each in found.instances if each.started_at is not None and not each.behind]
    instances = tuple(sorted(f"{each.id}@{started}" for each, started in up if not each.uid))
    copies = {each.uid: started for each, started in up if each.uid}
    return Run(instances, _digest(found.handle), copies) if up else None


def same_run(known: Run, now: Run) -> bool:
    """Whether nothing that ran has exited. The handle decides too: a wall clock that jumped moves every start
    time, and is no exit. Of copies that the live system replaces by itself, only one that was started again where
    it was has exited: what scales in, or moves to another node, is gone without a fault of the program."""
    stayed = set(known.instances).issubset(now.instances) or (known.handle == now.handle != "")
    return stayed and all(now.copies.get(uid, began) == began for uid, began in known.copies.items())


def replaced(rollout: Rollout, agents: Mapping[AgentKey, Agent], seen: Seen) -> frozenset[AgentKey]:
    """The released agents of which something that ran has exited."""
    found = ((key, known, run_of(agents[key], seen)) for key, known in rollout.runs.items() if key in agents)
    return frozenset(key for key, known, now in found if now is not None and not same_run(known, now))


def runs_after(
    rollout: Rollout, agents: Mapping[AgentKey, Agent], seen: Seen, unfinished: Collection[AgentKey]
) -> dict[AgentKey, Run]:
    """The run of each released agent: the one it was first seen in, or a new one where that has ended.
    ``unfinished``: those for which something is still to be done, so that what runs is not what was released."""
    runs: dict[AgentKey, Run] = {}
    for key in rollout.moving:
        if key not in agents or key in unfinished:
            continue
        known, now = rollout.runs.get(key), run_of(agents[key], seen)
        if known is not None and (now is None or same_run(known, now)):
            # What took the place of another copy has to stay up as well.
            runs[key] = replace(known, copies={**now.copies, **known.copies}) if now is not None else known
        elif now is not None and (now.instances or now.copies):
            runs[key] = now
    return runs


def exits(
    rollout: Rollout, actions: Iterable[Action], bases: Mapping[ResourceKey, Base], explained: Collection[str]
) -> dict[AgentKey, str]:
    """The released agents that a plan finds gone, each with the reason; not those gone before."""
    moving = frozenset(rollout.moving)
    return {
        action.key.agent: f"{action.reason}: {action.message}"
        for action in actions
        if action.key.agent in moving
        and action.key.kind == Kind.RUNTIME
        and action.drift_class is Class.MISSING_EXTERNAL
        and not is_excused(action, explained)
        and (action.key.agent in rollout.runs or _is_applied_by(rollout, bases.get(action.key)))
    }


def excused(executed: Iterable[Executed], explained: Collection[str]) -> frozenset[AgentKey]:
    """The agents that were started anew for a reason which is not their own: a commit, a host that was restarted,
    what others did to them."""
    runtimes = (action for action, _ in executed if action.key.kind == Kind.RUNTIME)
    return frozenset(action.key.agent for action in runtimes if is_excused(action, explained))


def is_excused(action: Action, explained: Collection[str]) -> bool:
    """Whether an action on a runtime is no evidence against the program that runs there."""
    return action.reason in explained or is_from_commit(action) or action.drift_class not in _OWN_FAULT


def _is_applied_by(rollout: Rollout, base: Base | None) -> bool:
    return base is not None and base.commit == rollout.commit


def _digest(handle: Fields) -> str:
    return "" if handle == EMPTY else handle.digest
