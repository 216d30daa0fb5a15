"""Reason codes: why an action exists, or why it is held. Stable, because people and dashboards match on them.

``docs/reasons.md`` is ``markdown()`` of this module. What a code of a driver means comes from its plugin.
"""

from enum import StrEnum

from gitops_agent.model.catalog import Catalog, Reason, Repair
from gitops_agent.model.plan import Class, Decision


class ReasonCode(StrEnum):
    """Why an action exists, as far as core knows. Drivers bring more of their own (``Plugin.reasons``)."""

    AGENT_ADDED = "AgentAdded"
    SPEC_CHANGED = "SpecChanged"
    AGENT_REMOVED = "AgentRemoved"
    AGENT_RETIRED = "AgentRetired"
    PROVISIONING_TIMED_OUT = "ProvisioningTimedOut"
    LIFECYCLE_STOPPED = "LifecycleStopped"
    ADOPTED = "Adopted"
    RETAINED = "Retained"
    BOTH_MOVED = "BothMoved"
    FIELDS_DIFFER = "FieldsDiffer"
    OBJECT_MISSING = "ObjectMissing"
    UNEXPECTEDLY_RUNNING = "UnexpectedlyRunning"
    ORPHAN = "Orphan"
    MARKED_BY_OTHER = "MarkedByOther"
    NOT_MARKED = "NotMarked"
    LIVENESS_FAILED = "LivenessFailed"
    HEARTBEAT_STALE = "HeartbeatStale"
    SOURCES_DISAGREE = "SourcesDisagree"
    HOOK_DUE = "HookDue"
    HOOK_RETIRED = "HookRetired"
    HOOK_RECORDED = "HookRecorded"
    HOOK_FORGOTTEN = "HookForgotten"
    HOOK_FAILED = "HookFailed"
    HOOK_UNKNOWN = "HookUnknown"
    PROGRESSING = "Progressing"
    NOT_SEEN_YET = "NotSeenYet"
    LIVE_DECIDES = "LiveDecides"


class Hold(StrEnum):
    """Why a guard holds actions: the codes of its findings."""

    FROZEN = "Frozen"
    FREEZE_FORGOTTEN = "FreezeForgotten"
    OBSERVE_MODE = "ObserveMode"
    PAUSED = "Paused"
    EMPTY_SOURCE = "EmptySource"
    FAILED_BEFORE = "FailedBefore"
    MASS_DELETE = "MassDelete"
    MASS_CHANGE = "MassChange"
    MASS_DRIFT = "MassDrift"
    REPEATED_DRIFT = "RepeatedDrift"
    BACKOFF = "Backoff"
    WAITING_FOR_DEPENDENCY = "WaitingForDependency"
    WAITING_TO_BE_READY = "WaitingToBeReady"
    HOST_RESTART = "HostRestart"
    PAUSE_ENDED = "PauseEnded"
    BREAKER_OPEN = "BreakerOpen"
    ACTION_CAP = "ActionCap"
    LEASE_HELD = "LeaseHeld"


_ALERT, _ASK, _WAIT = Decision.ALERT, Decision.ASK, Decision.WAIT
_CHANGE, _CONFLICT, _STUCK, _LAG = Class.CHANGE, Class.CONFLICTING, Class.STUCK_PROGRESS, Class.LAG
_INTERNAL, _EXTERNAL, _UNSAFE = Class.MISSING_INTERNAL, Class.MISSING_EXTERNAL, Class.UNSAFE_AMBIGUITY

MEANINGS: dict[ReasonCode, Reason] = {
    ReasonCode.AGENT_ADDED: Reason("Git asks for it and there is neither a record nor an object.", _CHANGE),
    ReasonCode.SPEC_CHANGED: Reason("A commit changed what is desired.", _CHANGE),
    ReasonCode.AGENT_REMOVED: Reason("Git no longer asks for it; its deletionPolicy decides.", _CHANGE),
    ReasonCode.AGENT_RETIRED: Reason("The document says lifecycle: Retired.", _CHANGE),
    ReasonCode.PROVISIONING_TIMED_OUT: Reason(
        "It did not become Ready in time: what was built of it is taken down again.", _CHANGE
    ),
    ReasonCode.LIFECYCLE_STOPPED: Reason("The document says lifecycle: Stopped, and it runs.", _CHANGE),
    ReasonCode.ADOPTED: Reason("Live is right and our record was not: the record is written.", _INTERNAL),
    ReasonCode.RETAINED: Reason("deletionPolicy: Retain: the object stays, our claim on it ended.", _CHANGE),
    ReasonCode.BOTH_MOVED: Reason("A commit and someone else both changed it; Git wins.", _CONFLICT),
    ReasonCode.FIELDS_DIFFER: Reason("The live object was changed by something else.", about_fields=True),
    ReasonCode.OBJECT_MISSING: Reason("We applied it and it is gone (asks if not idempotent).", _EXTERNAL),
    ReasonCode.UNEXPECTEDLY_RUNNING: Reason("It was stopped by Git and something started it.", _CONFLICT),
    ReasonCode.ORPHAN: Reason(
        "It carries our mark; neither Git nor our record knows it.", _INTERNAL, decision=Decision.QUARANTINE
    ),
    ReasonCode.MARKED_BY_OTHER: Reason(
        "The object in the way is marked by another instance.", _UNSAFE, decision=_ALERT
    ),
    ReasonCode.NOT_MARKED: Reason(
        "The object in the way carries no mark; adopt: true takes it over.", _UNSAFE, decision=_ALERT
    ),
    ReasonCode.LIVENESS_FAILED: Reason("The liveness probe failed too often.", _STUCK, Repair.RESTART),
    ReasonCode.HEARTBEAT_STALE: Reason("No heartbeat in time, no tool call open.", _STUCK, Repair.RESTART),
    ReasonCode.SOURCES_DISAGREE: Reason(
        "One source says that a live agent is stuck, as many or more say that it is not.", _STUCK, decision=_ALERT
    ),
    ReasonCode.HOOK_DUE: Reason("The agent is Ready for the first time: onProvisioned is called.", _CHANGE),
    ReasonCode.HOOK_RETIRED: Reason("The agent has ended: onRetired is called.", _CHANGE),
    ReasonCode.HOOK_RECORDED: Reason("A hook is written down; it is not called now.", _CHANGE),
    ReasonCode.HOOK_FORGOTTEN: Reason("A hook is no longer asked for; it is not called.", _CHANGE),
    ReasonCode.HOOK_FAILED: Reason(
        "A hook was called and failed; it is never called twice.", _CHANGE, decision=_ASK
    ),
    ReasonCode.HOOK_UNKNOWN: Reason(
        "A hook was called and its end is unknown; it is never called twice.", _CHANGE, decision=_ASK
    ),
    ReasonCode.PROGRESSING: Reason(
        "It was applied, and the live system is still working on it.", _LAG, decision=_WAIT
    ),
    ReasonCode.NOT_SEEN_YET: Reason(
        "What was seen is older than what we applied last; it is looked at again.", _LAG, decision=_WAIT
    ),
    ReasonCode.LIVE_DECIDES: Reason(
        "Live decides a field (`authority`), and Git says something else of it.", _LAG, decision=Decision.IMPORT
    ),
}

