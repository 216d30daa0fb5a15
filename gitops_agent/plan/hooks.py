"""Hooks: which difference of a hook calls it, which one only moves our record, and which one is for people.

A hook is called by two things only: an agent that is Ready for the first time in its generation
(``onProvisioned``) and an agent that has ended (``onRetired``). A generation is one life of an agent, from its
first creation to its end. Whatever else happens to a hook (it was edited, it was given to an agent that lives
already, it was taken out of a document) is written down and nothing more.
"""

from dataclasses import replace

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import ON_PROVISIONED, ON_RETIRED, Kind, ResourceKey
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.plan.context import PlanContext, resting
from gitops_agent.plan.reasons import ReasonCode

_FAILED = ReasonCode.HOOK_FAILED, "The hook was called and did not succeed"
_UNKNOWN = ReasonCode.HOOK_UNKNOWN, "The hook was called and its end is unknown"


def as_hook(action: Action, context: PlanContext) -> Action:
    """What a difference of a hook comes to."""
    agent, shot = context.snapshot.agents.get(action.key.agent), OneShot.read(action.handle)
    if shot is not None and shot.spent and _is_open_question(action, agent):
        return _for_people(action, shot, context)
    if action.desired is None:
        return _leaving(action, agent, context)
    if action.key.id == ON_RETIRED:
        # Armed for this life; how it ended in an earlier one says nothing any more.
        return replace(_decided(action, Verb.ADOPT, ReasonCode.HOOK_RECORDED), handle=None)
    if _is_due(action, agent, shot, context):
        return _decided(action, Verb.CREATE, ReasonCode.HOOK_DUE)
    return _decided(action, Verb.ADOPT, ReasonCode.HOOK_RECORDED)


def spent_finding(action: Action, plan: str) -> Finding:
    """What people must know of a hook that did not succeed, and their two ways out."""
    failed = action.reason == ReasonCode.HOOK_FAILED
    summary = f"the hook {action.key.id} {'failed' if failed else 'may or may not have run'}"
    detail = (
        f"{action.message} It is not called again by itself. To call it once more, under the same idempotency "
        f"key: gitops-agent retry {action.key.agent}. To leave it as it is: gitops-agent approve {plan}. "
        "Then gitops-agent retry COMMIT has a commit that degraded for it judged again."
    )
    return Finding(Severity.WARNING, action.reason, str(action.key), summary, detail)


def _is_open_question(action: Action, agent: Agent | None) -> bool:
    """Whether people still have to decide about a hook that did not succeed. Not about the onProvisioned of an
    agent that ends, nor about the end of a life before the one that Git asks for."""
    if action.desired is None:
        return action.key.id == ON_RETIRED or not _has_ended(agent)
    return action.key.id != ON_RETIRED


def _has_ended(agent: Agent | None) -> bool:
    return agent is None or agent.lifecycle is Lifecycle.RETIRED


def _leaving(action: Action, agent: Agent | None, context: PlanContext) -> Action:
    """Git asks for the hook no more. Only the end of an agent calls ``onRetired``: not the end of our claim on it
    (deletionPolicy: Retain), and not a document that is there still and has dropped the hook."""
    ended = _has_ended(agent)
    if action.key.id == ON_RETIRED and action.verb is Verb.DELETE and ended:
        handle = action.handle if OneShot.read(action.handle) else _life(action.key, context)
        return replace(_decided(action, Verb.DELETE, ReasonCode.HOOK_RETIRED), handle=handle)
    forgotten = _decided(action, Verb.FORGET, ReasonCode.HOOK_FORGOTTEN)
    # onProvisioned stays on record while onRetired waits for its next try: that needs its generation.
    needed = action.key.id == ON_PROVISIONED and resting(context, action.key._replace(id=ON_RETIRED)) is not None
    return replace(forgotten, decision=Decision.WAIT) if ended and needed else forgotten


def _life(key: ResourceKey, context: PlanContext) -> Fields | None:
    """The generation that onProvisioned began: onRetired belongs to the same life."""
    first = context.bases.get(key._replace(id=ON_PROVISIONED))
    shot = OneShot.read(first.handle) if first is not None else None
    return OneShot(shot.generation, None).handle if shot is not None else None


def _is_due(action: Action, agent: Agent | None, shot: OneShot | None, context: PlanContext) -> bool:
    """Whether ``onProvisioned`` is still to be called in this generation."""
    if agent is None or agent.lifecycle is not Lifecycle.RUNNING:
        return False
    if shot is not None:
        return shot.result is None
    if action.base is not None:
        return action.base.value.get("lifecycle") != Lifecycle.RUNNING  # it was stopped when the hook was recorded
    # Was the agent there before the hook? Some commit has converged with it then, or it was found alive.
    runtimes = (context.bases.get(each.key) for each in agent.resources if each.key.kind == Kind.RUNTIME)
    return not any(base is not None and base.established for base in runtimes)


def _decided(action: Action, verb: Verb, reason: ReasonCode) -> Action:
    return replace(
        action,
        verb=verb,
        drift_class=Class.CHANGE,
        reason=reason,
        message=reason.meaning.text,
        confidence=Confidence.HIGH,
        decision=Decision.REPAIR,
        patch=() if verb is Verb.FORGET else action.patch,
    )


def _for_people(action: Action, shot: OneShot, context: PlanContext) -> Action:
    """It asks. Approved, it is taken for done (or forgotten, at the end); the commit that called it degrades."""
    base = context.bases.get(action.key)
    ours = base is not None and base.commit == context.snapshot.revision.sha
    verb = Verb.FORGET if action.desired is None else Verb.ADOPT
    reason, then = _FAILED if shot.result is Result.FAILED else _UNKNOWN
    return replace(
        _decided(action, verb, ReasonCode.HOOK_RECORDED),
        drift_class=Class.CHANGE if ours else Class.LAG,
        reason=reason,
        message=f"{then}: {shot.said.rstrip('.')}." if shot.said else f"{then}.",
        decision=Decision.ASK,
        handle=OneShot(shot.generation, Result.DONE, f"left as it is by people; before: {shot.said}").handle,
    )
