"""Observations to rows and back, and the fingerprint that says whether one is news."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from gitops_agent.journal.rows import Found, Row, evidence_of, evidence_values, key_of
from gitops_agent.model.observation import AgentInstance, Heartbeat, Observation, Owner


def fingerprint(observation: Observation) -> bytes:
    """Eight bytes that change when the observation says something else.

    Times are left out (when it was seen, when the evidence was taken), and so are heartbeats: an agent at work is
    not a new state, and a row per agent and pass would bury the ones that matter.
    """
    seen = observation
    words = [seen.driver, seen.owner, seen.state, seen.reason or "", seen.message, repr(seen.started_at)]
    words += [word for item in seen.evidence for word in (item.source, item.said)]
    content = b"-" if seen.fields is None else seen.fields.raw
    parts = (content, seen.handle.raw, _stable(seen.live), "\0".join(words).encode("utf-8", "surrogatepass"))
    return blake2b(b"\0".join(parts), digest_size=8).digest()


def _stable(live: Mapping[str, Any]) -> bytes:
    if not live:
        return b""
    try:
        return orjson.dumps(live, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return repr(sorted(live.items())).encode("utf-8", "surrogatepass")


def observation_row(observation: Observation, mark: bytes) -> Row:
    """An observation as a row."""
    beats = [_instance_row(each) for each in observation.instances]
    return {
        "agent": str(observation.key.agent),
        "key": str(observation.key),
        "driver": observation.driver,
        "owner": observation.owner.value,
        "fields": observation.fields,
        "state": observation.state,
        "observed_at": observation.observed_at,
        "reason": observation.reason,
        "message": observation.message,
        "live": observation.live,
        "handle": observation.handle,
        "evidence": evidence_values(observation.evidence),
        "started_at": observation.started_at,
        "heartbeats": beats,
        "fingerprint": mark,
    }


def observation_of(row: Found) -> Observation:
    """The observation in a row."""
    return Observation(
        key=key_of(row.key),
        driver=row.driver,
        owner=Owner(row.owner),
        fields=row.fields,
        state=row.state,
        observed_at=row.observed_at,
        reason=row.reason,
        message=row.message,
        live=row.live,
        handle=row.handle,
        evidence=evidence_of(row.evidence),
        instances=tuple(map(_instance, row.heartbeats)),
    )


def _instance_row(each: AgentInstance) -> list[object]:
    beat = each.heartbeat and [each.heartbeat.at, each.heartbeat.turn, list(each.heartbeat.pending)]
    return [each.id, each.started_at, each.ready, beat, each.address]


def _instance(row: list[Any]) -> AgentInstance:
    beat = row[3] and Heartbeat(row[3][0], row[3][1], tuple(row[3][2]))
    return AgentInstance(row[0], row[1], row[2], beat, row[4])
