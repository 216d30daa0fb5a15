"""What documents may say under ``spec.runtime.kubernetes``, and operators set under ``drivers.kubernetes``."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from gitops_agent.drivers.api import Strict
from gitops_agent.model.scalars import EnvName, Memory, Texts, Word, distinct

DNS_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
PortName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$")]
DnsLabel = Annotated[str, StringConstraints(pattern=DNS_LABEL)]
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
ContextName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/-]{0,251}[A-Za-z0-9])?$")]
PortNumber = Annotated[int, Field(ge=1, le=65535)]
AmountText = Annotated[str, StringConstraints(pattern=r"^([0-9]{1,4}|[0-9]{1,2}%|100%)$")]
MountPath = Annotated[str, StringConstraints(pattern=r"^/[^:\x00-\x1f]{0,1023}$")]


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Amount = Annotated[
    AmountText,
    BeforeValidator(_as_text, json_schema_input_type=AmountText | Annotated[int, Field(ge=0, le=9999)]),
]
"""Of pods: a number, which people write without quotes as the API has it, or a share such as ``25%``."""


class Port(Strict):
    """A port that the agent listens on: in the container, and in its Service under the same name."""

    name: PortName
    port: PortNumber
    target_port: PortNumber | None = None
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class SecretEnv(Strict):
    """An environment variable from a Secret of the agent's own namespace that others keep there."""

    name: EnvName
    secret: ObjectName
    key: Word


class Volume(Strict):
    """A volume, mounted into the container. ``source``: as the API writes it, such as ``{emptyDir: {}}``."""

    name: DnsLabel
    mount_path: MountPath
    read_only: bool = False
    source: dict[str, Any]


class Claim(Strict):
    """Memory on disk that each replica of a StatefulSet keeps: it outlives the pod."""

    name: DnsLabel
    mount_path: MountPath
    size: Memory
    storage_class: ObjectName | None = None


class Rolling(Strict):
    """How pods follow a change: so many more than asked for, so many fewer."""

    max_surge: Amount = "1"
    max_unavailable: Amount = "0"


class ObjectPatch(Strict):
    """One step of RFC 6902 on a generated object. ``kind``: which one; without it, the workload."""

    kind: Literal["ConfigMap", "Secret", "Service"] | None = None
    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: str
    value: Any = None
    from_: str | None = Field(default=None, alias="from")

    def step(self) -> dict[str, Any]:
        """The step as RFC 6902 writes it."""
        given: dict[str, Any] = {"op": self.op, "path": self.path}
        if self.op in ("add", "replace", "test"):
            given["value"] = deepcopy(self.value)  # a later step may reach into it
        return {**given, "from": self.from_} if self.op in ("move", "copy") else given


class KubernetesOptions(Strict):
    """``spec.runtime.kubernetes``: how an agent runs in a cluster.

    ``context``: the kubeconfig context of the cluster; without it, the one that the settings name. ``namespace``:
    without it, that of the tenant. ``overwrite``: whose changes to fields of ours are undone: those made by hand
    with kubectl and its like, those of all managers, or none."""

    context: ContextName | None = None
    namespace: DnsLabel | None = None
    workload: Literal["Deployment", "StatefulSet", "CronJob"] = "Deployment"
    schedule: Word | None = None
    time_zone: Word | None = None
    ports: Annotated[tuple[Port, ...], AfterValidator(distinct)] = ()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: Annotated[tuple[ObjectName, ...], AfterValidator(distinct)] = ()
    service_account: ObjectName | None = None
    secret_env: Annotated[tuple[SecretEnv, ...], AfterValidator(distinct)] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = Field(default_factory=dict)
    volumes: Annotated[tuple[Volume, ...], AfterValidator(distinct)] = ()
    claims: Annotated[tuple[Claim, ...], AfterValidator(distinct)] = ()
    pod_labels: dict[str, str] = Field(default_factory=dict)
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    update: Rolling = Rolling()
    overwrite: Literal["Hands", "All", "None"] = "Hands"
    patches: tuple[ObjectPatch, ...] = ()


