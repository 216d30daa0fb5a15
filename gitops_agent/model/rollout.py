"""Rollout: how far a commit has got through the fleet. The value that survives a restart."""

from dataclasses import dataclass

from gitops_agent.model.key import AgentKey


@dataclass(frozen=True, slots=True)
class Rollout:
    """The waves of one commit. Agents of ``waves[:released]`` follow the commit, the others their earlier spec.
    ``passed_at``: when the gate of the released waves was found open, in seconds of active time; the pause runs
    from there. ``failed``: why the gate failed; then nothing further is released. ``pauses`` (seconds of rest
    after each wave) and ``on_failure`` are those of the policies that held when it began."""

    commit: str
    tree: str
    waves: tuple[tuple[AgentKey, ...], ...]
    released: int = 0
    passed_at: float | None = None
    failed: str = ""
    pauses: tuple[float, ...] = ()
    on_failure: str = "Hold"

    @property
    def waiting(self) -> tuple[AgentKey, ...]:
        """The agents whose wave has not come."""
        return tuple(agent for wave in self.waves[self.released :] for agent in wave)

    @property
    def moving(self) -> tuple[AgentKey, ...]:
        """The agents that were released."""
        return tuple(agent for wave in self.waves[: self.released] for agent in wave)

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
