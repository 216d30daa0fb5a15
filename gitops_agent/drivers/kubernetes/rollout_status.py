"""How a workload does, and why: from its own status, its pods and its events, by the rules of kstatus.

A gate must fail fast on what waiting does not cure (``Health.final``: all that is Unhealthy at once), and must not
call a slow start a failure. So:

| what | state |
|---|---|
| the controller has not seen the change; replicas to be updated, to become available, or to end | Starting, Progressing |
| ImagePullFailed (the registry refuses; when it cannot be reached: as ProbeFailing) | Unhealthy at once |
| CrashLoop, OOMKilled, InitFailed (restarted, and down again within a minute) | Unhealthy at once |
| ContainerConfigError (a Secret, a ConfigMap or a key of one is missing, or it cannot be run) | Unhealthy at once |
| AdmissionDenied (a webhook, Pod Security, a limit range) | Unhealthy at once |
| QuotaExceeded | Unhealthy at once, unless old replicas end meanwhile and make room |
| UpdateBlocked (a StatefulSet waits for a broken pod of the earlier version) | Unhealthy at once |
| Unschedulable, ProbeFailing, PodPending, Exited, Evicted, NodeLost, PodsNotCreated | Starting, with that reason; Unhealthy when it lasts beyond progressDeadlineSeconds (600 s where there is none) |
| ProgressDeadlineExceeded | Unhealthy, with the reason of its pods if they have one |
| scaled to zero, a suspended CronJob | Stopped; while pods remain Starting, Stopping |
| a load balancer without an address | Starting, LoadBalancerPending |
| being deleted | Starting, Stopping |

Pods of an earlier version count only as replicas that are still to end: Ready, they do not hide that new ones crash;
crashing, they do not fail the rollout that replaces them.

Events are a value here (``Warned``): where neither status nor pods say why, a verdict names the object whose events
may (``about``), and is given again with what they say.
"""  # noqa: E501 a table

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gitops_agent.drivers.api import HEALTHY, Class, Health, HealthState, Reason
from gitops_agent.drivers.kubernetes.marks import SPEC
from gitops_agent.drivers.kubernetes.pod_status import (
    ENDED,
    MASK,
    SAID_LENGTH,
    Mask,
    Problem,
    Warned,
    instances,
    is_ready,
    is_terminating,
    name_of,
    pod_problem,
    problem_of,
    uid_of,
    unready_since,
    with_warning,
)
from gitops_agent.drivers.kubernetes.reading import (
    Map,
    at,
    condition,
    count_at,
    map_at,
    maps_at,
    moment_at,
    text_at,
)
from gitops_agent.model.plan import Decision

__all__ = ["REASONS", "Verdict", "creation_problem", "instances", "judged", "pod_problem", "service_health"]
__all__ += ["workload_health"]

DEADLINE_SECONDS = 600
"""How long a workload without progressDeadlineSeconds may take."""
TEMPLATE_HASH, REVISION_HASH = "pod-template-hash", "controller-revision-hash"
_NOT_CREATED = ("FailedCreate", "ReplicaSetCreateError")
"""Reasons of the events by which controllers say that they cannot create what a workload asks for."""

STOPPED = Health(HealthState.STOPPED, "Stopped", "stopped, as desired")

