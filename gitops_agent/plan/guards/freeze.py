"""Freeze: acting stops within its scope, detecting and reporting go on.

Three may freeze: Git (the policy of the newest valid commit alone, or Git could never lift what Git froze), an
operator, and a guard that tripped. A guard's freeze lets through what people approved since, action by action.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gitops_agent.model.control import EVERYTHING, Control, covers, git_freezes
from gitops_agent.model.document import Freeze
from gitops_agent.model.finding import Finding
from gitops_agent.model.plan import Action, Plan, Verdict
from gitops_agent.model.quantity import iso, seconds
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, how_to_unfreeze, trim
from gitops_agent.plan.reasons import Hold


@dataclass(frozen=True, slots=True)
class _FreezeInForce:
    """One freeze in force. ``release`` says how to lift it, ``keep`` how to have it end by itself. ``plan``: the
    one that tripped a guard; empty when people froze. ``since`` is None while no pass has seen it."""

    scope: str
    reason: str
    until: str
    by: str
    release: str
    keep: str
    address: str
    since: float | None
    plan: str = ""


def freeze(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of agents that a freeze covers, and remind people of freezes that have no end."""
    waiting, held, findings = due(plan), list[Action](), list[Finding]()
    # Of Git for the fleet and for tenants; then of operators and of guards.
    in_policy = git_freezes(context.snapshot.policy, context.now)
    of_git = (_by_git(scope, each, context.frozen_since.get(scope)) for scope, each in in_policy)
    for each in (*of_git, *map(_by_control, context.freezes)):
        inside = (action for action in waiting if covers(each.scope, action.key.agent))
        approved = context.approved if each.plan else ()
        own = [action for action in inside if not (approved and action.digest in approved)]
        findings += _findings(each, len({action.key.agent for action in own}), context)
        held += own
    return trim("freeze", held, findings, for_people=True)


def _by_git(scope: str, each: Freeze, since: float | None) -> _FreezeInForce:
    return _FreezeInForce(
        scope,
        each.reason,
        f"until {each.until}" if each.until else "",
        "by the Policy in Git" + (f" since {iso(since)}" if since is not None else ""),
        "commit a Policy without this freeze (that commit may change nothing else)",
        "commit a Policy that gives it an until",
        "gitops-agent.yaml" if scope == EVERYTHING else scope,
        since,
    )


def _by_control(control: Control) -> _FreezeInForce:
    unfreeze = how_to_unfreeze(control.target)
    release = f"run {unfreeze}"
    if control.plan:
        release = (
            "first look whether the live systems, what we see of them (gitops-agent drift), or the desired state "
            f"(gitops-agent history) is wrong. Then run {unfreeze}, which approves exactly the plan "
            f"{control.plan} that tripped the guard; or let only that plan through with gitops-agent approve "
            f"{control.plan}, and the freeze stays for everything else"
        )
    until = f"until {iso(control.until)}" if control.until is not None else ""
    by, keep = f"by {control.actor} since {iso(control.at)}", "lift it, and freeze again with --until"
    return _FreezeInForce(
        control.target, control.reason, until, by, release, keep, control.target, control.at, control.plan
    )


def _findings(each: _FreezeInForce, count: int, context: PlanContext) -> Iterator[Finding]:
    """That it is in force, for so many agents that have work; and that it was forgotten, once that is likely."""
    tenant = None if each.scope == EVERYTHING else each.scope.partition("/")[0]
    reminder = context.limits(tenant).freeze_reminder
    endless = each.since if not each.until else None
    forgotten = endless is not None and context.now - endless > seconds(reminder)
    if count or not forgotten:
        waiting = "1 agent has" if count == 1 else f"{count or 'no'} agents have"
        yield Hold.FROZEN.finding(
            each.address,
            f"frozen {each.until or 'until it is lifted'}: {each.reason}",
            f"Frozen {each.by}, scope {each.scope}; {waiting} work waiting; differences are still found and "
            f"reported. To go on: {each.release}.",
            urgent=count > 0,
        )
    if endless is not None and forgotten:
        yield Hold.FREEZE_FORGOTTEN.finding(
            each.address,
            f"frozen since {iso(endless)}, and no end: {each.reason}",
            f"Frozen {each.by}, scope {each.scope}, for more than {reminder} (freezeReminder). Within the scope "
            f"nothing is repaired and no commit takes effect. To lift it: {each.release}. To keep it until it "
            f"ends by itself: {each.keep}.",
        )
