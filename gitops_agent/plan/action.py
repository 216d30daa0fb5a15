"""Assemble an action: a classification, with the three legs it was decided on; and the sentences for people: the
message of an action, and the findings on what is not simply repaired."""

from collections.abc import Mapping
from typing import Any

import jsonpatch
import jsonpointer

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import Kind
from gitops_agent.model.observation import EMPTY
from gitops_agent.model.plan import Action, Decision, Verb
from gitops_agent.model.status import Health
from gitops_agent.plan.classify import Classification
from gitops_agent.plan.compare import before, changed_names
from gitops_agent.plan.hooks import spent_finding
from gitops_agent.plan.reasons import ReasonCode, meaning_of
from gitops_agent.plan.three_way import ThreeWay

Patch = tuple[Mapping[str, Any], ...]
"""The difference of a resource, from what is to what is desired (RFC 6902)."""

_WAY_OUT = {
    Decision.ALERT: "It is never touched. Remove it by hand, or rename the agent in Git",
    Decision.QUARANTINE: "It is left as it is. If this instance also runs with another state directory, it may "
    "belong to that one. If not, declare it in Git again, remove it by hand, or approve its end: "
    "gitops-agent approve {plan} (what is younger than orphans.minAge is ended when it is old enough)",
    Decision.ASK: "It is not repaired by itself. Approve it with gitops-agent approve {plan}, repair it by hand, "
    "or change its document",
}


def make_action(
    three_way: ThreeWay, found: Classification, health: Health | None = None, unwell: tuple[str, ...] = ()
) -> Action:
    """The action of a classification; ``health`` is what asked for it or casts doubt on it, if health did.
    ``unwell``: the copies of the agent that are not well."""
    base, live = three_way.base, three_way.live
    leg = three_way.desired or base or live
    assert leg is not None, "a resource without any leg cannot differ"
    owner, applied = three_way.agent or base, three_way.desired or base
    # The driver's handle on the object: the freshest one there is.
    handle = base.handle if base is not None else None
    if live is not None and live.handle != EMPTY:
        handle = live.handle
    evidence = live.evidence if live is not None else ()
    if live is not None and health is not None:  # the driver first, then those that were asked about health
        evidence += health.evidence
    of_health = health is not None and (health.restart or health.disputes)
    imported = found.decision is Decision.IMPORT
    return Action(
        key=three_way.key,
        driver=leg.driver,
        verb=found.verb,
        drift_class=found.drift_class,
        reason=found.reason,
        message=health.message if health is not None and of_health else _message(three_way, found),
        confidence=found.confidence,
        decision=found.decision,
        base=base.fields if base is not None else None,
        desired=three_way.target_fields,
        live=three_way.live_fields,
        patch=_import_patch(three_way) if imported else make_patch(three_way, found.verb),
        handle=handle,
        deletion_policy=owner.deletion_policy if owner is not None else DeletionPolicy.DELETE,
        idempotent=applied is None or applied.idempotent,
        evidence=evidence,
        instances=unwell if three_way.key.kind == Kind.RUNTIME else (),
    )


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


def _import_patch(three_way: ThreeWay) -> Patch:
    """The other way round: from what Git says to what live decided, each step with what was there before."""
    assert three_way.desired is not None
    assert three_way.target_fields is not None
    git = three_way.desired.fields.value
    steps = jsonpatch.make_patch(git, three_way.target_fields.value).patch
    return tuple(
        step if step["op"] == "add" else {**step, "before": jsonpointer.resolve_pointer(git, step["path"])}
        for step in steps
    )


def _message(three_way: ThreeWay, found: Classification) -> str:
    """One sentence: the meaning of the reason, the message of the driver, and which fields are concerned."""
    reason = three_way.reason_of(found.reason)
    meaning = reason.text if reason is not None else f"{found.reason}."
    reported = three_way.live.message.rstrip(".") if three_way.live is not None else ""
    names = changed_names(three_way) if found.verb in (Verb.UPDATE, Verb.RESTART) else ()
    detail = f" ({reported})" if reported and found.drift_class.is_drift else ""
    return f"{meaning[:-1]}{detail}." + (f" Fields: {', '.join(names)}." if names else "")


def finding_for(action: Action, plan: str, catalog: Catalog) -> Finding | None:
    """The finding on an action that is not simply done, if so; ``plan`` is the digest of the plan it is in."""
    if action.decision in (Decision.REPAIR, Decision.WAIT):
        return None
    if action.decision is Decision.IMPORT:
        return _imported(action)
    if action.key.kind == Kind.HOOK:
        return spent_finding(action, plan)
    way_out = _WAY_OUT[action.decision].format(plan=plan)
    meaning = meaning_of(catalog, action.driver, action.reason)
    if meaning is not None and meaning.way_out:
        way_out = meaning.way_out
    elif action.decision is Decision.QUARANTINE and action.reason != ReasonCode.ORPHAN:
        way_out = "It is ended when it is older than orphans.minAge. Raise replicas in Git to keep it"
    summary = f"{action.verb} is not done by itself: {action.reason}, confidence {action.confidence}"
    detail = f"{action.message.rstrip('.')}. {way_out} (gitops-agent explain {action.key.agent})."
    return Finding(Severity.WARNING, action.reason, str(action.key), summary, detail)


def _imported(action: Action) -> Finding:
    fields = ", ".join(str(step["path"])[1:].replace("/", ".") for step in action.patch)
    return Finding(
        Severity.INFO,
        action.reason,
        str(action.key),
        f"live decides {fields}, and Git says something else",
        f"{action.message} It is left as it is, and a branch that brings Git in line is proposed for review "
        f"(gitops-agent drift {action.key.agent} shows the values).",
    )


def retained(three_way: ThreeWay) -> Finding:
    """The reminder that an object lives on without us."""
    summary = "left in place by deletionPolicy: Retain"
    detail = "Its document has left Git and we no longer touch it. Remove it by hand, or bring the document back."
    return Finding(Severity.INFO, ReasonCode.RETAINED, str(three_way.key), summary, detail)
