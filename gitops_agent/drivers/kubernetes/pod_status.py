"""What is wrong with one pod, in a sentence, and the running copies of an agent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gitops_agent.drivers.api import AgentInstance, Heartbeat, Redactor, parse_heartbeat
from gitops_agent.drivers.kubernetes.marks import CONTAINER, HEARTBEAT, RESTARTED_AT, SPEC, WRITING
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

Mask = Callable[[str], str]
MASK: Mask = Redactor()
"""Hides what looks like a secret; the driver's own redactor also knows those that it resolved."""

ENDED = ("Succeeded", "Failed")
PENDING_SECONDS = 30.0
"""How long a pod may take to be created before that is worth a word."""
STEADY_SECONDS = 60.0
"""A run that lasted for less, and is not the first, is one of a loop."""
SAID_LENGTH = 300

_PULL = (
    *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
    *("RegistryUnavailable", "SignatureValidationFailed"),
)
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_PASSING = re.compile(
    r"timeout|timed out|deadline exceeded|dial tcp|connection re|no such host|too ?many ?requests|unavailable"
    r"|unexpected EOF|\b(429|500|502|503|504)\b",
    re.IGNORECASE,
)
"""What a registry says that may well answer a minute later."""


class Problem(NamedTuple):
    """Why a pod does not serve. ``certain``: it does not end by waiting. ``since``: for how long at least, where
    no pod says so."""

    code: str
    sentence: str
    certain: bool = False
    since: float | None = None

    @property
    def by_event(self) -> bool:
        """Whether only the events of the pod say why."""
        return self.code in _TOLD_BY_EVENTS


class Warned(NamedTuple):
    """What an event of type Warning says of an object, first and last at these moments."""

    reason: str
    message: str
    first: float
    last: float


_TOLD_BY_EVENTS: dict[str, Callable[[Warned], bool]] = {
    "ProbeFailing": lambda told: told.reason == "Unhealthy" and not told.message.startswith("Liveness"),
    # That no node had room for it is over: it has one.
    "PodPending": lambda told: told.reason not in ("FailedScheduling", "Unhealthy"),
}
"""The problems of pods whose cause is only in events, and which events are about it."""


def with_warning(problem: Problem, warnings: Sequence[Warned], mask: Mask = MASK) -> Problem:
    """The problem of a pod with what its newest event about it says."""
    is_about = _TOLD_BY_EVENTS.get(problem.code)
    newest = max(filter(is_about, warnings), key=lambda told: told.last, default=None) if is_about else None
    if newest is None:
        return problem
    if problem.code == "ProbeFailing":  # without what the problem says already
        said = re.sub(r"^\w+ probe (failed|errored)[^:]*:", "", newest.message)
        return problem._replace(sentence=problem.sentence + _plain(mask(_said(said))))
    return problem._replace(sentence=f"{problem.sentence}. Last warning{_plain(mask(_said(newest.message)))}")


def pod_problem(pod: Map, now: float, mask: Mask = MASK) -> tuple[str, str] | None:
    """The reason code and a sentence for what is wrong with one pod; None while nothing is."""
    found = problem_of(pod, now, mask)
    return None if found is None else (found.code, found.sentence)


def problem_of(pod: Map, now: float, mask: Mask = MASK) -> Problem | None:
    """What is wrong with one pod; None while nothing is, and when it is being deleted."""
    if is_terminating(pod) or _is_well(pod):
        return None
    found = next((problem for check in _CHECKS if (problem := check(pod, now)) is not None), None)
    # Masked before it is cut: half a secret would not be recognised.
    return None if found is None else found._replace(sentence=_plain(mask(found.sentence)))


def _is_well(pod: Map) -> bool:
    """Whether it is plain that nothing is wrong, as with nearly all pods: no more is looked at then."""
    containers = _containers(pod)
    plain = at(pod, "status", "phase") == "Running" and is_ready(pod) and not _init_containers(pod)
    return (
        plain
        and bool(containers)
        and all(each.get("ready") and not each.get("restartCount") for each in containers)
    )


