"""Assemble an action: a classification, with the three legs it was decided on."""

from collections.abc import Mapping
from typing import Any

import jsonpatch
import jsonpointer

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY, Evidence
from gitops_agent.model.plan import Action, Decision, Verb
from gitops_agent.model.status import Health
from gitops_agent.plan.classify import Classification
from gitops_agent.plan.compare import before
from gitops_agent.plan.describe import message_for
from gitops_agent.plan.three_way import ThreeWay

Patch = tuple[Mapping[str, Any], ...]
"""The difference of a resource, from what is to what is desired (RFC 6902)."""


def make_action(three_way: ThreeWay, found: Classification, health: Health | None = None) -> Action:
    """The action of a classification; ``health`` is what asked for it or casts doubt on it, if health did."""
    leg = three_way.desired or three_way.base or three_way.live
    assert leg is not None, "a resource without any leg cannot differ"
    owner, applied = three_way.agent or three_way.base, three_way.desired or three_way.base
    of_health = health is not None and (health.restart or health.disputes)
    imported = found.decision is Decision.IMPORT
    return Action(
        key=three_way.key,
        driver=leg.driver,
        verb=found.verb,
        drift_class=found.drift_class,
        reason=found.reason,
        message=health.message if health is not None and of_health else message_for(three_way, found),
        confidence=found.confidence,
        decision=found.decision,
        base=three_way.base.fields if three_way.base is not None else None,
        desired=three_way.target_fields,
        live=three_way.live_fields,
        patch=import_patch(three_way) if imported else make_patch(three_way, found.verb),
        handle=_handle(three_way),
        deletion_policy=owner.deletion_policy if owner is not None else DeletionPolicy.DELETE,
        idempotent=applied is None or applied.idempotent,
        evidence=_evidence(three_way, health),
    )


def _handle(three_way: ThreeWay) -> Fields | None:
    """The driver's handle on the object: the freshest one there is."""
    if three_way.live is not None and three_way.live.handle != EMPTY:
        return three_way.live.handle
    return three_way.base.handle if three_way.base is not None else None


def _evidence(three_way: ThreeWay, health: Health | None) -> tuple[Evidence, ...]:
    """Which source reported what: the driver first, then those that were asked about health."""
    if three_way.live is None:
        return ()
    return (*three_way.live.evidence, *health.evidence) if health is not None else three_way.live.evidence


def make_patch(three_way: ThreeWay, verb: Verb) -> Patch:
    """The patch an action makes to the live object; exact, however long (rendering caps what it shows).
    Nothing is masked: fields hold references to secrets, never secrets. Verbs for our record have no patch."""
    if not verb.touches_live:
        return ()
    wanted = three_way.target_fields
    target = wanted.value if wanted is not None and verb is not Verb.DELETE else {}
    if not three_way.present:
        # From nothing there is nothing to search for, and a new fleet brings thousands of these.
        return tuple(
            {"op": "add", "path": f"/{jsonpointer.escape(name)}", "value": target[name]} for name in target
        )
    return tuple(jsonpatch.make_patch(before(three_way), target).patch)


def import_patch(three_way: ThreeWay) -> Patch:
    """The other way round: from what Git says to what live decided, each step with what was there before."""
    assert three_way.desired is not None
    assert three_way.target_fields is not None
    git = three_way.desired.fields.value
    steps = jsonpatch.make_patch(git, three_way.target_fields.value).patch
    return tuple(
        step if step["op"] == "add" else {**step, "before": jsonpointer.resolve_pointer(git, step["path"])}
        for step in steps
    )
