"""Sentences for people: the message of an action, and the findings on what is not simply repaired."""

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import Kind
from gitops_agent.model.plan import Action, Decision, Verb
from gitops_agent.plan.classify import Classification
from gitops_agent.plan.compare import changed_names
from gitops_agent.plan.hooks import spent_finding
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.plan.three_way import ThreeWay

_WAY_OUT = {
    Decision.ALERT: "It is never touched. Remove it by hand, or rename the agent in Git",
    Decision.QUARANTINE: "It is left as it is. Declare it in Git again, or remove it by hand",
    Decision.ASK: "It is not repaired by itself. Approve it with gitops-agent approve {plan}, repair it by hand, "
    "or change its document",
}


def message_for(three_way: ThreeWay, found: Classification) -> str:
    """One sentence: the meaning of the reason, the message of the driver, and which fields are concerned."""
    reason = three_way.reason_of(found.reason)
    meaning = reason.text if reason is not None else f"{found.reason}."
    reported = three_way.live.message.rstrip(".") if three_way.live is not None else ""
    names = changed_names(three_way) if found.verb in (Verb.UPDATE, Verb.RESTART) else ()
    detail = f" ({reported})" if reported and found.drift_class.is_drift else ""
    return f"{meaning[:-1]}{detail}." + (f" Fields: {', '.join(names)}." if names else "")


def finding_for(action: Action, plan: str) -> Finding | None:
    """The finding on an action that is not simply done, if so; ``plan`` is the digest of the plan it is in."""
    if action.decision in (Decision.REPAIR, Decision.WAIT):
        return None
    if action.decision is Decision.IMPORT:
        return _imported(action)
    if action.key.kind == Kind.HOOK:
        return spent_finding(action, plan)
    way_out = _WAY_OUT[action.decision].format(plan=plan)
    if action.reason == ReasonCode.NOT_MARKED:
        way_out = (
            "It is never touched. Stop it by hand, or set spec.adopt: true to have it replaced by one of ours"
        )
    elif action.reason == ReasonCode.SOURCES_DISAGREE:
        way_out = "It is repaired as soon as most of them agree: find out which one is wrong, or restart it"
    return Finding(
        Severity.WARNING,
        action.reason,
        str(action.key),
        f"{action.verb} is not done by itself: {action.reason}, confidence {action.confidence}",
        f"{action.message.rstrip('.')}. {way_out} (gitops-agent explain {action.key.agent}).",
    )


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
    return Finding(
        Severity.INFO,
        ReasonCode.RETAINED,
        str(three_way.key),
        "left in place by deletionPolicy: Retain",
        "Its document has left Git and we no longer touch it. Remove it by hand, or bring the document back.",
    )