def is_terminating(pod: Map) -> bool:
    """Whether a pod is being deleted."""
    return bool(at(pod, "metadata", "deletionTimestamp"))


def is_ready(pod: Map) -> bool:
    """Whether the cluster finds a pod ready to serve."""
    return condition(pod, "Ready").get("status") == "True"


def unready_since(pod: Map) -> float | None:
    """Since when a pod is not ready; None when it does not say."""
    since = moment_at(condition(pod, "Ready"), "lastTransitionTime")
    return since if since is not None else moment_at(pod, "metadata", "creationTimestamp")


def name_of(pod: Map) -> str:
    """The name of a pod."""
    return text_at(pod, "metadata", "name")


def uid_of(live: Map) -> str:
    """What tells an object from all others that ever had its name."""
    return text_at(live, "metadata", "uid")


# -- the checks, the most telling first


def _ended(pod: Map, _now: float) -> Problem | None:
    if at(pod, "status", "phase") != "Failed":
        return None
    reason, said = text_at(pod, "status", "reason"), _said(text_at(pod, "status", "message"))
    if reason:  # the node ended it, not its own doing
        evicted = reason == "Evicted"
        word = "was evicted from its node" if evicted else f"was ended by its node ({reason})"
        return Problem("Evicted" if evicted else "PodFailed", f"pod {name_of(pod)} {word}{said}")
    ends = [map_at(each, "state", "terminated") for each in _containers(pod)]
    end = next((each for each in ends if _code(each)), map_at({}))
    code = "OOMKilled" if text_at(end, "reason") == "OOMKilled" else "PodFailed"
    how = f" (code {_code(end)})" if end else ""
    return Problem(code, f"pod {name_of(pod)} failed{how}{_output(end)}", certain=True)


def _unscheduled(pod: Map, _now: float) -> Problem | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    said = _said(text_at(scheduled, "message"))
    if text_at(scheduled, "reason") == "SchedulingGated":
        return Problem("PodPending", f"pod {name_of(pod)} is held back by a scheduling gate{said}")
    return Problem("Unschedulable", f"no node for pod {name_of(pod)}{said}")


def _not_started(pod: Map, now: float) -> Problem | None:
    """A container that cannot be started, or does not stay up; init containers first, as they run first."""
    statuses = [*_init_containers(pod), *_containers(pod)]
    helpers = _sidecars(pod)
    for status in statuses:
        found = _cannot_start(pod, status) or _keeps_exiting(pod, status, now)
        if found is None:
            continue
        is_init = status in _init_containers(pod) and text_at(status, "name") not in helpers
        if is_init and found.code in ("CrashLoop", "OOMKilled", "Exited"):
            return found._replace(code="InitFailed")
        return found
    return None


def _cannot_start(pod: Map, status: Map) -> Problem | None:
    waiting = map_at(status, "state", "waiting")
    reason, message = text_at(waiting, "reason"), text_at(waiting, "message")
    who = _who(pod, status)
    if reason in _PULL:
        image = text_at(status, "image") or text_at(_spec_of(pod, status), "image")
        certain = not _PASSING.search(message)
        # Before what the registry says, which may be long, and is cut.
        way_out = "correct the image or its pull secret" if certain else "the cluster tries again by itself"
        told = f"{who} cannot get the image {image} ({way_out}){_said(message or reason)}"
        return Problem("ImagePullFailed", told, certain)
    if reason in _CONFIG:
        return Problem("ContainerConfigError", f"{who} cannot be started{_said(message or reason)}", certain=True)
    return None