_TEXTS = {
    "ImagePullFailed": "The image cannot be pulled.",
    "CrashLoop": "It keeps exiting.",
    "OOMKilled": "It needs more memory than its limit.",
    "InitFailed": "A container that prepares the agent fails.",
    "ContainerConfigError": "Its container cannot be started, such as for a missing Secret or key.",
    "QuotaExceeded": "The quota of the namespace has no room for its pods.",
    "AdmissionDenied": "The cluster refuses its pods, by a policy or a webhook.",
    "UpdateBlocked": "The update waits for a broken pod of the earlier version.",
    "ProgressDeadlineExceeded": "The rollout did not end in time.",
    "PodFailed": "A pod ended and does not come back by itself.",
    "RunFailed": "The last run of its schedule failed.",
    "Unschedulable": "No node has room for it, or fits.",
    "ProbeFailing": "It runs, and its readiness probe fails.",
    "PodPending": "Its pod is not started yet.",
    "PodsNotCreated": "The cluster could not create its pods.",
    "Exited": "It exited and is being started again.",
    "Evicted": "Its pod was evicted from its node.",
    "NodeLost": "Its node does not answer.",
    "RolloutPaused": "The rollout is paused in the cluster.",
    "LoadBalancerPending": "Its load balancer has no address yet.",
    "Progressing": "The rollout is in progress.",
    "Stopping": "Its pods are still ending.",
}
_LAGGING = ("Progressing", "Stopping", "LoadBalancerPending", "RolloutPaused")
REASONS = {
    code: Reason(
        text,
        Class.LAG if code in _LAGGING else Class.STUCK_PROGRESS,
        explained=code in ("NodeLost", "Evicted"),
        # The cluster itself tries again and again: another restart by us would cure none of these.
        decision=Decision.WAIT if code in _LAGGING else Decision.ALERT,
    )
    for code, text in _TEXTS.items()
}


class Verdict(NamedTuple):
    """How a workload does. ``about``: the uid of the object whose events may say more; "" when none does."""

    health: Health
    about: str = ""


def workload_health(
    live: Map, pods: Sequence[Map], now: float, mask: Mask = MASK, warnings: Sequence[Warned] = ()
) -> Health:
    """How an object of an agent does; ``pods``: those of the agent. What has no pods is healthy by being there."""
    return judged(live, pods, now, mask, warnings).health


def judged(
    live: Map, pods: Sequence[Map], now: float, mask: Mask = MASK, warnings: Sequence[Warned] = ()
) -> Verdict:
    """The same, with the object that should be asked about. ``warnings``: what the events of that one say."""
    kind = text_at(live, "kind")
    if kind == "Service":
        return Verdict(service_health(live))
    workload = {"Deployment": _deployment, "StatefulSet": _stateful_set, "CronJob": _cron_job}
    return workload[kind](live, pods, now, mask, warnings) if kind in workload else Verdict(HEALTHY)


def _deployment(live: Map, pods: Sequence[Map], now: float, mask: Mask, warnings: Sequence[Warned]) -> Verdict:
    wanted = count_at(live, "spec", "replicas", default=1)
    if (early := _early(live, pods, wanted)) is not None:
        return Verdict(early)
    status = map_at(live, "status")
    updated, available = count_at(status, "updatedReplicas"), count_at(status, "availableReplicas")
    old = max(0, count_at(status, "replicas") - updated)
    done = updated >= wanted and available >= wanted and not old
    newest = [each for each in pods if _label(each, TEMPLATE_HASH) == _newest_hash(live, pods)]
    numbers = _numbers(wanted, updated, available, old)
    if not done and at(live, "spec", "paused") is True:
        return Verdict(Health(HealthState.STARTING, "RolloutPaused", f"the rollout is paused; {numbers}"))
    deadline = count_at(live, "spec", "progressDeadlineSeconds", default=DEADLINE_SECONDS)
    progress = condition(live, "Progressing")
    overdue = progress.get("status") == "False" and progress.get("reason") == "ProgressDeadlineExceeded"
    own = None if done else _not_created(live, wanted, old, mask)
    lacking = "" if done or own is not None else _lacking(live, newest, wanted)
    refused = _refused(warnings, mask, _last_progress(live, newest)) if lacking else None
    found = _Judged(newest, now, mask, deadline, own or refused, warnings, lacking)
    return found.verdict(numbers, done=done, overdue=overdue)


