"""Assemble an action: a ruling, with the legs it was decided on."""

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY, Evidence
from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.status import Health
from gitops_agent.plan.classify import Classification
from gitops_agent.plan.describe import message_for
from gitops_agent.plan.patch import import_patch, make_patch
from gitops_agent.plan.three_way import ThreeWay


def make_action(three_way: ThreeWay, ruling: Classification, health: Health | None = None) -> Action:
    """The action of a ruling; ``health`` is what asked for it or casts doubt on it, if health did."""
    return Action(
        key=three_way.key,
        driver=_driver(three_way),
        verb=ruling.verb,
        drift_class=ruling.drift_class,
        reason=ruling.reason,
        message=health.message if health is not None and _tells(health) else message_for(three_way, ruling),
        confidence=ruling.confidence,
        decision=ruling.decision,
        base=three_way.base.fields if three_way.base is not None else None,
        desired=three_way.target_fields,
        live=three_way.live_fields,
        patch=import_patch(three_way)
        if ruling.decision is Decision.IMPORT
        else make_patch(three_way, ruling.verb),
        handle=_handle(three_way),
        deletion_policy=_deletion(three_way),
        idempotent=_idempotent(three_way),
        evidence=_evidence(three_way, health),
    )


def _driver(three_way: ThreeWay) -> str:
    leg = three_way.desired or three_way.base or three_way.live
    assert leg is not None, "a resource without any leg cannot differ"
    return leg.driver


def _handle(three_way: ThreeWay) -> Fields | None:
    """The driver's handle on the object: the freshest one there is."""
    if three_way.live is not None and three_way.live.handle != EMPTY:
        return three_way.live.handle
    return three_way.base.handle if three_way.base is not None else None


def _deletion(three_way: ThreeWay) -> DeletionPolicy:
    terms = three_way.agent or three_way.base
    return terms.deletion_policy if terms is not None else DeletionPolicy.DELETE


def _idempotent(three_way: ThreeWay) -> bool:
    terms = three_way.desired or three_way.base
    return terms is None or terms.idempotent


def _evidence(three_way: ThreeWay, health: Health | None) -> tuple[Evidence, ...]:
    """Which source said what: the driver first, then those that were heard on health."""
    if three_way.live is None:
        return ()
    return (*three_way.live.evidence, *health.evidence) if health is not None else three_way.live.evidence


def _tells(health: Health) -> bool:
    """Whether health is the reason of what is done, or of what is not."""
    return health.restart or bool(health.disputes)
