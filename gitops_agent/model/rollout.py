"""Rollout: how far a commit has got through the fleet. The value that survives a restart."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey


@dataclass(frozen=True, slots=True)
class Run:
    """Which instances of an agent ran when it was looked at: each as its id and its start, and the digest of the
    driver's handle on them all. Another run means that some of them exited. ``copies``: the starts of those that
    the live system may replace by itself, by their uids."""

    instances: tuple[str, ...]
    handle: str = ""
    copies: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """The waves of one commit. Agents of ``waves[:released]`` follow the commit, the others their earlier spec.
    ``passed_at``: since when everything released has been Ready without an exit, in seconds of active time; the
    rest runs from there. ``failed``: why the gate failed; then nothing further is released. ``pauses`` (seconds of
    rest after each wave, its bake included), ``recovery`` and ``on_failure`` are those of the policies that held
    when it began. ``left``: agents that a freeze or a pause covered when their wave came: what the commit
    asks of them is reported, and done in waves of their own once that is over. ``runs``: the run in which each
    released agent was first seen up. ``earlier_health``: what was asked of the health of agents before, where the
    commit asks less. ``unproven``: its last wave has still to bake before the commit is in."""

    commit: str
    tree: str
    waves: tuple[tuple[AgentKey, ...], ...]
    released: int = 0
    passed_at: float | None = None
    failed: str = ""
    pauses: tuple[float, ...] = ()
    on_failure: str = "Hold"
    recovery: float = 60.0
    runs: Mapping[AgentKey, Run] = field(default_factory=dict)
    earlier_health: Mapping[AgentKey, Fields] = field(default_factory=dict)
    left: tuple[AgentKey, ...] = ()
    unproven: bool = False

    @property
    def waiting(self) -> tuple[AgentKey, ...]:
        """The agents whose wave has not come."""
        return tuple(agent for wave in self.waves[self.released :] for agent in wave)

    @property
    def behind(self) -> tuple[AgentKey, ...]:
        """The agents that keep their earlier spec: those whose wave has not come, and those left for later."""
        return tuple(dict.fromkeys((*self.waiting, *self.left)))

    @property
    def moving(self) -> tuple[AgentKey, ...]:
        """The agents that were released."""
        return tuple(agent for wave in self.waves[: self.released] for agent in wave)

    @property
    def on_trial(self) -> tuple[AgentKey, ...]:
        """The agents of the newest wave, while another one, or the verdict, depends on how they do."""
        return self.waves[self.released - 1] if self.released and self.is_on_trial else ()

    @property
    def is_on_trial(self) -> bool:
        """Whether something is still to be proven by what was released."""
        return self.unproven or not self.done

    @property
    def done(self) -> bool:
        """Whether every wave was released."""
        return self.released >= len(self.waves)


@dataclass(frozen=True, slots=True)
class FailedTree:
    """A tree that failed its gate, and so is not tried again by itself."""

    tree: str
    commit: str
    why: str
    at: float