def _stateful_set(live: Map, pods: Sequence[Map], now: float, mask: Mask, warnings: Sequence[Warned]) -> Verdict:
    wanted = count_at(live, "spec", "replicas", default=1)
    if (early := _early(live, pods, wanted)) is not None:
        return Verdict(early)
    status = map_at(live, "status")
    revision, current = text_at(status, "updateRevision"), text_at(status, "currentRevision")
    partition = count_at(live, "spec", "updateStrategy", "rollingUpdate", "partition")
    on_delete = at(live, "spec", "updateStrategy", "type") == "OnDelete"
    due = 0 if on_delete else max(0, wanted - partition)
    # Once all are updated the update revision becomes the current one, and the count may be left out.
    updated = count_at(status, "updatedReplicas", default=wanted if revision == current else 0)
    newest = [each for each in pods if not revision or _label(each, REVISION_HASH) == revision]
    if revision and revision == current:  # after a revert too, while pods of what was reverted are still there
        updated = max(0, wanted - (len(pods) - len(newest)))
    available = count_at(status, "availableReplicas", default=count_at(status, "readyReplicas"))
    total = count_at(status, "replicas")
    settled = on_delete or partition > 0 or revision == current
    done = updated >= due and available >= wanted and total == wanted and settled
    blocked = _blocked(live, [each for each in pods if each not in newest], now, mask) if updated < due else None
    lacking = "" if done or blocked is not None else _lacking(live, pods, wanted)
    refused = _refused(warnings, mask, _last_progress(live, pods)) if lacking else None
    counted = pods if on_delete or partition else newest
    found = _Judged(counted, now, mask, DEADLINE_SECONDS, blocked or refused, warnings, lacking)
    return found.verdict(_numbers(wanted, min(updated, wanted), available, max(0, total - wanted)), done=done)


def _cron_job(live: Map, pods: Sequence[Map], now: float, mask: Mask, warnings: Sequence[Warned]) -> Verdict:
    """By the newest pod of its runs; between runs it is healthy unless the last one failed. A run that began with
    an earlier version says nothing about this one: else a commit that mends it would wait for the next run."""
    if at(live, "metadata", "deletionTimestamp"):
        return Verdict(_ending(pods))
    if at(live, "spec", "suspend") is True:
        return Verdict(_ending(pods) if _remaining(pods) else STOPPED)
    waiting = _run_without_pods(live, pods)
    if waiting and (refused := _refused(warnings, mask)) is not None:
        return _Judged([], now, mask, DEADLINE_SECONDS, refused, about=waiting).verdict("", done=False)
    newest = max((each for each in pods if _has_template(live, each)), key=_created, default={})
    if at(newest, "status", "phase") != "Failed":
        run = _Judged([newest] if newest else [], now, mask, DEADLINE_SECONDS, None, warnings, waiting)
        return run.verdict("", done=is_ready(newest))
    success = moment_at(live, "status", "lastSuccessfulTime")
    # In whole seconds both, so at the same one an earlier run may have ended well.
    if success is not None and success > _created(newest):
        return Verdict(HEALTHY, waiting)
    problem = problem_of(newest, now, mask)
    said = problem.sentence if problem is not None else f"pod {name_of(newest)} failed"
    if _owners(newest) & _active(live):
        retried = Problem("Exited", f"the run is tried again: {said}")
        return _Judged([], now, mask, DEADLINE_SECONDS, retried).verdict("", done=False)
    message = f"the last run failed: {said}"
    return Verdict(Health(HealthState.UNHEALTHY, "RunFailed", message, instances=(name_of(newest),)), waiting)


def service_health(live: Map, _pods: Sequence[Map] = (), _now: float = 0.0) -> Health:
    """How a Service does: healthy, once its load balancer has an address if it asks for one."""
    if at(live, "metadata", "deletionTimestamp"):
        return Health(HealthState.STARTING, "Stopping", "being deleted")
    waits = at(live, "spec", "type") == "LoadBalancer" and not maps_at(live, "status", "loadBalancer", "ingress")
    message = "the load balancer has no address yet"
    return Health(HealthState.STARTING, "LoadBalancerPending", message) if waits else HEALTHY


# -- the verdict over the pods that count


