"""Reason codes: why an action exists, or why it is held. Stable, because people and dashboards match on them.

``docs/reasons.md`` is ``markdown()`` of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops_agent.model.plan import Class, Decision


class Reason(StrEnum):
    """Why an action exists. A driver of a third party may bring more of its own."""

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
    PROCESS_GONE = "ProcessGone"
    HOST_RESTARTED = "HostRestarted"
    SPEC_DIFFERS = "SpecDiffers"
    COMMAND_DIFFERS = "CommandDiffers"
    ENVIRONMENT_DIFFERS = "EnvironmentDiffers"
    EXTRA_REPLICA = "ExtraReplica"
    REPLICA_MISSING = "ReplicaMissing"
    SUSPENDED = "Suspended"
    SOURCES_DISAGREE = "SourcesDisagree"
    ZOMBIE = "Zombie"
    MEMORY_LIMIT = "MemoryLimit"
    CONFIG_EDITED = "ConfigEdited"
    CONFIG_LOST = "ConfigLost"
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


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason stands for. ``restart``: an object with this reason is restarted, not updated in place.

    ``fields``: it says no more than that some field differs from what was applied.
    """

    drift_class: Class
    decision: Decision
    text: str
    restart: bool = False
    fields: bool = False


_REPAIR, _ALERT = Decision.REPAIR, Decision.ALERT
_CHANGE, _CONFLICT, _STUCK = Class.CHANGE, Class.CONFLICTING, Class.STUCK_PROGRESS
_INTERNAL, _EXTERNAL, _UNSAFE = Class.MISSING_INTERNAL, Class.MISSING_EXTERNAL, Class.UNSAFE_AMBIGUITY