def _keeps_exiting(pod: Map, status: Map, now: float) -> Problem | None:
    restarts = count_at(status, "restartCount")
    now_ended, before = map_at(status, "state", "terminated"), map_at(status, "lastState", "terminated")
    looping = text_at(status, "state", "waiting", "reason") == "CrashLoopBackOff"
    if now_ended and not _code(now_ended) and not looping:
        return None  # done, as an init container or a run of a CronJob is
    end = now_ended or before
    if not (looping or now_ended or _is_flapping(status, before, restarts, now)):
        return None
    steady = not looping and (_lasted(end) or 0.0) >= STEADY_SECONDS
    oom_killed = text_at(end, "reason") == "OOMKilled"
    if (now_ended and restarts == 0) or (steady and not oom_killed):
        said = f"{_who(pod, status)} exited (code {_code(end)}) and is started again{_output(end)}"
        return Problem("Exited", said)
    if oom_killed:
        limit = text_at(_spec_of(pod, status), "resources", "limits", "memory")
        over = f"its limit of {limit} memory" if limit else "the memory of its node"
        said = f"{_who(pod, status)} needs more than {over}, {_times(restarts)}"
        return Problem("OOMKilled", said, certain=not steady)
    code = f" (code {_code(end)})" if end else ""
    said = f"{_who(pod, status)} keeps exiting{code}, {_times(restarts)}{_output(end)}"
    return Problem("CrashLoop", said, certain=True)


def _is_flapping(status: Map, before: Map, restarts: int, now: float) -> bool:
    """Whether a container runs only for the moment: the last run was short, and this one still is."""
    started = moment_at(status, "state", "running", "startedAt")
    lasted = _lasted(before)
    if restarts < 2 or started is None or lasted is None:
        return False
    return lasted < STEADY_SECONDS and now - started < STEADY_SECONDS


def _lasted(end: Map) -> float | None:
    """For how long a run lasted; None where it does not say."""
    first, last = moment_at(end, "startedAt"), moment_at(end, "finishedAt")
    return None if first is None or last is None else last - first


def _not_created(pod: Map, now: float) -> Problem | None:
    created = moment_at(pod, "metadata", "creationTimestamp")
    if at(pod, "status", "phase") != "Pending" or created is None or now - created < PENDING_SECONDS:
        return None
    waiting = (map_at(each, "state", "waiting") for each in (*_init_containers(pod), *_containers(pod)))
    why = next((text for each in waiting if (text := text_at(each, "message") or text_at(each, "reason"))), "")
    said = f"pod {name_of(pod)} is not started after {int(now - created)} s{_said(why)}"
    return Problem("PodPending", f"{said}. See: kubectl describe pod {name_of(pod)}")


def _unready(pod: Map, now: float) -> Problem | None:
    if at(pod, "status", "phase") == "Unknown":
        return Problem("NodeLost", f"the node of pod {name_of(pod)} does not answer")
    if at(pod, "status", "phase") != "Running" or is_ready(pod):
        return None
    statuses = _containers(pod)
    for status in statuses:
        if not status.get("ready") and (found := _probe_fails(pod, status, now)) is not None:
            return found
    if statuses and all(each.get("ready") for each in statuses) and condition(pod, "Ready"):
        if at(pod, "spec", "readinessGates"):
            return Problem("PodPending", f"pod {name_of(pod)} waits for its readiness gates")
        # Its containers are ready and it is not: the cluster no longer hears from the node.
        return Problem("NodeLost", f"the node of pod {name_of(pod)} does not answer")
    return None


def _probe_fails(pod: Map, status: Map, now: float) -> Problem | None:
    """A container that runs and is not ready, for longer than its probe may need to find it so."""
    spec = _spec_of(pod, status)
    kind = "startup" if map_at(spec, "startupProbe") and status.get("started") is False else "readiness"
    probe = map_at(spec, f"{kind}Probe")
    started = moment_at(status, "state", "running", "startedAt")
    if not probe or started is None:
        return None
    threshold = count_at(probe, "failureThreshold", default=3)
    first = count_at(probe, "initialDelaySeconds") + count_at(probe, "periodSeconds", default=10) * threshold
    if now - started < first:
        return None
    return Problem("ProbeFailing", f"{_who(pod, status)} runs, but its {kind} probe fails")


