"""Assemble an action: a ruling, with the legs it was decided on."""

from __future__ import annotations

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY, Evidence
from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.status import Health
from gitops_agent.plan.classify import Ruling
from gitops_agent.plan.describe import message_for
from gitops_agent.plan.legs import Legs
from gitops_agent.plan.patch import import_patch, make_patch


def make_action(legs: Legs, ruling: Ruling, health: Health | None = None) -> Action:
    """The action of a ruling; ``health`` is what asked for it or casts doubt on it, if health did."""
    return Action(
        key=legs.key,
        driver=_driver(legs),
        verb=ruling.verb,
        cls=ruling.cls,
        reason=ruling.reason,
        message=health.message if health is not None and _tells(health) else message_for(legs, ruling),
        confidence=ruling.confidence,
        decision=ruling.decision,
        base=legs.base.fields if legs.base is not None else None,
        desired=legs.intended,
        live=legs.lived,
        patch=import_patch(legs) if ruling.decision is Decision.IMPORT else make_patch(legs, ruling.verb),
        facts=_facts(legs),
        deletion=_deletion(legs),
        idempotent=_idempotent(legs),
        evidence=_evidence(legs, health),
    )


def _driver(legs: Legs) -> str:
    leg = legs.desired or legs.base or legs.live
    assert leg is not None, "a resource without any leg cannot differ"
    return leg.driver


def _facts(legs: Legs) -> Fields | None:
    """The driver's handle on the object: the freshest one there is."""
    if legs.live is not None and legs.live.facts != EMPTY:
        return legs.live.facts
    return legs.base.facts if legs.base is not None else None


def _deletion(legs: Legs) -> DeletionPolicy:
    terms = legs.agent or legs.base
    return terms.deletion if terms is not None else DeletionPolicy.DELETE


def _idempotent(legs: Legs) -> bool:
    terms = legs.desired or legs.base
    return terms is None or terms.idempotent


def _evidence(legs: Legs, health: Health | None) -> tuple[Evidence, ...]:
    """Which source said what: the driver first, then those that were heard on health."""
    if legs.live is None:
        return ()
    return (*legs.live.evidence, *health.evidence) if health is not None else legs.live.evidence


def _tells(health: Health) -> bool:
    """Whether health is the reason of what is done, or of what is not."""
    return health.restart or bool(health.disputes)