def _fit_namespace(template: str) -> str:
    """The template; ValueError when it gives no namespace, or two tenants the same one."""
    if "{tenant}" not in template:
        raise ValueError("it must have {tenant} in it, or two tenants would share a namespace")
    if not re.fullmatch(DNS_LABEL, template.replace("{tenant}", "x").replace("{instance}", "x")):
        raise ValueError("only lower-case letters, digits, dashes, {tenant} and {instance}, at most 63 characters")
    return template


NamespaceTemplate = Annotated[str, AfterValidator(_fit_namespace)]

_BY_HAND = ("annotate", "create", "edit", "expose", "label", "patch", "replace", "rollout", "run", "scale", "set")
HANDS = (
    "kubectl",  # kubectl scale, which leaves no verb in its name
    *(f"kubectl-{verb}" for verb in _BY_HAND),
    "oc",
    *(f"oc-{verb}" for verb in _BY_HAND),
    "k9s",
    "Lens",
    "Mozilla",
    "dashboard",
)
"""The tools of people, not those of pipelines such as ``kubectl apply`` (``kubectl-client-side-apply``)."""


class Settings(BaseModel):
    """``drivers.kubernetes``: how clusters are reached, and what may be done in them."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    kubeconfig: str = Field("", description="The kubeconfig file; else $KUBECONFIG, else ~/.kube/config.")
    context: str = Field("", description="The context for documents that name none; else the current one.")
    in_cluster: bool = Field(
        False, description="Use the service account of our own pod, also where a kubeconfig is found."
    )
    contexts: Texts = Field(
        (),
        description="The contexts that documents may name, as patterns: `staging`, `eu-*`, or `acme=staging` for "
        "the tenant acme alone. Empty: none but the default one.",
    )
    allow_exec: bool = Field(False, description="Whether a kubeconfig may run programs for its credentials.")
    allow_insecure: bool = Field(False, description="Whether a kubeconfig may leave certificates unchecked.")
    namespace: NamespaceTemplate = Field(
        "{tenant}", description="The namespace of a tenant; `{tenant}` and `{instance}` are filled in."
    )
    namespaces: Texts = Field(
        (), description="The only namespaces to look at; empty: all, which needs rights in all of them."
    )
    create_namespaces: bool = Field(True, description="Whether the namespace of a tenant is made when missing.")
    delete_namespaces: bool = Field(
        False, description="Whether a namespace that we made is deleted when no agent is left in it."
    )
    pod_security: Literal["", "privileged", "baseline", "restricted"] = Field(
        "baseline", description="The Pod Security level of namespaces that we make; empty: none."
    )
    impersonate: str = Field(
        "",
        description="The user that writes for a tenant, such as "
        "`system:serviceaccount:{namespace}:gitops-agent`; empty: ourselves.",
    )
    allow_host_access: bool = Field(
        False,
        description="Whether pods may reach the host they run on: hostPath, hostNetwork, hostPID, hostIPC, "
        "hostPort, privileged, capabilities and all else that `baseline` forbids, probes and hooks of another "
        "`host`; and whether Services may take addresses of others (`externalIPs`).",
    )
    max_overwrite: Literal["None", "Hands", "All"] = Field(
        "Hands", description="The most that `overwrite` of a document can undo."
    )
    hands: Texts = Field(
        HANDS,
        description="Field managers that are people, as patterns: with `overwrite: Hands` what they change is "
        "undone. What is written by server-side apply is never by hand, whatever its name.",
    )
    timeout: float = Field(10.0, gt=0, le=300, description="Seconds that one request may take.")
    stale_after: float = Field(
        45.0, gt=0, description="Seconds without contact after which what a watch said no longer counts."
    )
    election_namespace: str = Field("", description="Where the Lease for the election is; else our own namespace.")
    fence_as: str = Field(
        "",
        description="Who we are, such as `system:serviceaccount:gitops-agent:gitops-agent`: each request then "
        "says of which leadership it is (component `fencing`); in our own cluster alone, not in named contexts.",
    )
    election_seconds: int = Field(
        12, ge=3, le=600, description="Seconds after the last sign of a leader when another one takes over."
    )
