"""What a document asks of an agent's health, as one field of its runtime's resource.

It is part of the runtime's record, so that a change of it goes through the waves like any other; it is no part of
what a restart depends on. A live system that probes by itself takes it from there; else core does.
"""

from collections.abc import Mapping
from typing import Any

from gitops_agent.model.document import AgentDocument, HeartbeatSpec, Runtime
from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.quantity import seconds

FIELD = "health"
STOPPED = "stopped"
"""The field that a stopped resource carries in its base: without it a base could not tell whether the agent was
last applied running or stopped, and starting it again by commit would look like a process that died."""

ON_SECRET_CHANGE = "onSecretChange"  # noqa: S105 - the name of a field
"""The field of a runtime that says what follows when a secret was rotated: Restart, or only a report."""

_MIN_UPTIME: str = Runtime.model_fields["min_uptime"].default
DEFAULTS: Mapping[str, Any] = {"minUptime": _MIN_UPTIME, "probes": {}, "heartbeat": None}


def health_fields(document: AgentDocument) -> dict[str, JSON]:
    """The field ``health`` of a runtime's resource; nothing when probes, heartbeat and minUptime are defaults."""
    spec = document.spec
    probes = spec.probes
    asks = probes.readiness or probes.liveness or spec.heartbeat
    if asks is None and spec.runtime.min_uptime == _MIN_UPTIME:
        return {}
    asked = {
        "probes": probes.model_dump(by_alias=True),
        "heartbeat": _heartbeat(spec.heartbeat) if spec.heartbeat else None,
        "minUptime": spec.runtime.min_uptime,
    }
    return {FIELD: asked}


def _heartbeat(spec: HeartbeatSpec) -> dict[str, JSON]:
    # What was added later is there only where a document says so: else all records would be behind by it.
    asked: dict[str, JSON] = spec.model_dump(by_alias=True)
    kept = {"staleAfter", "onStale"} | spec.model_dump(by_alias=True, exclude_defaults=True).keys()
    return {name: value for name, value in asked.items() if name in kept}


def read_health(fields: Fields) -> Mapping[str, Any]:
    """What the fields of a runtime ask of its health; the defaults when they ask nothing."""
    # Most ask nothing, and a quiet pass looks at all of them: the bytes tell without decoding.
    if b'"health":' not in fields.raw:
        return DEFAULTS
    asked: Mapping[str, Any] | None = fields.value.get(FIELD)
    return asked or DEFAULTS


# -- a commit that asks less of the health of an agent is judged by what was asked before, too

EARLIER = "earlier "
"""How the name of a probe begins that is asked only because it was there before."""

_LOOSER_WHEN_LONGER = ("period", "timeout")


def asked_before(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an earlier spec asks of health and a later one does not, or less strictly; empty when there is nothing.
    A probe that asks something else is no weaker one: it has to pass by itself."""
    found: dict[str, Any] = {}
    probes, later = old.get("probes") or {}, new.get("probes") or {}
    if weaker := {name: spec for name, spec in probes.items() if spec and _is_weaker(later.get(name), spec)}:
        found["probes"] = weaker
    if seconds(new.get("minUptime", _MIN_UPTIME)) < seconds(old.get("minUptime", _MIN_UPTIME)):
        found["minUptime"] = old["minUptime"]
    was, now = old.get("heartbeat"), new.get("heartbeat")
    if was and (not now or seconds(now["staleAfter"]) > seconds(was["staleAfter"])):
        found["heartbeat"] = was
    return found


def with_asked_before(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """A spec with what was asked before: it keeps an agent from being Ready, and restarts none."""
    probes = {f"{EARLIER}{name}": probe for name, probe in before.get("probes", {}).items()}
    merged = {**spec, **before, "probes": {**(spec.get("probes") or {}), **probes}}
    if "heartbeat" in before:
        merged["heartbeat"] = {**before["heartbeat"], "onStale": "Report"}
    return merged


def _is_weaker(new: Mapping[str, Any] | None, old: Mapping[str, Any]) -> bool:
    if not new:
        return True
    if any(new.get(way) != old.get(way) for way in ("http", "exec")):
        return False
    return new["failureThreshold"] > old["failureThreshold"] or any(
        seconds(new[name]) > seconds(old[name]) for name in _LOOSER_WHEN_LONGER
    )
