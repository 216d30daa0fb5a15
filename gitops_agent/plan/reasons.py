"""Reason codes: why an action exists, or why it is held. Stable, because people and dashboards match on them.

``docs/reasons.md`` is written from it (``docs/reasons_table.py``). Codes of drivers come from their plugins.
"""

from enum import StrEnum

from gitops_agent.model.catalog import Catalog, Reason, Repair
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Class, Decision

_ALERT, _ASK, _WAIT = Decision.ALERT, Decision.ASK, Decision.WAIT
_CHANGE, _CONFLICT, _STUCK, _LAG = Class.CHANGE, Class.CONFLICTING, Class.STUCK_PROGRESS, Class.LAG
_INTERNAL, _EXTERNAL, _UNSAFE = Class.MISSING_INTERNAL, Class.MISSING_EXTERNAL, Class.UNSAFE_AMBIGUITY


class ReasonCode(StrEnum):
    """Why an action exists, as far as core knows, and what that means. Drivers bring more (``Plugin.reasons``)."""

    meaning: Reason

    def __new__(
        cls, code: str, text: str, drift: Class, decision: Decision = Decision.REPAIR, way_out: str = ""
    ) -> "ReasonCode":
        """A code that carries its meaning. What is stuck is brought back by a restart."""
        member = str.__new__(cls, code)
        restarts = drift is _STUCK or code in ("ReplicasFollow", "SecretRotated")
        repair = Repair.RESTART if restarts else Repair.UPDATE
        about_fields = code == "FieldsDiffer"
        reason = Reason(text, drift, repair, about_fields=about_fields, decision=decision, way_out=way_out)
        member._value_, member.meaning = code, reason
        return member

    AGENT_ADDED = "AgentAdded", "Git asks for it and there is neither a record nor an object.", _CHANGE
    SPEC_CHANGED = "SpecChanged", "A commit changed what is desired.", _CHANGE
    AGENT_REMOVED = "AgentRemoved", "Git no longer asks for it; its deletionPolicy decides.", _CHANGE
    AGENT_RETIRED = "AgentRetired", "The document says lifecycle: Retired.", _CHANGE
    PROVISIONING_TIMED_OUT = (
        "ProvisioningTimedOut",
        "It did not become Ready in time: what was built of it is taken down again.",
        _CHANGE,
    )
    LIFECYCLE_STOPPED = "LifecycleStopped", "The document says lifecycle: Stopped, and it runs.", _CHANGE
    ADOPTED = "Adopted", "Live is right and our record was not: the record is written.", _INTERNAL
    RETAINED = "Retained", "deletionPolicy: Retain: the object stays, our claim on it ended.", _CHANGE
    BOTH_MOVED = "BothMoved", "A commit and someone else both changed it; Git wins.", _CONFLICT
    FIELDS_DIFFER = "FieldsDiffer", "The live object was changed by something else.", _CONFLICT
    OBJECT_MISSING = "ObjectMissing", "We applied it and it is gone (asks if not idempotent).", _EXTERNAL
    UNEXPECTEDLY_RUNNING = "UnexpectedlyRunning", "It was stopped by Git and something started it.", _CONFLICT
    ORPHAN = "Orphan", "It carries our mark; neither Git nor our record knows it.", _INTERNAL, Decision.QUARANTINE
    MARKED_BY_OTHER = "MarkedByOther", "The object in the way is marked by another instance.", _UNSAFE, _ALERT
    NOT_MARKED = (
        "NotMarked",
        "The object in the way carries no mark; adopt: true takes it over.",
        _UNSAFE,
        _ALERT,
        "It is never touched. Stop it by hand, or set spec.adopt: true to have it replaced by one of ours",
    )
    LIVENESS_FAILED = "LivenessFailed", "The liveness probe failed too often.", _STUCK
    HEARTBEAT_STALE = "HeartbeatStale", "No heartbeat in time, no tool call open.", _STUCK
    SECRET_ROTATED = (
        "SecretRotated",
        "A secret has another value than the one it was started with; runtime.onSecretChange decides.",
        _CONFLICT,
        _ALERT,
        "Restart it when it suits, or set runtime.onSecretChange: Restart to have it restarted",
    )
    TOOL_CALL_STUCK = (
        "ToolCallStuck",
        "A tool call is open for longer than heartbeat.maxToolCall; a restart might run it twice.",
        _STUCK,
        _ASK,
    )
    TURN_STUCK = "TurnStuck", "Its turn lasts for longer than heartbeat.maxTurn.", _STUCK, _ASK
    SOURCES_DISAGREE = (
        "SourcesDisagree",
        "One source says that a live agent is stuck, as many or more say that it is not.",
        _STUCK,
        _ALERT,
        "It is repaired as soon as most of them agree: find out which one is wrong, or restart it",
    )
    HOOK_DUE = "HookDue", "The agent is Ready for the first time: onProvisioned is called.", _CHANGE
    HOOK_RETIRED = "HookRetired", "The agent has ended: onRetired is called.", _CHANGE
    HOOK_RECORDED = "HookRecorded", "A hook is written down; it is not called now.", _CHANGE
    HOOK_FORGOTTEN = "HookForgotten", "A hook is no longer asked for; it is not called.", _CHANGE
    HOOK_FAILED = "HookFailed", "A hook was called and failed; it is never called twice.", _CHANGE, _ASK
    HOOK_UNKNOWN = (
        "HookUnknown",
        "A hook was called and its end is unknown; it is never called twice.",
        _CHANGE,
        _ASK,
    )
    REPLICAS_FOLLOW = (
        "ReplicasFollow",
        "A commit is carried out copy by copy: the next follow when those before them are Ready.",
        _CHANGE,
    )
    PROGRESSING = "Progressing", "It was applied, and the live system is still working on it.", _LAG, _WAIT
    NOT_SEEN_YET = (
        "NotSeenYet",
        "What was seen is older than what we applied last; it is looked at again.",
        _LAG,
        _WAIT,
    )
    LIVE_DECIDES = (
        "LiveDecides",
        "Live decides a field (`authority`), and Git says something else of it.",
        _LAG,
        Decision.IMPORT,
    )


