"""How a workload does, and why: from its own status and from its pods, by the rules of kstatus.

A gate must fail fast on what waiting does not cure (``Health.final``: all that is Unhealthy at once), and must not
call a slow start a failure. So:

| what | state |
|---|---|
| the controller has not seen the change; replicas to be updated, to become available, or to end | Starting, Progressing |
| ImagePullFailed (the registry refuses; when it cannot be reached: as ProbeFailing) | Unhealthy at once |
| CrashLoop, OOMKilled, InitFailed (restarted, and down again) | Unhealthy at once |
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
"""  # noqa: E501 a table

from __future__ import annotations

import re
from collections.abc import Sequence

from gitops_agent.drivers.api import HEALTHY, Class, Health, HealthState, Reason
from gitops_agent.drivers.kubernetes.pod_status import (
    ENDED,
    MASK,
    SAID_LENGTH,
    Mask,
    Problem,
    instances,
    is_ready,
    is_terminating,
    name_of,
    pod_problem,
    problem_of,
    unready_since,
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

__all__ = ["REASONS", "creation_problem", "cron_job_health", "deployment_health", "instances", "pod_problem"]
__all__ += ["service_health", "stateful_set_health", "workload_health"]

DEADLINE_SECONDS = 600
"""How long a workload without progressDeadlineSeconds may take."""
TEMPLATE_HASH, REVISION_HASH = "pod-template-hash", "controller-revision-hash"

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


def workload_health(live: Map, pods: Sequence[Map], now: float, mask: Mask = MASK) -> Health:
    """How an object of an agent does; ``pods``: those of the agent. What has no pods is healthy by being there."""
    kind = text_at(live, "kind")
    if kind == "Service":
        return service_health(live)
    workload = {"Deployment": deployment_health, "StatefulSet": stateful_set_health, "CronJob": cron_job_health}
    return workload[kind](live, pods, now, mask) if kind in workload else HEALTHY


def deployment_health(live: Map, pods: Sequence[Map], now: float, mask: Mask = MASK) -> Health:
    """How a Deployment and its newest pods do."""
    wanted = count_at(live, "spec", "replicas", default=1)
    if (early := _early(live, pods, wanted)) is not None:
        return early
    status = map_at(live, "status")
    updated, available = count_at(status, "updatedReplicas"), count_at(status, "availableReplicas")
    old = max(0, count_at(status, "replicas") - updated)
    done = updated >= wanted and available >= wanted and not old
    newest = [each for each in pods if _label(each, TEMPLATE_HASH) == _newest_hash(live, pods)]
    numbers = _numbers(wanted, updated, available, old)
    if not done and at(live, "spec", "paused") is True:
        return Health(HealthState.STARTING, "RolloutPaused", f"the rollout is paused; {numbers}")
    deadline = count_at(live, "spec", "progressDeadlineSeconds", default=DEADLINE_SECONDS)
    progress = condition(live, "Progressing")
    overdue = progress.get("status") == "False" and progress.get("reason") == "ProgressDeadlineExceeded"
    judged = _Judged(newest, now, mask, deadline, None if done else _not_created(live, wanted, old, mask))
    return judged.health(numbers, done=done, overdue=overdue)


def stateful_set_health(live: Map, pods: Sequence[Map], now: float, mask: Mask = MASK) -> Health:
    """How a StatefulSet and its newest pods do."""
    wanted = count_at(live, "spec", "replicas", default=1)
    if (early := _early(live, pods, wanted)) is not None:
        return early
    status = map_at(live, "status")
    revision, current = text_at(status, "updateRevision"), text_at(status, "currentRevision")
    partition = count_at(live, "spec", "updateStrategy", "rollingUpdate", "partition")
    on_delete = at(live, "spec", "updateStrategy", "type") == "OnDelete"
    due = 0 if on_delete else max(0, wanted - partition)
    # Once all are updated the update revision becomes the current one, and the count may be left out.
    updated = count_at(status, "updatedReplicas", default=wanted if revision == current else 0)
    updated = wanted if revision and revision == current else updated
    available = count_at(status, "availableReplicas", default=count_at(status, "readyReplicas"))
    total = count_at(status, "replicas")
    settled = on_delete or partition > 0 or revision == current
    done = updated >= due and available >= wanted and total == wanted and settled
    newest = [each for each in pods if not revision or _label(each, REVISION_HASH) == revision]
    blocked = _blocked(live, [each for each in pods if each not in newest], now, mask) if updated < due else None
    judged = _Judged(pods if on_delete or partition else newest, now, mask, DEADLINE_SECONDS, blocked)
    return judged.health(_numbers(wanted, min(updated, wanted), available, max(0, total - wanted)), done=done)


def cron_job_health(live: Map, pods: Sequence[Map], now: float, mask: Mask = MASK) -> Health:
    """How a CronJob and the newest pod of its runs do; between runs it is healthy unless the last one failed."""
    if at(live, "metadata", "deletionTimestamp"):
        return _ending(pods)
    if at(live, "spec", "suspend") is True:
        return _ending(pods) if _remaining(pods) else STOPPED
    newest = max(pods, key=_created, default={})
    if at(newest, "status", "phase") != "Failed":
        return _Judged([newest] if newest else [], now, mask, DEADLINE_SECONDS).health("", done=is_ready(newest))
    success = moment_at(live, "status", "lastSuccessfulTime")
    if success is not None and success >= _created(newest):
        return HEALTHY
    problem = problem_of(newest, now, mask)
    said = problem.sentence if problem is not None else f"pod {name_of(newest)} failed"
    return Health(HealthState.UNHEALTHY, "RunFailed", f"the last run failed: {said}", instances=(name_of(newest),))


def service_health(live: Map, _pods: Sequence[Map] = (), _now: float = 0.0) -> Health:
    """How a Service does: healthy, once its load balancer has an address if it asks for one."""
    if at(live, "metadata", "deletionTimestamp"):
        return Health(HealthState.STARTING, "Stopping", "being deleted")
    waits = at(live, "spec", "type") == "LoadBalancer" and not maps_at(live, "status", "loadBalancer", "ingress")
    message = "the load balancer has no address yet"
    return Health(HealthState.STARTING, "LoadBalancerPending", message) if waits else HEALTHY


# -- the verdict over the pods that count


class _Judged:
    """The pods of one version, judged. ``other``: a problem of the workload itself, which comes first."""

    def __init__(
        self, pods: Sequence[Map], now: float, mask: Mask, deadline: int, other: Problem | None = None
    ) -> None:
        self._now = now
        self._deadline = deadline
        living = [each for each in pods if not is_terminating(each)]
        # What ended is kept for a while: it counts only when nothing came after it.
        running = [each for each in living if at(each, "status", "phase") not in ENDED]
        self._pods = running or [each for each in living if at(each, "status", "phase") == "Failed"]
        found = ((each, problem_of(each, now, mask)) for each in self._pods)
        self._found: list[tuple[Map, Problem]] = [] if other is None else [({}, other)]
        self._found += [(each, problem) for each, problem in found if problem is not None]

    def health(self, numbers: str, *, done: bool, overdue: bool = False) -> Health:
        """The health of the workload. ``done``: by its own status it is as asked for."""
        certain = next((problem for _, problem in self._found if problem.certain), None)
        if certain is not None:
            return self._health(HealthState.UNHEALTHY, certain.code, certain.sentence, numbers, final=True)
        if done or (not self._found and not numbers):
            return HEALTHY
        if self._found:
            late = overdue or any(self._is_late(pod) for pod, _ in self._found)
            problem = self._found[0][1]
            state = HealthState.UNHEALTHY if late else HealthState.STARTING
            return self._health(state, problem.code, problem.sentence, numbers)
        if overdue:
            message = f"the rollout did not end within {self._deadline} s"
            return self._health(HealthState.UNHEALTHY, "ProgressDeadlineExceeded", message, numbers)
        return self._health(HealthState.STARTING, "Progressing", "", numbers)

    def _is_late(self, pod: Map) -> bool:
        since = unready_since(pod)
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