class _Judged:
    """The pods of one version, judged. ``other``: a problem of the workload itself, which comes first. ``about``:
    the uid of what has no pods where it should have some."""

    def __init__(  # noqa: PLR0913 - what a verdict rests on
        self,
        pods: Sequence[Map],
        now: float,
        mask: Mask,
        deadline: int,
        other: Problem | None = None,
        warnings: Sequence[Warned] = (),
        about: str = "",
    ) -> None:
        self._now = now
        self._mask = mask
        self._deadline = deadline
        self._warnings = warnings
        self._about = about
        living = [each for each in pods if not is_terminating(each)]
        # What ended is kept for a while: it counts only when nothing came after it.
        running = [each for each in living if at(each, "status", "phase") not in ENDED]
        self._pods = running or [each for each in living if at(each, "status", "phase") == "Failed"]
        found = ((each, problem_of(each, now, mask)) for each in self._pods)
        self._found: list[tuple[Map, Problem]] = [] if other is None else [({}, other)]
        self._found += [(each, problem) for each, problem in found if problem is not None]

    def verdict(self, numbers: str, *, done: bool, overdue: bool = False) -> Verdict:
        """How the workload does. ``done``: by its own status it is as asked for."""
        certain = next((problem for _, problem in self._found if problem.certain), None)
        if certain is not None:
            health = self._health(HealthState.UNHEALTHY, certain.code, certain.sentence, numbers, final=True)
            return Verdict(health, self._about)
        if done or (not self._found and not numbers):
            return Verdict(HEALTHY, self._about)
        if self._found:
            late = overdue or any(self._is_late(pod, problem) for pod, problem in self._found)
            pod, problem = self._found[0]
            told = with_warning(problem, self._warnings, self._mask)
            state = HealthState.UNHEALTHY if late else HealthState.STARTING
            asked = self._about or (uid_of(pod) if problem.by_event else "")
            return Verdict(self._health(state, problem.code, told.sentence, numbers), asked)
        if overdue:
            message = f"the rollout did not end within {self._deadline} s"
            health = self._health(HealthState.UNHEALTHY, "ProgressDeadlineExceeded", message, numbers)
            return Verdict(health, self._about)
        return Verdict(self._health(HealthState.STARTING, "Progressing", "", numbers), self._about)

    def _is_late(self, pod: Map, problem: Problem) -> bool:
        since = unready_since(pod) if pod else problem.since
        return since is not None and self._now - since > self._deadline

    def _health(self, state: HealthState, code: str, said: str, numbers: str, *, final: bool = False) -> Health:
        message = f"{said} ({numbers})" if said and numbers else said or numbers
        unready = tuple(name_of(each) for each in self._pods if not is_ready(each))
        return Health(state, code, message, instances=unready if len(self._pods) > 1 else (), final=final)


# -- parts


def _early(live: Map, pods: Sequence[Map], wanted: int) -> Health | None:
    """The health of a workload of which no pod is asked for, or that its controller has not looked at yet."""
    if at(live, "metadata", "deletionTimestamp"):
        return _ending(pods)
    if count_at(live, "status", "observedGeneration") < count_at(live, "metadata", "generation"):
        return Health(HealthState.STARTING, "Progressing", "the cluster has not begun with the change yet")
    if wanted == 0:
        return _ending(pods) if _remaining(pods) else STOPPED
    return None


def _remaining(pods: Sequence[Map]) -> int:
    return sum(at(each, "status", "phase") not in ENDED for each in pods)


def _ending(pods: Sequence[Map]) -> Health:
    count = _remaining(pods)
    message = f"{count} {'pod is' if count == 1 else 'pods are'} still ending" if count else "being deleted"
    return Health(HealthState.STARTING, "Stopping", message)


def _numbers(wanted: int, updated: int, available: int, old: int) -> str:
    noun = "replica" if wanted == 1 else "replicas"
    more = f", {old} still to end" if old else ""
    return f"{min(updated, wanted)} of {wanted} {noun} updated, {available} of {wanted} available{more}"


def _label(pod: Map, name: str) -> str:
    return text_at(pod, "metadata", "labels", name)


def _has_template(cron_job: Map, pod: Map) -> bool:
    """Whether the pod of a run began with the template that is in force."""
    mark = ("metadata", "annotations", SPEC)
    return text_at(cron_job, "spec", "jobTemplate", "spec", "template", *mark) == text_at(pod, *mark)


def _created(pod: Map) -> float:
    return moment_at(pod, "metadata", "creationTimestamp") or 0.0


def _newest_hash(live: Map, pods: Sequence[Map]) -> str:
    """The hash of a Deployment's newest version: as its controller names it, else that of the newest pod."""
    if (
        named := re.search(r'"[^"]*-([a-z0-9]+)"', text_at(condition(live, "Progressing"), "message"))
    ) is not None:
        return named[1]
    return _label(max(pods, key=_created, default={}), TEMPLATE_HASH)


