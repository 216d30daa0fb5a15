"""One-shot effects: how one ended, as the handle of its base keeps it.

What cannot be made idempotent (a hook) is done at most once. Whether it may be done at all is read from here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Result


@dataclass(frozen=True, slots=True)
class OneShot:
    """One effect of one generation of an agent.
    ``generation`` is the intent of the first try; a second one, asked for by an operator, keeps it, and with it
    the idempotency key. ``result`` None: an operator wants it done again. ``said`` is what it answered."""

    generation: str
    result: Result | None
    said: str = ""

    @property
    def spent(self) -> bool:
        """Whether it was tried and is not known to have succeeded, so that people have to decide."""
        return self.result in (Result.FAILED, Result.UNKNOWN)

    @property
    def handle(self) -> Fields:
        """As a base keeps it."""
        outcome = self.result.value if self.result else None
        return Fields.of({"generation": self.generation, "outcome": outcome, "said": self.said})

    @classmethod
    def read(cls, handle: Fields | None) -> "OneShot | None":
        """From the handle of a base; None when it was never tried."""
        value = handle.value if handle is not None else {}
        if "generation" not in value:
            return None
        outcome = value.get("outcome")
        return cls(str(value["generation"]), Result(outcome) if outcome else None, str(value.get("said") or ""))


def generation_of(handle: Fields | None, intent: str) -> str:
    """The generation that an effect belongs to: that of an earlier try, or this intent begins it."""
    earlier = OneShot.read(handle)
    return earlier.generation if earlier else intent


def due_again(bases: Iterable[Base], agent: AgentKey) -> list[Base]:
    """The records of an agent's one-shot effects that were left for people, once a person says: again."""
    return [
        replace(base, handle=replace(shot, result=None).handle)
        for base in bases
        if base.key.agent == agent and not base.idempotent
        if (shot := OneShot.read(base.handle)) is not None and shot.spent
    ]
