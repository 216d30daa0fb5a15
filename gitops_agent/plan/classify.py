"""Classification: from a difference to verb, class, reason, confidence and decision. The reason never steers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gitops_agent.model.agent import DeletionPolicy, Lifecycle
from gitops_agent.model.health_spec import ON_SECRET_CHANGE
from gitops_agent.model.observation import AgentInstance, Owner
from gitops_agent.model.plan import Class, Confidence, Decision, Verb
from gitops_agent.model.quantity import seconds
from gitops_agent.model.status import Health
from gitops_agent.plan.compare import Difference, changed_names
from gitops_agent.plan.confidence import confidence_of, read_signals
from gitops_agent.plan.context import PlanContext, recent_repairs
from gitops_agent.plan.reasons import ReasonCode, class_of
from gitops_agent.plan.three_way import ThreeWay

_BY_CONFIDENCE = {
    Confidence.HIGH: Decision.REPAIR,
    Confidence.MEDIUM: Decision.ASK,
    Confidence.LOW: Decision.ALERT,
}
# What a difference comes to whatever else holds. An adoption writes our record only.
_VERBS = {Difference.ADOPT: Verb.ADOPT, Difference.FORGET: Verb.FORGET, Difference.ORPHAN: Verb.DELETE}
_REASONS = {
    Difference.CREATE: ReasonCode.AGENT_ADDED,
    Difference.ADOPT: ReasonCode.ADOPTED,
    Difference.CONFLICT: ReasonCode.BOTH_MOVED,
    Difference.ORPHAN: ReasonCode.ORPHAN,
}
_DECISIONS = {
    Difference.AMBIGUOUS: Decision.ALERT,
    Difference.ORPHAN: Decision.QUARANTINE,
    Difference.ADOPT: Decision.REPAIR,
}
LAG_SECONDS = 60.0
"""How much older than our last apply an observation may be; with more, the wall clock was set back."""


@dataclass(frozen=True, slots=True)
class Classification:
    """What is to be done about one difference, why, and how sure we are."""

    verb: Verb
    drift_class: Class
    reason: str
    confidence: Confidence
    decision: Decision


def classify(
    difference: Difference, three_way: ThreeWay, context: PlanContext, health: Health | None = None
) -> Classification:
    """The classification of one difference (not RETAINED; IN_SYNC only where health asks for a restart or people).
    ``health`` is what the cross-check says of a runtime that makes no progress, or of the driver's reason; for
    copies that follow, that the next may."""
    if difference is Difference.IMPORT:
        # Git follows, through people: nothing of ours and nothing live is touched.
        return Classification(Verb.ADOPT, Class.LAG, ReasonCode.LIVE_DECIDES, Confidence.HIGH, Decision.IMPORT)
    asks = health is not None and difference is Difference.IN_SYNC and not health.restart
    if health is not None and (health.restart or asks):  # whatever its fields say, it makes no progress
        difference, verb, reason, drift_class = Difference.DRIFT, Verb.RESTART, health.reason, Class.STUCK_PROGRESS
    else:
        verb = _verb(difference, three_way)
        reason = _reason(difference, three_way, verb)
        drift_class = _class(difference, three_way, reason)
    if not drift_class.is_drift:
        # A commit asked for it, and the source verified the commit: there is nothing to be unsure of.
        waits = drift_class is Class.LAG or (reason == ReasonCode.REPLICAS_FOLLOW and health is None)
        decision = Decision.WAIT if waits else Decision.REPAIR
        return Classification(verb, drift_class, reason, Confidence.HIGH, decision)
    repeats = context.limits(three_way.key.agent.tenant).oscillation.repairs
    repeated = len(recent_repairs(context, three_way.key)) >= repeats
    adopted = three_way.agent is not None and three_way.agent.adopt
    signals = read_signals(three_way.live, verb, health, adopted=adopted, repeated=repeated, now=context.now)
    if health is not None and health.asking and health.disputes == reason:
        decision = Decision.WAIT
    elif health is not None and health.disputes == reason:
        # The driver or the others are wrong, and people should know. Should they agree later, it is repaired.
        decision, reason = Decision.ALERT, ReasonCode.SOURCES_DISAGREE
    elif asks:
        decision = Decision.ASK
    elif reason == ReasonCode.SECRET_ROTATED and not _restarts_on_secret_change(three_way):
        decision = Decision.ALERT
    else:
        # What was repaired too often is held by a guard, not asked about.
        decision = _decide(difference, three_way, confidence_of(replace(signals, repeated=False)))
        surplus = decision is Decision.REPAIR and drift_class is Class.MISSING_INTERNAL
        if surplus and _has_young_extra(three_way, context):
            decision = Decision.QUARANTINE
    return Classification(verb, drift_class, reason, confidence_of(signals), decision)


def is_young(instances: Sequence[AgentInstance], tenant: str, context: PlanContext) -> bool:
    """Whether one of some copies that are not in Git is too young to be ended, or too young for all we know."""
    least = seconds(context.limits(tenant).orphans.min_age)
    return any(each.started_at is None or context.now - each.started_at < least for each in instances)


def _has_young_extra(three_way: ThreeWay, context: PlanContext) -> bool:
    return three_way.live is not None and is_young(three_way.live.extra, three_way.key.agent.tenant, context)


def _decide(difference: Difference, three_way: ThreeWay, confidence: Confidence) -> Decision:
    if difference in _DECISIONS:
        return _DECISIONS[difference]
    decision = _BY_CONFIDENCE[confidence]
    live = three_way.live
    if (
        decision is Decision.REPAIR
        and difference is Difference.DRIFT
        and live is not None
        and live.reason is not None
    ):
        # By a reason of its own a driver may say that repairing it is for people to decide.
        own = three_way.catalog.reason(live.driver, live.reason)
        decision = own.decision if own is not None else decision
    once_only = three_way.desired is not None and not three_way.desired.idempotent
    if difference is Difference.MISSING_EXTERNAL and once_only and decision is Decision.REPAIR:
        return Decision.ASK
    return decision


def _restarts_on_secret_change(three_way: ThreeWay) -> bool:
    return three_way.desired is not None and three_way.desired.fields.value.get(ON_SECRET_CHANGE) == "Restart"


def _verb(difference: Difference, three_way: ThreeWay) -> Verb:
    if difference in _VERBS:
        return _VERBS[difference]
    if difference is Difference.AMBIGUOUS:
        return Verb.ADOPT if three_way.desired is not None else Verb.DELETE
    if difference is Difference.PRUNE:
        # The deletion policy is about documents that left Git, not about edited ones.
        base = three_way.base if three_way.agent is None else None
        retain = base is not None and base.deletion_policy is DeletionPolicy.RETAIN
        return Verb.RELEASE if retain else Verb.DELETE
    return _verb_towards(three_way)


def _verb_towards(three_way: ThreeWay) -> Verb:
    """The verb that makes live as desired."""
    assert three_way.desired is not None
    if three_way.desired.is_absence:
        return Verb.STOP
    if not three_way.present:
        return Verb.CREATE
    if three_way.desired.stopped:
        return Verb.STOP
    restarts = three_way.reason is not None and three_way.reason.restarts
    if restarts or not set(three_way.desired.restart_on).isdisjoint(changed_names(three_way)):
        return Verb.RESTART
    return Verb.UPDATE


def _reason(difference: Difference, three_way: ThreeWay, verb: Verb) -> str:
    if difference in _REASONS:
        return _REASONS[difference]
    reported = three_way.live.reason if three_way.live is not None else None
    match difference:
        case Difference.CHANGE:
            return ReasonCode.LIFECYCLE_STOPPED if verb is Verb.STOP else ReasonCode.SPEC_CHANGED
        case Difference.DRIFT | Difference.MISSING_EXTERNAL if _is_older_than_base(three_way):
            return ReasonCode.NOT_SEEN_YET
        case Difference.DRIFT:
            return ReasonCode.UNEXPECTEDLY_RUNNING if verb is Verb.STOP else reported or ReasonCode.FIELDS_DIFFER
        case Difference.MISSING_EXTERNAL:
            return reported or ReasonCode.OBJECT_MISSING
        case Difference.AMBIGUOUS:
            other = three_way.live is not None and three_way.live.owner is Owner.OTHER
            return ReasonCode.MARKED_BY_OTHER if other else ReasonCode.NOT_MARKED
    return _leaving(three_way, verb)


def _is_older_than_base(three_way: ThreeWay) -> bool:
    """Whether it was observed before it was applied last: then it shows what was, and nothing drifted."""
    if three_way.live is None or three_way.base is None:
        return False
    return 0.0 < three_way.base.applied_at - three_way.live.observed_at <= LAG_SECONDS


def _leaving(three_way: ThreeWay, verb: Verb) -> str:
    """Why something is pruned or forgotten."""
    if verb is Verb.RELEASE or (three_way.base is not None and three_way.base.retained):
        return ReasonCode.RETAINED
    if three_way.agent is None:
        return ReasonCode.AGENT_REMOVED
    if three_way.agent.abandoned:
        return ReasonCode.PROVISIONING_TIMED_OUT
    return ReasonCode.AGENT_RETIRED if three_way.agent.lifecycle is Lifecycle.RETIRED else ReasonCode.SPEC_CHANGED


def _class(difference: Difference, three_way: ThreeWay, reason: str) -> Class:
    if reason == ReasonCode.REPLICAS_FOLLOW:
        return Class.CHANGE
    if difference in (Difference.DRIFT, Difference.CONFLICT, Difference.MISSING_EXTERNAL):
        return class_of(three_way.reason_of(reason), present=three_way.present)
    if difference is Difference.AMBIGUOUS:
        return Class.UNSAFE_AMBIGUITY
    unrecorded = difference is Difference.ADOPT and three_way.base is None and three_way.present
    return Class.MISSING_INTERNAL if unrecorded or difference is Difference.ORPHAN else Class.CHANGE
