"""Fields that the live system decides (``spec.authority``): which they are, and how they get into a desired
value. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from gitops_agent.model.agent import Agent

FieldPath = tuple[str, ...]


def live_paths(agent: Agent | None, kind: str) -> tuple[FieldPath, ...]:
    """The fields of a kind of resource that the live system decides (``authority: {runtime.replicas: live}``)."""
    if agent is None or not agent.authority:
        return ()
    prefix = kind + "."
    return tuple(
        tuple(path.removeprefix(prefix).split("."))
        for path, authority in agent.authority
        if authority == "live" and path.startswith(prefix)
    )


def with_live_values(value: dict[str, Any], live: Mapping[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    """The value, changed in place: at some paths it has what live shows there."""
    for *parents, name in paths:
        source: Any = live
        for step in parents:
            source = source.get(step) if isinstance(source, dict) else None
        if not isinstance(source, dict) or name not in source:
            continue
        target: Any = value
        for step in parents:
            target = target.setdefault(step, {}) if isinstance(target, dict) else None
        if isinstance(target, dict):
            target[name] = source[name]
    return value
