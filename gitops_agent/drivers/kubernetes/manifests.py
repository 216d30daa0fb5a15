"""From a document to the objects of an agent: pure. One resource for each object, its fields the manifest that we
apply, without what only the connected driver knows (instance, namespace of the tenant, secret values).

The fields of a runtime are the manifest in three parts, so that a change says what it is: ``replicas``,
``template`` (of the pods: a change of it restarts them) and ``manifest`` (the rest).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from gitops_agent.drivers.api import (
    CONFIG,
    CREDENTIAL,
    RUNTIME,
    AgentDocument,
    AgentKey,
    Compilation,
    Fields,
    Refused,
    Resource,
    ResourceKey,
    ResourceKind,
    driver_at,
    health_fields,
    seconds,
)
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP, CRON_JOB, SECRET, SERVICE, STATEFUL_SET
from gitops_agent.drivers.kubernetes.marks import (
    BUNDLE_FOLDER,
    BUNDLE_VOLUME,
    CONFIG_DIGEST,
    CONTAINER,
    DRIVER,
    MANAGED_BY,
    selector_of,
)
from gitops_agent.drivers.kubernetes.options import KubernetesOptions
from gitops_agent.drivers.kubernetes.patches import Manifest, patch_refusals, patched
from gitops_agent.drivers.kubernetes.refusals import refusals
from gitops_agent.model.document import EnvVar, Probe, Runtime
from gitops_agent.model.fields import JSON
from gitops_agent.model.health_spec import FIELD as HEALTH
from gitops_agent.model.health_spec import ON_SECRET_CHANGE

SERVICES = ResourceKind("service", 45, ("spec", "runtime", "kubernetes", "ports"))
"""What makes an agent reachable in its cluster."""

BUNDLE_FILE = "bundle.json"
HOT = "hot"  # in place of the bundle's digest: the agent reads its bundle again by itself

BARE_SECRET: Manifest = {"type": "Opaque"}


def place_of_document(document: AgentDocument, options: KubernetesOptions) -> str:
    """The name of the driver for a document: the plugin, with the context that it names."""
    return driver_at(document.spec.runtime.driver, options.context or "")


def compile_resources(asked: Compilation) -> Sequence[Resource]:
    """The objects of an agent that names this driver; Refused with all reasons when it cannot be run so."""
    spec, runtime = asked.document.spec, asked.document.spec.runtime
    if runtime.driver != DRIVER or spec.lifecycle == "Retired":
        return ()
    options = asked.options if isinstance(asked.options, KubernetesOptions) else KubernetesOptions()
    if refused := list(_all_refusals(asked, options)):
        raise Refused(str(refused[0]), refused[0].at, refused[1:])
    driver = place_of_document(asked.document, options)
    shared: dict[str, JSON] = {"namespace": options.namespace} if options.namespace else {}
    made = [
        _resource(asked.agent, driver, CONFIG, {"kind": CONFIG_MAP.kind, **shared, **_config(asked, options)}),
        _workload(asked, options, driver, shared),
    ]
    if _has_secrets(asked):
        fields = {"kind": SECRET.kind, **shared, **_secret(asked, options)}
        made.append(_resource(asked.agent, driver, CREDENTIAL, fields))
    if _has_service(options):
        fields = {"kind": SERVICE.kind, **shared, "manifest": _service(asked.agent, options)}
        made.append(_resource(asked.agent, driver, SERVICES, fields))
    return made


def run_as(document: AgentDocument) -> dict[str, JSON]:
    """Which cluster a command is run in as the agent."""
    options = getattr(document.spec.runtime, DRIVER, None)
    return {"driver": place_of_document(document, options)} if isinstance(options, KubernetesOptions) else {}


def _resource(agent: AgentKey, driver: str, kind: ResourceKind, fields: Mapping[str, JSON]) -> Resource:
    return Resource(ResourceKey(agent, kind.name, driver), driver, Fields.of(fields))


# -- what is refused


def _all_refusals(asked: Compilation, options: KubernetesOptions) -> Iterator[Refused]:
    yield from refusals(asked, options)
    if asked.document.spec.runtime.image and options.patches:
        template = ("spec", *TEMPLATE_PATHS.get(options.workload, _TEMPLATE))
        yield from patch_refusals(_generated(asked, options), options.patches, template)


def _generated(asked: Compilation, options: KubernetesOptions) -> dict[str | None, Manifest]:
    """The objects of an agent before they are patched, by how patches name them."""
    found: dict[str | None, Manifest] = {
        None: _generated_workload(asked, options),
        CONFIG_MAP.kind: _bare_config(asked),
    }
    if _has_secrets(asked):
        found[SECRET.kind] = BARE_SECRET
    if _has_service(options):
        found[SERVICE.kind] = _bare_service(asked.agent, options)
    return found


def _has_secrets(asked: Compilation) -> bool:
    return any(variable.value_from is not None for variable in asked.document.spec.runtime.env)


def _has_service(options: KubernetesOptions) -> bool:
    return bool(options.ports) or options.workload == STATEFUL_SET.kind


# -- config, secret, service


def _config(asked: Compilation, options: KubernetesOptions) -> dict[str, JSON]:
    return {"manifest": patched(_bare_config(asked), options.patches, CONFIG_MAP.kind)}


def _bare_config(asked: Compilation) -> Manifest:
    return {"data": {BUNDLE_FILE: asked.bundle.raw.decode()}}


def _secret(asked: Compilation, options: KubernetesOptions) -> dict[str, JSON]:
    runtime = asked.document.spec.runtime
    refs = [_reference(variable) for variable in runtime.env if variable.value_from is not None]
    made = {"manifest": patched(BARE_SECRET, options.patches, SECRET.kind), "secrets": refs}
    return {**made, **_followed(runtime)}


def _followed(runtime: Runtime) -> dict[str, JSON]:
    """Whether a secret that was rotated restarts the agent."""
    return {ON_SECRET_CHANGE: "Restart"} if runtime.on_secret_change == "Restart" else {}  # noqa: S105 - a word


def _reference(variable: EnvVar) -> dict[str, JSON]:
    assert variable.value_from is not None
    reference = variable.value_from.secret_ref
    return {"name": variable.name, "secretRef": {"provider": reference.provider, "name": reference.name}}


def _service(agent: AgentKey, options: KubernetesOptions) -> Manifest:
    return patched(_bare_service(agent, options), options.patches, SERVICE.kind)


def _bare_service(agent: AgentKey, options: KubernetesOptions) -> Manifest:
    spec: Manifest = {"selector": selector_of(agent)}
    if options.workload == STATEFUL_SET.kind:
        spec["clusterIP"] = "None"  # each replica has a name of its own
    if options.ports:
        spec["ports"] = [
            {
                "name": each.name,
                "port": each.port,
                "targetPort": each.target_port or each.port,
                "protocol": each.protocol,
            }
            for each in options.ports
        ]
    return {"spec": spec}


# -- the workload


def _workload(asked: Compilation, options: KubernetesOptions, driver: str, shared: Mapping[str, JSON]) -> Resource:
    spec, runtime = asked.document.spec, asked.document.spec.runtime
    stopped = spec.lifecycle == "Stopped"
    manifest = patched(_generated_workload(asked, options), options.patches, None)
    health = health_fields(asked.document)
    if health:  # the cluster probes by itself; heartbeats are core's to judge
        health = {HEALTH: {**health[HEALTH], "probes": {}}}
    # Where live decides how many, we say nothing about it, so that an autoscaler owns the field alone.
    scaled_live = spec.authority.get("runtime.replicas") == "live" and not stopped
    fields = {
        "kind": options.workload,
        **shared,
        **split(manifest),
        **health,
        **({"overwrite": options.overwrite} if options.overwrite != "Hands" else {}),
        **({"scaledBy": "live"} if scaled_live else {}),
        **({"exclusive": True} if runtime.exclusive else {}),
        **_followed(runtime),
    }
    key = ResourceKey(asked.agent, RUNTIME.name, driver)
    return Resource(key, driver, Fields.of(fields), restart_on=RESTARTS, stopped=stopped, kept=stopped)


RESTARTS = ("template", "kind", "namespace")
"""The fields of which a change begins other pods."""

TEMPLATE_PATHS = {CRON_JOB.kind: ("jobTemplate", "spec", "template")}
_TEMPLATE = ("template",)


def split(manifest: Mapping[str, Any]) -> dict[str, JSON]:
    """The manifest of a workload as the fields ``replicas``, ``template`` and ``manifest`` (the rest)."""
    kind, spec = str(manifest.get("kind", "")), dict(manifest.get("spec") or {})
    found: dict[str, JSON] = {}
    if "replicas" in spec:
        found["replicas"] = spec.pop("replicas")
    holder = spec
    *parents, last = TEMPLATE_PATHS.get(kind, _TEMPLATE)
    for step in parents:
        holder[step] = dict(holder.get(step) or {})
        holder = holder[step]
    found["template"] = holder.pop(last, {})
    rest = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "spec")}
    return {**found, "manifest": {**rest, "spec": spec}}


def joined(fields: Mapping[str, Any]) -> Manifest:
    """The manifest that fields were made of, as far as compile knows it: the reverse of ``split``."""
    made: Manifest = dict(fields["manifest"])
    if "template" not in fields:
        return made
    spec = made["spec"] = dict(made.get("spec") or {})
    if "replicas" in fields and fields.get("scaledBy") != "live":
        spec["replicas"] = fields["replicas"]
    *parents, last = TEMPLATE_PATHS.get(fields["kind"], _TEMPLATE)
    for step in parents:
        spec[step] = dict(spec.get(step) or {})
        spec = spec[step]
    spec[last] = fields["template"]
    return made


def _generated_workload(asked: Compilation, options: KubernetesOptions) -> Manifest:
    spec, runtime = asked.document.spec, asked.document.spec.runtime
    stopped, template = spec.lifecycle == "Stopped", _template(asked, options)
    if options.workload == CRON_JOB.kind:
        return {"kind": CRON_JOB.kind, "spec": _cron_job(options, template, stopped=stopped)}
    inside: Manifest = {
        "replicas": 0 if stopped else runtime.replicas,
        "selector": {"matchLabels": selector_of(asked.agent)},
        "minReadySeconds": ceil(seconds(runtime.min_uptime)),
        "revisionHistoryLimit": 2,
        "template": template,
    }
    if options.workload == STATEFUL_SET.kind:
        inside |= {"serviceName": asked.agent.name, "updateStrategy": {"type": "RollingUpdate"}}
        if options.claims:
            inside["volumeClaimTemplates"] = [_claim(each) for each in options.claims]
        return {"kind": STATEFUL_SET.kind, "spec": inside}
    inside["strategy"] = _strategy(runtime, options)
    inside["progressDeadlineSeconds"] = max(
        ceil(seconds(spec.rollout.health_timeout)), inside["minReadySeconds"] + 1
    )
    return {"kind": options.workload, "spec": inside}


def _strategy(runtime: Runtime, options: KubernetesOptions) -> Manifest:
    if runtime.exclusive:
        return {"type": "Recreate"}
    unavailable: int | str = _amount(options.update.max_unavailable)
    if "max_unavailable" in runtime.update.model_fields_set:
        unavailable = runtime.update.max_unavailable
    rolling = {"maxSurge": _amount(options.update.max_surge), "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


def _amount(text: str) -> int | str:
    return text if text.endswith("%") else int(text)


def _cron_job(options: KubernetesOptions, template: Manifest, *, stopped: bool) -> Manifest:
    job: Manifest = {
        "schedule": options.schedule,
        "concurrencyPolicy": "Forbid",
        "suspend": stopped,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": {"backoffLimit": 2, "template": template}},
    }
    return {**job, "timeZone": options.time_zone} if options.time_zone else job


def _claim(claim: Any) -> Manifest:
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": claim.size}}}
    if claim.storage_class:
        spec["storageClassName"] = claim.storage_class
    return {"metadata": {"name": claim.name}, "spec": spec}


def _template(asked: Compilation, options: KubernetesOptions) -> Manifest:
    """The template of the pods. Its annotation names the bundle, so that a new one restarts them; one that the
    agent reads again by itself does not."""
    runtime = asked.document.spec.runtime
    config = HOT if runtime.reload == "Hot" else asked.bundle.digest
    labels = {**options.pod_labels, MANAGED_BY: "gitops-agent", **selector_of(asked.agent)}
    pod: Manifest = {
        "containers": [_container(asked, options)],
        "volumes": [
            {"name": BUNDLE_VOLUME, "configMap": {"name": asked.agent.name}},
            *({"name": each.name, **each.source} for each in options.volumes),
        ],
        "terminationGracePeriodSeconds": ceil(seconds(runtime.stop.grace)),
        "enableServiceLinks": False,
        # An agent that nobody gave a service account has no business with the API, but for its heartbeat.
        "automountServiceAccountToken": bool(options.service_account) or asked.document.spec.heartbeat is not None,
    }
    if options.workload == CRON_JOB.kind:
        pod["restartPolicy"] = "Never"
    for name, value in (
        ("serviceAccountName", options.service_account),
        ("imagePullSecrets", [{"name": each} for each in options.image_pull_secrets]),
        ("nodeSelector", options.node_selector),
        ("tolerations", list(options.tolerations)),
        ("affinity", options.affinity),
    ):
        if value:
            pod[name] = value
    annotations = {**options.pod_annotations, CONFIG_DIGEST: config}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}


def _container(asked: Compilation, options: KubernetesOptions) -> Manifest:
    spec, runtime = asked.document.spec, asked.document.spec.runtime
    made: Manifest = {
        "name": CONTAINER,
        "image": runtime.image,
        "env": _env(asked, options),
        "volumeMounts": [
            {"name": BUNDLE_VOLUME, "mountPath": BUNDLE_FOLDER, "readOnly": True},
            *(_mount(each.name, each.mount_path, read_only=each.read_only) for each in options.volumes),
            *(_mount(each.name, each.mount_path) for each in options.claims),
        ],
    }
    resources = {
        name: amounts
        for name in ("requests", "limits")
        if (amounts := getattr(runtime.resources, name).model_dump(exclude_none=True))
    }
    for name, value in (
        ("command", list(runtime.command)),
        ("workingDir", runtime.workdir),
        ("imagePullPolicy", options.image_pull_policy),
        ("resources", resources),
        ("ports", _container_ports(options)),
        ("readinessProbe", _probe(spec.probes.readiness)),
        ("livenessProbe", _probe(spec.probes.liveness)),
    ):
        if value:
            made[name] = value
    return made


def _container_ports(options: KubernetesOptions) -> list[Manifest]:
    """The ports that the container listens on, each once: several of the Service may lead to one of them."""
    found: dict[tuple[int, str], Manifest] = {}
    for each in options.ports:
        port = each.target_port or each.port
        made = {"name": each.name, "containerPort": port, "protocol": each.protocol}
        found.setdefault((port, each.protocol), made)
    return list(found.values())


def _mount(name: str, path: str, *, read_only: bool = False) -> Manifest:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _env(asked: Compilation, options: KubernetesOptions) -> list[Manifest]:
    """The variables of the container: the document's, references to Secrets, and what an agent needs to find its
    bundle and, where it is to write a heartbeat, its pod."""
    found: list[Manifest] = []
    for variable in asked.document.spec.runtime.env:
        if variable.value_from is None:
            found.append({"name": variable.name, "value": variable.value})
        else:
            found.append(_secret_env(variable.name, asked.agent.name, variable.name))
    found += [_secret_env(each.name, each.secret, each.key) for each in options.secret_env]
    found.append({"name": "MANAGED_AGENT_CONFIG", "value": f"{BUNDLE_FOLDER}/{BUNDLE_FILE}"})
    if asked.document.spec.heartbeat is not None:
        found.append({"name": "MANAGED_AGENT_HEARTBEAT", "value": "pod-annotation"})
        for name, path in (
            ("MANAGED_AGENT_POD", "metadata.name"),
            ("MANAGED_AGENT_NAMESPACE", "metadata.namespace"),
        ):
            found.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return found


def _secret_env(name: str, secret: str, key: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _probe(probe: Probe | None) -> Manifest | None:
    if probe is None:
        return None
    made: Manifest = {
        "periodSeconds": max(1, ceil(seconds(probe.period))),
        "timeoutSeconds": max(1, ceil(seconds(probe.timeout))),
        "failureThreshold": probe.failure_threshold,
    }
    if probe.http is not None:
        return {"httpGet": {"port": probe.http.port, "path": probe.http.path}, **made}
    assert probe.exec is not None
    return {"exec": {"command": list(probe.exec.command)}, **made}
