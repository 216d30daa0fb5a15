"""Which agent a person means: by ``tenant/name``, or by the name alone where only one tenant has it. Pure."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from gitops_agent.model.key import AgentKey


def named(text: str, agents: Iterable[AgentKey]) -> list[AgentKey]:
    """The agents that a text names, sorted."""
    return sorted(key for key in agents if text in (str(key), key.name))


def nearest(text: str, agents: Sequence[AgentKey]) -> list[AgentKey]:
    """The agents whose names are most like a text that names none; all of them when none is."""
    whole = get_close_matches(text, list(map(str, agents)), 5)
    bare = get_close_matches(text.rpartition("/")[2], {key.name for key in agents}, 5)
    return [key for key in agents if str(key) in whole or key.name in bare] or list(agents)


def listed(text: str, matches: Sequence[object], agents: Collection[AgentKey], limit: int) -> str:
    """The names to offer when a text names none or several: those it fits, else those most like it."""
    return ", ".join(str(each) for each in (matches or nearest(text, sorted(agents)))[:limit]) or "none yet"