HOLDS: dict[Hold, str] = {
    Hold.FROZEN: "A freeze (by Git, an operator or a guard) covers the agent: nothing is done, all is reported.",
    Hold.FREEZE_FORGOTTEN: "A freeze has no end and has stood for longer than freezeReminder.",
    Hold.OBSERVE_MODE: "The agent is in Observe mode: drift is reported, nothing is done.",
    Hold.PAUSED: "The agent is paused, with a reason and perhaps an end.",
    Hold.EMPTY_SOURCE: "The commit holds no agent at all; an empty source never deletes anything.",
    Hold.FAILED_BEFORE: "This very tree failed its gate before: push something else, or retry the commit.",
    Hold.MASS_DELETE: "Too many agents would lose their runtime: approve the plan, split it, or roll back.",
    Hold.MASS_CHANGE: "Too many agents would be changed: approve the plan, split it, or roll back.",
    Hold.MASS_DRIFT: "Too many agents drifted at once: frozen until people unfreeze or approve the plan.",
    Hold.REPEATED_DRIFT: "It was repaired too often in a short time; tried again when the window has moved on.",
    Hold.BACKOFF: "The last try failed; it is tried again at the time shown.",
    Hold.WAITING_FOR_DEPENDENCY: "An agent named in dependsOn is not Ready yet.",
    Hold.WAITING_TO_BE_READY: "The hooks of an agent wait until it is Ready for the first time.",
    Hold.PAUSE_ENDED: "What waited for a pause goes out like a rollout; those before it are not Ready yet.",
    Hold.HOST_RESTART: "The host was restarted, and so many agents are coming back already; it follows by itself.",
    Hold.BREAKER_OPEN: "The driver failed too often in a row; it rests, then one action is tried.",
    Hold.ACTION_CAP: "The pass has reached actionsPerPass; the rest follows in the next pass.",
    Hold.LEASE_HELD: "Another gitops-agent of the same instance name acts on the agent; this one waits.",
}


def meaning_of(catalog: Catalog, driver: str, code: str | None) -> Reason | None:
    """What a reason code means: in the terms of its driver, or else of core; None for one that neither knows."""
    if code is None:
        return None
    return catalog.reasons.get((driver, code)) or (MEANINGS[ReasonCode(code)] if code in _CODES else None)


def class_of(reason: Reason | None, *, present: bool) -> Class:
    """The class of drift (or the lag) a reason is of; unknown ones are classed by whether the object is there."""
    if reason is not None and reason.drift is Class.LAG:
        return Class.LAG
    if not present:
        return Class.MISSING_EXTERNAL
    return reason.drift if reason is not None and reason.drift.is_drift else Class.CONFLICTING


_CODES = frozenset(ReasonCode)


def markdown(catalog: Catalog) -> str:
    """The content of ``docs/reasons.md``."""
    own = sorted(catalog.reasons.items())
    lines = [
        "# Reason codes",
        "",
        "Every action carries one. Generated from `gitops_agent/plan/reasons.py` and the drivers' `reasons`; a",
        "test keeps the two in step.",
        "",
        "| code | class | meaning | decision |",
        "|---|---|---|---|",
        *(f"| `{code}` | {m.drift} | {m.text} | {m.decision} |" for code, m in MEANINGS.items()),
        "",
        "## Of the drivers",
        "",
        "| code | driver | class | meaning | repair |",
        "|---|---|---|---|---|",
        *(f"| `{code}` | {driver} | {m.drift} | {m.text} | {m.repair} |" for (driver, code), m in own),
        "",
        "The decision is that of high confidence. With medium confidence a repair of drift asks first, with low",
        "it only alerts. What a commit asks for is always repaired, unless a guard holds it. Lag is no drift, and",
        "no repair follows from it. An agent that is starting differs in nothing, so no action stands for it: its",
        "condition `Ready` says so.",
        "",
        "## Why an action is held",
        "",
        "Guards hold actions; the finding says which number tripped and how to release it.",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{hold}` | {text} |" for hold, text in HOLDS.items()),
    ]
    return "\n".join(lines) + "\n"
