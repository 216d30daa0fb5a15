"""What a document for a cluster may not say: pure. Patches are judged in ``patches.py``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gitops_agent.drivers.api import AgentKey, Compilation, Refused
from gitops_agent.drivers.kubernetes.contexts import may_name, not_allowed, way_out
from gitops_agent.drivers.kubernetes.kinds import CRON_JOB, STATEFUL_SET
from gitops_agent.drivers.kubernetes.marks import BUNDLE_FOLDER, BUNDLE_VOLUME, DRIVER
from gitops_agent.drivers.kubernetes.options import DNS_LABEL, Claim, KubernetesOptions, Settings, Volume
from gitops_agent.drivers.kubernetes.patches import RESERVED, RESERVED_NOTES
from gitops_agent.drivers.local.spec import secret_problem
from gitops_agent.model.document import RESERVED_ENV, Runtime

MAX_BUNDLE_BYTES = 1_000_000  # an object of the API holds 1 MiB at most, its metadata included
MAX_CRON_JOB_NAME = 52  # the controller adds eleven characters for each run


def refusals(asked: Compilation, options: KubernetesOptions) -> Iterator[Refused]:
    """Everything in a document that an agent in a cluster cannot be, each with its address."""
    runtime, at = asked.document.spec.runtime, ("runtime", DRIVER)
    if not runtime.image:
        yield Refused("driver kubernetes needs runtime.image: the container image of the agent", ("runtime",))
    yield from _context_refusals(asked, options)
    if runtime.stop.signal != "SIGTERM":
        yield Refused(
            "a pod is ended by SIGTERM; another signal is the image's to set", ("runtime", "stop", "signal")
        )
    yield from _workload_refusals(runtime, options)
    if len(asked.bundle.raw) > MAX_BUNDLE_BYTES:
        yield Refused(f"its bundle has {len(asked.bundle.raw)} bytes; a ConfigMap holds {MAX_BUNDLE_BYTES}", ())
    for position, variable in enumerate(runtime.env):
        problem = secret_problem(variable.value_from.secret_ref) if variable.value_from is not None else ""
        if problem:
            yield Refused(f"runtime.env {variable.name}: {problem}", ("runtime", "env", position))
    retired = asked.document.spec.hooks.on_retired
    if retired is not None and retired.command is not None:
        yield Refused(
            "a command needs a pod, and there is none when the agent has ended: use http",
            ("hooks", "onRetired", "command"),
        )
    twice = {each.name for each in runtime.env} & {each.name for each in options.secret_env}
    if twice:
        yield Refused(f"both env and secretEnv set {', '.join(sorted(twice))}", (*at, "secretEnv"))
    reserved = sorted(each.name for each in options.secret_env if each.name.startswith(RESERVED_ENV))
    if reserved:
        yield Refused(f"{', '.join(reserved)} is set by gitops-agent", (*at, "secretEnv"))
    yield from _repeated(options)
    for where, given, ours in (
        ("podLabels", options.pod_labels, RESERVED),
        ("podAnnotations", options.pod_annotations, RESERVED_NOTES),
    ):
        for name in sorted(given.keys() & ours):
            yield Refused(f"{name} is set by gitops-agent", (*at, where))
    yield from _name_refusals(asked.agent, options)


def _context_refusals(asked: Compilation, options: KubernetesOptions) -> Iterator[Refused]:
    tenant, context = asked.agent.tenant, options.context or ""
    if isinstance(asked.settings, Settings) and not may_name(asked.settings, context, tenant):
        yield Refused(f"{not_allowed(context, tenant)}: {way_out(context)}", ("runtime", DRIVER, "context"))


def _repeated(options: KubernetesOptions) -> Iterator[Refused]:
    """What stands twice in a list that the API server takes apart by it: it refuses the whole object."""
    kept: tuple[Volume | Claim, ...] = (*options.volumes, *options.claims)
    names = (BUNDLE_VOLUME, *(each.name for each in kept))
    paths = (BUNDLE_FOLDER, *(each.mount_path.rstrip("/") or "/" for each in kept))
    for where, what, values in (
        ("ports", "more than one port is", [f"{each.port}/{each.protocol}" for each in options.ports]),
        ("volumes", "more than one volume is called", names),
        ("volumes", "more than one volume is mounted at", paths),
    ):
        for value, count in Counter(values).items():
            if count > 1:
                ours = " (its bundle is there)" if value in (BUNDLE_VOLUME, BUNDLE_FOLDER) else ""
                yield Refused(f"{what} {value}{ours}", ("runtime", DRIVER, where))


def _workload_refusals(runtime: Runtime, options: KubernetesOptions) -> Iterator[Refused]:
    at = ("runtime", DRIVER)
    if options.workload == CRON_JOB.kind:
        yield from _schedule_refusals(runtime, options)
    elif options.schedule:
        yield Refused("a schedule needs workload: CronJob", (*at, "schedule"))
    if options.claims and options.workload != STATEFUL_SET.kind:
        yield Refused("claims are kept per replica, which needs workload: StatefulSet", (*at, "claims"))
    yield from _update_refusals(runtime, options)


def _update_refusals(runtime: Runtime, options: KubernetesOptions) -> Iterator[Refused]:
    """What a document says about how pods follow a change, and a workload of its kind does not do."""
    at, asked = ("runtime", DRIVER, "update"), options.update
    surges, missing = int(asked.max_surge.rstrip("%")), asked.max_unavailable
    if options.workload == CRON_JOB.kind:
        if asked.model_fields_set:
            yield Refused("a CronJob has no pods that follow a change: its next run does", at)
    elif options.workload == STATEFUL_SET.kind:
        # Its API has a maxUnavailable too. The server drops it without a word unless a feature is on, which by
        # default is off.
        said = "a StatefulSet replaces its pods in place, one by one"
        if surges and "max_surge" in asked.model_fields_set:
            yield Refused(f"{said}: leave maxSurge out", (*at, "maxSurge"))
        if missing != "1" and "max_unavailable" in asked.model_fields_set:
            yield Refused(f"{said}: leave maxUnavailable out, or say 1", (*at, "maxUnavailable"))
        if runtime.update.max_unavailable != 1:
            yield Refused(f"{said}: leave it out, or say 1", ("runtime", "update", "maxUnavailable"))
    elif not (surges or int(missing.rstrip("%")) or _counts_itself(runtime)):
        yield Refused("with maxSurge and maxUnavailable both 0 no pod could follow a change", at)


def _counts_itself(runtime: Runtime) -> bool:
    """Whether the document says elsewhere how many may be missing meanwhile: at least one, or all of them."""
    return runtime.exclusive or "max_unavailable" in runtime.update.model_fields_set


def _schedule_refusals(runtime: Runtime, options: KubernetesOptions) -> Iterator[Refused]:
    at = ("runtime", DRIVER)
    if not options.schedule:
        yield Refused("workload: CronJob needs a schedule, such as '*/15 * * * *'", (*at, "workload"))
    elif not re.fullmatch(r"@[a-z]+|\S+( \S+){4}", options.schedule):
        yield Refused(f"schedule {options.schedule!r} has not five fields", (*at, "schedule"))
    if runtime.replicas != 1:
        yield Refused("a CronJob runs once at a time: leave replicas out", ("runtime", "replicas"))
    if options.ports:
        yield Refused("a CronJob serves no ports", (*at, "ports"))


def _name_refusals(agent: AgentKey, options: KubernetesOptions) -> Iterator[Refused]:
    if options.workload == CRON_JOB.kind and len(agent.name) > MAX_CRON_JOB_NAME:
        yield Refused(f"the name of a CronJob has at most {MAX_CRON_JOB_NAME} characters: {agent.name}", ())
    for what, name in (("tenant", agent.tenant), ("name", agent.name)):
        if not re.fullmatch(DNS_LABEL, name):
            yield Refused(
                f"the {what} {name!r} is no name in a cluster: lower-case letters, digits and dashes", ()
            )
