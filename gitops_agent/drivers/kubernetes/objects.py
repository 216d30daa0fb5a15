"""From fields of a resource to the object that is applied, with what only a connected driver knows; and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitops_agent.drivers.api import AgentKey, Fields
from gitops_agent.drivers.kubernetes.kinds import BY_KIND, ObjectKind
from gitops_agent.drivers.kubernetes.manifests import TEMPLATE_PATHS, joined, split
from gitops_agent.drivers.kubernetes.marks import INSTANCE, MANAGER, PLACE, SPEC, labels_of, place_labels
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.drivers.kubernetes.ownership import project
from gitops_agent.drivers.kubernetes.store import Entry

MARKS = frozenset({SPEC})
"""Annotations of ours that say what was applied, and are no part of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the object of a resource is: its kind, its namespace and its name."""

    kind: ObjectKind
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Where the API serves it."""
        return self.kind.path(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


class Objects:
    """Makes objects for one instance; knows the namespace of each tenant."""

    def __init__(self, instance: str, settings: Settings, place: str = "") -> None:
        self._instance = instance
        self._place = place_labels(place)
        self._settings = settings

    def namespace(self, agent: AgentKey, fields: Mapping[str, Any]) -> str:
        """The namespace of an agent: the one its document names, or else that of its tenant."""
        default = self._settings.namespace.format(tenant=agent.tenant, instance=self._instance)
        return str(fields.get("namespace") or default)

    def is_watched(self, namespace: str) -> bool:
        """Whether we look at a namespace at all: of another one nothing is known."""
        return not self._settings.namespaces or namespace in self._settings.namespaces

    def target(self, agent: AgentKey, fields: Mapping[str, Any]) -> Target:
        """Where the object with these fields belongs."""
        return Target(BY_KIND[fields["kind"]], self.namespace(agent, fields), agent.name)

    def is_ours(self, kind: ObjectKind, found: Mapping[str, Any]) -> bool:
        """Whether an object carries the marks of this instance and, if it was applied, of this place."""
        labels = _labels(found)
        own = not kind.resource or labels.get(PLACE) == self._place.get(PLACE)
        return own and labels.get(INSTANCE) == self._instance

    def manifest(self, agent: AgentKey, fields: Fields) -> dict[str, Any]:
        """The whole object to apply: without the values of secrets, which a Secret gets last."""
        value = fields.value
        target = self.target(agent, value)
        made = joined(value)
        labels = {**labels_of(self._instance, agent), **self._place}
        metadata = dict(made.get("metadata") or {})
        metadata |= {"name": target.name, "namespace": target.namespace}
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), SPEC: fields.digest}
        made |= {"apiVersion": target.kind.api_version, "kind": target.kind.kind, "metadata": metadata}
        if "template" in value:
            template = value["template"]
            # By its annotations a pod is known to be of this template, and not of the one before.
            inside, mark = template["metadata"], Fields.of(template).digest
            labels, notes = {**inside["labels"], INSTANCE: self._instance}, {**inside["annotations"], SPEC: mark}
            template["metadata"] = {**inside, "labels": labels, "annotations": notes}
            made = joined({**value, "manifest": made, "template": template})
        return made


def shown_fields(live: Mapping[str, Any], known: Fields) -> Fields:
    """What a live object shows of the fields that were applied, in the same shape. What cannot be seen in the
    object (health, how secrets are followed) is as known."""
    value = known.value
    if live.get("kind", value["kind"]) != value["kind"]:
        return Fields.of({**value, "kind": live["kind"]})
    seen = project(live, joined(value))
    if "template" not in value:
        return Fields.of({**value, "manifest": seen})
    parts = split({**seen, "kind": value["kind"]})
    if value.get("scaledBy") == "live":
        parts["replicas"] = (live.get("spec") or {}).get("replicas", value.get("replicas"))
    return Fields.of(
        {**{k: v for k, v in value.items() if k not in ("replicas", "template", "manifest")}, **parts}
    )


def lost_marks(live: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """The labels of ours, of an object or of its pods, that a live object lacks or has with another value."""
    found = ((_labels(live), _labels(manifest)), (_labels(template_of(live)), _labels(template_of(manifest))))
    return [name for there, wanted in found for name, value in wanted.items() if there.get(name) != value]


def is_applied(metadata: Mapping[str, Any]) -> bool:
    """Whether our manager has applied an object: a label alone is copied by anybody."""
    entries = metadata.get("managedFields") or ()
    return any((each.get("manager"), each.get("operation")) == (MANAGER, "Apply") for each in entries)


def stands_for_resource(entry: Entry) -> bool:
    """Whether an object is the one that a resource of its agent stands for: of the agent's own name, and applied
    by us. A copy that carries our labels is nothing of ours."""
    if not entry.kind.resource or entry.agent is None or entry.name != entry.agent.name:
        return False
    return was_applied(entry)


def was_applied(entry: Entry) -> bool:
    """The same of an object in the cache."""
    return _APPLIED in entry.raw or is_applied(entry.object()["metadata"])


_APPLIED = f'"manager":"{MANAGER}","operation":"Apply"'.encode()  # as the server writes it: quicker than to parse


def notes_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of an object or of a template: its own, where it has any."""
    return (value.get("metadata") or {}).get("annotations") or {}


def _labels(value: Mapping[str, Any]) -> dict[str, Any]:
    return (value.get("metadata") or {}).get("labels") or {}


def is_pod_of(workload: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a pod is kept by the controller of this workload, and not left from before the agent moved: its
    labels alone are anybody's to write."""
    metadata, name = pod["metadata"], workload["metadata"]["name"]
    if metadata.get("namespace") != workload["metadata"].get("namespace"):
        return False
    owner: Mapping[str, Any] = next(
        (each for each in metadata.get("ownerReferences") or () if each.get("controller")), {}
    )
    kept_by, kept = (owner.get("kind"), str(owner.get("name"))), workload.get("kind")
    if kept == "Deployment":
        return kept_by == ("ReplicaSet", f"{name}-{_labels(pod).get('pod-template-hash')}")
    if kept == "StatefulSet":
        return kept_by == (kept, name)
    return kept == "CronJob" and kept_by[0] == "Job" and kept_by[1].startswith(f"{name}-")


def template_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The template of the pods of a workload."""
    value: Any = workload.get("spec")
    for step in TEMPLATE_PATHS.get(str(workload.get("kind")), ("template",)):
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
