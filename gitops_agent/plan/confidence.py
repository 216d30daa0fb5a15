"""How sure we are that repairing drift is right: one table, read from the top, first match wins."""

from collections.abc import Callable
from dataclasses import dataclass

from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.plan import Confidence, Verb
from gitops_agent.model.status import Health

FRESH_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What confidence depends on, and nothing else.

    ``sources`` counts the independent ones that agree, the observation being one; 0: they contradict each other.
    ``authoritative``: the question is what exists, and the driver is the authority on it.
    """

    owner_clear: bool
    sources: int
    authoritative: bool
    fresh: bool
    destructive: bool
    repeated: bool  # repaired too often already


TABLE: tuple[tuple[str, Callable[[Signals], bool], Confidence], ...] = (
    ("the owner is not clear", lambda s: not s.owner_clear, Confidence.LOW),
    ("the sources disagree", lambda s: s.sources < 1 and not s.authoritative, Confidence.LOW),
    ("old evidence for something that cannot be undone", lambda s: not s.fresh and s.destructive, Confidence.LOW),
    ("old evidence", lambda s: not s.fresh, Confidence.MEDIUM),
    ("repaired too often already", lambda s: s.repeated, Confidence.MEDIUM),
    ("the authority on it says so", lambda s: s.authoritative, Confidence.HIGH),
    ("cannot be undone, and one source only", lambda s: s.destructive and s.sources < 2, Confidence.MEDIUM),
)


def confidence_of(signals: Signals) -> Confidence:
    """The confidence for some signals: high when no row of the table speaks against it."""
    return next((confidence for _, matches, confidence in TABLE if matches(signals)), Confidence.HIGH)


def read_signals(
    live: Observation | None,
    verb: Verb,
    health: Health | None = None,
    *,
    adopted: bool,
    repeated: bool,
    now: float,
) -> Signals:
    """The signals in an observation; ``adopted`` says that Git declares an unmarked object to be ours.

    ``health`` is what the cross-check says, where the repair is of an agent that is alive: then the sources it
    heard count, and the driver is one of them. What was not returned by a complete observation does not exist:
    that is clear and fresh.
    """
    destructive = verb is Verb.DELETE
    if live is None:
        return Signals(True, 1, False, True, destructive, repeated)
    sources = {evidence.source for evidence in live.evidence}
    return Signals(
        owner_clear=live.fields is None or live.owner is Owner.OURS or (adopted and live.owner is Owner.NONE),
        sources=max(1, len(sources)) if health is None else agreeing(health),
        authoritative=health is None and live.authoritative,
        fresh=now - live.observed_at <= FRESH_SECONDS,
        destructive=destructive,
        repeated=repeated,
    )


def agreeing(health: Health) -> int:
    """How many sources carry a cross-checked verdict; none when as many or more speak against it."""
    return health.agree if health.agree > health.oppose else 0