MEANINGS: dict[Reason, Meaning] = {
    Reason.AGENT_ADDED: Meaning(_CHANGE, _REPAIR, "Git asks for it and there is neither a record nor an object."),
    Reason.SPEC_CHANGED: Meaning(_CHANGE, _REPAIR, "A commit changed what is desired."),
    Reason.AGENT_REMOVED: Meaning(_CHANGE, _REPAIR, "Git no longer asks for it; its deletionPolicy decides."),
    Reason.AGENT_RETIRED: Meaning(_CHANGE, _REPAIR, "The document says lifecycle: Retired."),
    Reason.PROVISIONING_TIMED_OUT: Meaning(
        _CHANGE, _REPAIR, "It did not become Ready in time: what was built of it is taken down again."
    ),
    Reason.LIFECYCLE_STOPPED: Meaning(_CHANGE, _REPAIR, "The document says lifecycle: Stopped, and it runs."),
    Reason.ADOPTED: Meaning(_INTERNAL, _REPAIR, "Live is right and our record was not: the record is written."),
    Reason.RETAINED: Meaning(_CHANGE, _REPAIR, "deletionPolicy: Retain: the object stays, our claim on it ended."),
    Reason.BOTH_MOVED: Meaning(_CONFLICT, _REPAIR, "A commit and someone else both changed it; Git wins."),
    Reason.FIELDS_DIFFER: Meaning(
        _CONFLICT, _REPAIR, "The live object was changed by something else.", fields=True
    ),
    Reason.OBJECT_MISSING: Meaning(_EXTERNAL, _REPAIR, "We applied it and it is gone (asks if not idempotent)."),
    Reason.UNEXPECTEDLY_RUNNING: Meaning(_CONFLICT, _REPAIR, "It was stopped by Git and something started it."),
    Reason.ORPHAN: Meaning(
        _INTERNAL, Decision.QUARANTINE, "It carries our mark; neither Git nor our record knows it."
    ),
    Reason.MARKED_BY_OTHER: Meaning(_UNSAFE, _ALERT, "The object in the way is marked by another instance."),
    Reason.NOT_MARKED: Meaning(
        _UNSAFE, _ALERT, "The object in the way carries no mark; adopt: true takes it over."
    ),
    Reason.LIVENESS_FAILED: Meaning(_STUCK, _REPAIR, "The liveness probe failed too often.", restart=True),
    Reason.HEARTBEAT_STALE: Meaning(_STUCK, _REPAIR, "No heartbeat in time, no tool call open.", restart=True),
    Reason.PROCESS_GONE: Meaning(_EXTERNAL, _REPAIR, "The process ended or was killed."),
    Reason.HOST_RESTARTED: Meaning(_EXTERNAL, _REPAIR, "The host was restarted since it was last applied."),
    Reason.SPEC_DIFFERS: Meaning(_CONFLICT, _REPAIR, "It runs from another spec than applied.", restart=True),
    Reason.COMMAND_DIFFERS: Meaning(_CONFLICT, _REPAIR, "It runs another command than applied.", restart=True),
    Reason.ENVIRONMENT_DIFFERS: Meaning(_CONFLICT, _REPAIR, "It runs with another environment.", restart=True),
    Reason.EXTRA_REPLICA: Meaning(_INTERNAL, _REPAIR, "More replicas run than desired.", fields=True),
    Reason.REPLICA_MISSING: Meaning(_EXTERNAL, _REPAIR, "Fewer replicas run than desired.", fields=True),
    Reason.SUSPENDED: Meaning(_STUCK, _REPAIR, "The process was stopped by a signal."),
    Reason.SOURCES_DISAGREE: Meaning(
        _STUCK, _ALERT, "One source says that a live agent is stuck, as many or more say that it is not."
    ),
    Reason.ZOMBIE: Meaning(_EXTERNAL, _REPAIR, "The process ended and was not collected by its parent."),
    Reason.MEMORY_LIMIT: Meaning(_STUCK, _REPAIR, "It used more memory than its limit.", restart=True),
    Reason.CONFIG_EDITED: Meaning(_CONFLICT, _REPAIR, "The config bundle was edited in place.", fields=True),
    Reason.CONFIG_LOST: Meaning(_EXTERNAL, _REPAIR, "The config bundle is gone."),
    Reason.HOOK_DUE: Meaning(_CHANGE, _REPAIR, "The agent is Ready for the first time: onProvisioned is called."),
    Reason.HOOK_RETIRED: Meaning(_CHANGE, _REPAIR, "The agent has ended: onRetired is called."),
    Reason.HOOK_RECORDED: Meaning(_CHANGE, _REPAIR, "A hook is written down; it is not called now."),
    Reason.HOOK_FORGOTTEN: Meaning(_CHANGE, _REPAIR, "A hook is no longer asked for; it is not called."),
    Reason.HOOK_FAILED: Meaning(_CHANGE, Decision.ASK, "A hook was called and failed; it is never called twice."),
    Reason.HOOK_UNKNOWN: Meaning(
        _CHANGE, Decision.ASK, "A hook was called and nobody knows how it ended; it is never called twice."
    ),
    Reason.PROGRESSING: Meaning(
        Class.LAG, Decision.WAIT, "It was applied, and the live system is still working on it."
    ),
    Reason.NOT_SEEN_YET: Meaning(
        Class.LAG, Decision.WAIT, "What was seen is older than what we applied last; it is looked at again."
    ),
    Reason.LIVE_DECIDES: Meaning(
        Class.LAG, Decision.IMPORT, "Live decides a field (`authority`), and Git says something else of it."
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


def restarts(reason: str | None) -> bool:
    """Whether an object with this reason of its driver has to be restarted."""
    meaning = _meaning(reason)
    return meaning is not None and meaning.restart


def is_stuck(reason: str | None) -> bool:
    """Whether this reason of a driver is about progress, which no field shows."""
    meaning = _meaning(reason)
    return meaning is not None and meaning.drift_class is Class.STUCK_PROGRESS


def speaks_of_fields(reason: str | None) -> bool:
    """Whether this reason of a driver says no more than that a field differs from what was applied."""
    meaning = _meaning(reason)
    return meaning is not None and meaning.fields


def drift_class(reason: str, *, present: bool) -> Class:
    """The class of drift (or the lag) a reason stands for; unknown ones are judged by whether it is there."""
    meaning = _meaning(reason)
    if meaning is not None and meaning.drift_class is Class.LAG:
        return Class.LAG
    if not present:
        return Class.MISSING_EXTERNAL
    return meaning.drift_class if meaning is not None and meaning.drift_class.is_drift else Class.CONFLICTING


def _meaning(reason: str | None) -> Meaning | None:
    return MEANINGS[Reason(reason)] if reason in _CODES else None


_CODES = frozenset(Reason)


def markdown() -> str:
    """The content of ``docs/reasons.md``."""
    lines = [
        "# Reason codes",
        "",
        "Every action carries one. Generated from `gitops_agent/plan/reasons.py`; a test keeps the two in step.",
        "",
        "| code | class | meaning | decision |",
        "|---|---|---|---|",
        *(f"| `{reason}` | {m.drift_class} | {m.text} | {m.decision} |" for reason, m in MEANINGS.items()),
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