ONLY_REPORTED = frozenset({str(ReasonCode.SECRET_ROTATED)})
"""Drift that its author asked to be told of and no more: nothing waits for it, and it counts for no guard."""


class Hold(StrEnum):
    """Why a guard holds actions: the codes of its findings, each with its meaning."""

    text: str

    def __new__(cls, code: str, text: str) -> "Hold":
        """A code that carries its meaning."""
        member = str.__new__(cls, code)
        member._value_, member.text = code, text
        return member

    def finding(self, address: object, summary: str, detail: str, *, urgent: bool = False) -> Finding:
        """The finding of a guard with this code; ``urgent``: a warning, also where it usually is none."""
        severity = Severity.WARNING if urgent else _SEVERITY.get(self, Severity.INFO)
        return Finding(severity, self, str(address), summary, detail)

    FROZEN = (
        "Frozen",
        "A freeze (by Git, an operator or a guard) covers the agent: nothing is done, all is reported.",
    )
    FREEZE_FORGOTTEN = "FreezeForgotten", "A freeze has no end and has stood for longer than freezeReminder."
    OBSERVE_MODE = "ObserveMode", "The agent is in Observe mode: drift is reported, nothing is done."
    PAUSED = "Paused", "The agent is paused, with a reason and perhaps an end."
    EMPTY_SOURCE = "EmptySource", "The commit holds no agent at all; an empty source never deletes anything."
    FAILED_BEFORE = (
        "FailedBefore",
        "This very tree failed its gate before: push something else, or retry the commit.",
    )
    MASS_DELETE = (
        "MassDelete",
        "Too many agents or replicas would be stopped or deleted: approve the plan, split it, or roll back.",
    )
    MASS_CHANGE = "MassChange", "Too many agents would be changed: approve the plan, split it, or roll back."
    MASS_DRIFT = "MassDrift", "Too many agents drifted at once: frozen until people unfreeze or approve the plan."
    REPEATED_DRIFT = (
        "RepeatedDrift",
        "It was repaired too often in a short time; tried again when the window has moved on.",
    )
    BACKOFF = "Backoff", "The last try failed; it is tried again at the time shown."
    WAITING_FOR_DEPENDENCY = "WaitingForDependency", "An agent named in dependsOn is not Ready yet."
    HANDOVER_WAITS = (
        "HandoverWaits",
        "It moves to another driver: the old one runs until the new one is Ready (exclusive: it goes first).",
    )
    WAITING_TO_BE_READY = "WaitingToBeReady", "The hooks of an agent wait until it is Ready for the first time."
    HOST_RESTARTED = (
        "HostRestarted",
        "The host was restarted: one agent comes back first, then so many at a time; it follows by itself.",
    )
    MASS_ABSENCE = (
        "MassAbsence",
        "Many agents were gone at once: one comes back first, then so many at a time; frozen if the first fails.",
    )
    PAUSE_ENDED = (
        "PauseEnded",
        "What waited for a pause, a freeze or to be seen again goes out like a rollout; its wave has yet to come.",
    )
    BREAKER_OPEN = "BreakerOpen", "The driver failed too often in a row; it rests, then one action is tried."
    ACTION_CAP = "ActionCap", "actionsPerMinute is used up; the rest follows by itself."
    LEASE_HELD = "LeaseHeld", "Another gitops-agent of the same instance name acts on the agent; this one waits."


_BLOCKING = (Hold.EMPTY_SOURCE, Hold.FAILED_BEFORE, Hold.MASS_DELETE, Hold.MASS_CHANGE, Hold.MASS_DRIFT)
_WORRYING = (Hold.FREEZE_FORGOTTEN, Hold.REPEATED_DRIFT, Hold.BREAKER_OPEN, Hold.LEASE_HELD)
_SEVERITY = dict.fromkeys(_BLOCKING, Severity.ERROR) | dict.fromkeys(_WORRYING, Severity.WARNING)


def meaning_of(catalog: Catalog, driver: str, code: str | None) -> Reason | None:
    """What a reason code means: in the terms of its driver, or else of core; None for one that neither knows."""
    if code is None:
        return None
    return catalog.reason(driver, code) or _MEANINGS.get(code)


def is_absence_code(catalog: Catalog, code: str) -> bool:
    """Whether a reason code says that something is gone, in the terms of core or of any driver."""
    core = _MEANINGS.get(code)
    return (core is not None and core.drift is _EXTERNAL) or code in catalog.absent


def class_of(reason: Reason | None, *, present: bool) -> Class:
    """The class of drift (or the lag) a reason is of; unknown ones are classed by whether the object is there."""
    if reason is not None and reason.drift is Class.LAG:
        return Class.LAG
    if not present:
        return Class.MISSING_EXTERNAL
    return reason.drift if reason is not None and reason.drift.is_drift else Class.CONFLICTING


_MEANINGS = {str(code): code.meaning for code in ReasonCode}