_CHECKS: tuple[Callable[[Map, float], Problem | None], ...] = (_ended, _unscheduled, _not_started, _not_created)
_CHECKS += (_unready,)


# -- words


def _containers(pod: Map) -> list[Map]:
    return maps_at(pod, "status", "containerStatuses")


def _init_containers(pod: Map) -> list[Map]:
    return maps_at(pod, "status", "initContainerStatuses")


def _sidecars(pod: Map) -> set[str]:
    """The init containers that run beside the others."""
    found = maps_at(pod, "spec", "initContainers")
    return {text_at(each, "name") for each in found if each.get("restartPolicy") == "Always"}


def _spec_of(pod: Map, status: Map) -> Map:
    specs = (*maps_at(pod, "spec", "containers"), *maps_at(pod, "spec", "initContainers"))
    return next((each for each in specs if each.get("name") == status.get("name")), {})


def _who(pod: Map, status: Map) -> str:
    container = text_at(status, "name")
    return (
        f"pod {name_of(pod)}" if container in ("", CONTAINER) else f"container {container} of pod {name_of(pod)}"
    )


def _code(end: Map) -> int:
    return count_at(end, "exitCode")


def _times(restarts: int) -> str:
    return "1 restart" if restarts == 1 else f"{restarts} restarts"


def _output(end: Map) -> str:
    message = " ".join(text_at(end, "message").split())
    return f". Last output: {message}" if message else ""


def _said(message: str) -> str:
    return f": {' '.join(message.split())}" if message.strip() else ""


def _plain(text: str) -> str:
    cut = text if len(text) <= SAID_LENGTH else f"{text[: SAID_LENGTH - 1]}…"
    return "".join(letter if letter.isprintable() else " " for letter in cut)


# -- the running copies

_OF_TEMPLATE = (SPEC, WRITING, RESTARTED_AT)
"""The annotations by which a pod is known to be of a template: webhooks may rewrite any other."""


def instances(
    pods: Iterable[Map], now: float, mask: Mask = MASK, template: Map | None = None
) -> tuple[AgentInstance, ...]:
    """The running copies of an agent, by name; pods that are ending or have ended are none. A copy starts when its
    container does, so that a restart in place is a new start. ``template``: that of the workload now; a pod of
    another one is still to be replaced."""
    notes = map_at(template or {}, "metadata", "annotations")
    marks = {name: notes[name] for name in _OF_TEMPLATE if name in notes}
    living = (each for each in pods if not is_terminating(each) and at(each, "status", "phase") not in ENDED)
    found = (
        AgentInstance(
            name_of(each),
            _started(each),
            is_ready(each),
            _beat(each, now, mask),
            behind=any(at(each, "metadata", "annotations", name) != value for name, value in marks.items()),
            uid=text_at(each, "metadata", "uid"),
        )
        for each in living
        if name_of(each)
    )
    return tuple(sorted(found, key=lambda copy: copy.id))


def _started(pod: Map) -> float | None:
    main = [each for each in _containers(pod) if each.get("name") == CONTAINER] or _containers(pod)[:1]
    return moment_at(main[0], "state", "running", "startedAt") if main else None


def _beat(pod: Map, now: float, mask: Mask) -> Heartbeat | None:
    text = text_at(pod, "metadata", "annotations", HEARTBEAT)
    return parse_heartbeat(text, now, _written_at(pod), mask) if text else None


def _written_at(pod: Map) -> float | None:
    """When the annotation was last written, by the clock of the API server; else when the pod started."""
    step = f"f:{HEARTBEAT}"
    entries = maps_at(pod, "metadata", "managedFields")
    writes = [e for e in entries if step in map_at(e, "fieldsV1", "f:metadata", "f:annotations")]
    moments = [moment for each in writes if (moment := moment_at(each, "time")) is not None]
    return max(moments, default=moment_at(pod, "status", "startTime"))