def _not_created(live: Map, wanted: int, old: int, mask: Mask) -> Problem | None:
    failure = condition(live, "ReplicaFailure")
    if failure.get("status") != "True":
        return None
    found = creation_problem(text_at(failure, "message"), mask)
    if found.code == "QuotaExceeded" and old and _may_end(live, wanted):
        return found._replace(certain=False)
    return found


def _lacking(live: Map, pods: Sequence[Map], wanted: int) -> str:
    """The uid of a workload that has fewer pods than asked for, while there is none that it may be waiting for."""
    living = [each for each in pods if not is_terminating(each) and at(each, "status", "phase") not in ENDED]
    return uid_of(live) if len(living) < wanted and all(map(is_ready, living)) else ""


def _run_without_pods(live: Map, pods: Sequence[Map]) -> str:
    """The uid of a Job of a CronJob that is under way and has no pod; "" when there is none."""
    return next(iter(sorted(_active(live).difference(*map(_owners, pods)))), "")


def _active(cron_job: Map) -> set[str]:
    """The uids of the Jobs of a CronJob that are under way."""
    return {uid for each in maps_at(cron_job, "status", "active") if (uid := text_at(each, "uid"))}


def _owners(pod: Map) -> set[str]:
    return {text_at(each, "uid") for each in maps_at(pod, "metadata", "ownerReferences")}


def _last_progress(live: Map, pods: Sequence[Map]) -> float:
    """When a workload was last asked for something else, or got a pod: what was refused before says nothing."""
    writes = [each for each in maps_at(live, "metadata", "managedFields") if not each.get("subresource")]
    moments = [moment_at(each, "time") or 0.0 for each in writes]
    return max([_created(live), *moments, *map(_created, pods)])


def _refused(warnings: Sequence[Warned], mask: Mask, after: float = 0.0) -> Problem | None:
    """Why the cluster could not create the pods of a workload, as its newest event since a moment says."""
    told = [each for each in warnings if each.reason in _NOT_CREATED and each.last >= after]
    newest = max(told, key=lambda each: each.last, default=None)
    return newest and creation_problem(newest.message, mask)._replace(since=newest.first)


def _may_end(live: Map, wanted: int) -> bool:
    """Whether old replicas of a Deployment may end before new ones are available, and so make room."""
    amount = at(live, "spec", "strategy", "rollingUpdate", "maxUnavailable")
    if isinstance(amount, str) and re.fullmatch(r"[0-9]{1,3}%", amount):
        return wanted * int(amount[:-1]) // 100 > 0
    return type(amount) is int and amount > 0


def creation_problem(message: str, mask: Mask = MASK) -> Problem:
    """Why the cluster could not create a pod, from its own words, as conditions and events give them."""
    said = " ".join(mask(message).split())
    said = said if len(said) <= SAID_LENGTH else f"{said[: SAID_LENGTH - 1]}…"
    if "exceeded quota" in message or "failed quota" in message:
        return Problem("QuotaExceeded", f"the quota has no room for its pods: {said}", certain=True)
    if "failed calling webhook" in message:  # it did not answer, which is no refusal
        return Problem("PodsNotCreated", f"its pods cannot be created: {said}")
    if re.search(r"denied the request|forbidden|violates PodSecurity", message):
        return Problem("AdmissionDenied", f"the cluster refuses its pods: {said}", certain=True)
    return Problem("PodsNotCreated", f"its pods cannot be created{f': {said}' if said else ''}")


def _blocked(live: Map, old: Sequence[Map], now: float, mask: Mask) -> Problem | None:
    """The pod of the earlier version that keeps a StatefulSet from going on: it waits until that is ready, which a
    broken one never is."""
    if at(live, "spec", "podManagementPolicy") == "Parallel":
        return None
    for pod in old:
        found = problem_of(pod, now, mask)
        if found is not None and found.certain:
            way_out = (
                f"the update waits for a pod of the earlier version; delete it: kubectl delete pod {name_of(pod)}"
            )
            return Problem("UpdateBlocked", f"{way_out}. It does not come up: {found.sentence}", certain=True)
    return None
