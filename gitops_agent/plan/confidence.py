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
    ``authoritative``: the question is what exists, and the driver is the authority on it."""

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
    ``health``: the cross-check of a live agent; then the sources it asked count, the driver among them."""
    destructive = verb is Verb.DELETE
    if live is None:  # what a complete observation does not return does not exist: that is clear and fresh
        return Signals(True, 1, False, True, destructive, repeated)
    sources = len({evidence.source for evidence in live.evidence}) or 1
    if health is not None:
        sources = health.agree if health.agree > health.oppose else 0
    return Signals(
        owner_clear=live.fields is None or live.owner is Owner.OURS or (adopted and live.owner is Owner.NONE),
        sources=sources,
        authoritative=health is None and live.authoritative,
        fresh=now - live.observed_at <= FRESH_SECONDS,
        destructive=destructive,
        repeated=repeated,
    )
