"""From a validated Agent document to the agent the later stages know, with its resources.

Resources come from the drivers' pure compilers. What a document demands and no driver met is an error: nothing
that was written is ever silently left undone.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import intern
from typing import NamedTuple

from gitops_agent.drivers.api import Compilation, Plugin, Refused
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.agent import Agent, DeletionPolicy, Lifecycle, Mode, Origin, Pause, Resource
from gitops_agent.model.document import NAME_PATTERN, AgentDocument, AgentSpec, Hooks, Reconcile
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.quantity import epoch, seconds
from gitops_agent.snapshot import overlay as overlays
from gitops_agent.snapshot.codes import Code, shown
from gitops_agent.snapshot.compiled_file import AgentUnit, Issue, OverlayUnit
from gitops_agent.snapshot.schema_errors import nearest
from gitops_agent.snapshot.tree_rules import TreeFile

_RUNTIME = Kind.RUNTIME.value
NO_HOOKS = Hooks()


class Draft(NamedTuple):
    """A valid document with its overlays applied, which may still wait for its instructions."""

    origin: Origin
    key: AgentKey
    labels: tuple[tuple[str, str], ...]
    document: AgentDocument
    overlays: tuple[str, ...] = ()
    inlined: str | None = None


@dataclass(frozen=True, slots=True)
class CompileContext:
    """What compiling one document may look at besides the document."""

    plugins: Plugins
    entries: Mapping[str, TreeFile]
    overlays: Sequence[OverlayUnit]
    file_bytes: int
    instructions_bytes: int


def draft(
    bench: CompileContext, origin: Origin, document: AgentDocument, raw: bytes
) -> tuple[Draft | None, list[Issue]]:
    """Name the agent, apply its overlays and find the file of its instructions."""
    tenant, issues = _tenant(origin, document)
    if tenant is None:
        return None, issues
    key = AgentKey(intern(tenant), document.metadata.name)
    labels = _labels(document)
    chosen = overlays.matching(bench.overlays, key, labels)
    if chosen:
        patched, issues = overlays.apply(raw, chosen, key, bench.file_bytes, bench.plugins.documents)
        if patched is None:
            return None, issues
        document = patched
    made = Draft(origin, key, labels, document, tuple(overlay.digest for overlay in chosen))
    if document.spec.instructions_from is None:
        return made, []
    return _with_file(bench, made)


def finish(bench: CompileContext, made: Draft, content: bytes | None) -> tuple[AgentUnit | None, list[Issue]]:
    """The compiled agent. ``content`` is that of the file of its instructions, if it names one."""
    document, inlined = made.document, None
    if made.inlined is not None and content is not None:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            return None, [_file_issue(made, Code.NOT_UTF8, "is not UTF-8 text")]
        inlined = (made.inlined, bench.entries[made.inlined].blob)
        spec = document.spec.model_copy(update={"instructions": text, "instructions_from": None})
        document = document.model_copy(update={"spec": spec})
    resources, issues = _resources(bench.plugins, made, document)
    depends_on, crossing = _dependencies(made, document)
    if issues or crossing:
        return None, issues + crossing
    pool = document.spec.credential_pool_ref
    agent = _agent(made, document, resources, depends_on)
    return AgentUnit(agent, made.labels, made.overlays, inlined, pool.name if pool else None), []


def _agent(
    made: Draft, document: AgentDocument, resources: tuple[Resource, ...], depends_on: tuple[AgentKey, ...]
) -> Agent:
    spec = document.spec
    return Agent(
        key=made.key,
        origin=made.origin,
        resources=resources,
        lifecycle=Lifecycle(spec.lifecycle),
        deletion_policy=DeletionPolicy(spec.deletion_policy),
        mode=Mode(spec.reconcile.mode),
        pause=_pause(spec.reconcile),
        adopt=spec.adopt,
        labels=_labels(document) if made.overlays else made.labels,
        depends_on=depends_on,
        health_timeout=seconds(spec.rollout.health_timeout),
        canary=spec.rollout.canary,
        pause_after_ready=seconds(spec.rollout.pause),
        authority=tuple(sorted(spec.authority.items())) if spec.authority else (),
        description=spec.description or "",
    )


def _labels(document: AgentDocument) -> tuple[tuple[str, str], ...]:
    labels = document.metadata.labels
    return tuple([(intern(name), intern(labels[name])) for name in sorted(labels)]) if labels else ()


def _pause(reconcile: Reconcile) -> Pause | None:
    if not reconcile.paused:
        return None
    return Pause(reconcile.reason, epoch(reconcile.until) if reconcile.until else None)


def folder_tenant(path: str) -> str | None:
    """The folder under ``agents/`` in which a document stands."""
    parts = path.split("/", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "agents" else None


def _tenant(origin: Origin, document: AgentDocument) -> tuple[str | None, list[Issue]]:
    folder, authored = folder_tenant(origin.path), document.metadata.tenant
    if authored is None and folder is None:
        detail = "Write metadata.tenant, or move the file to agents/<tenant>/."
        return None, [
            Issue(Code.MISSING_FIELD, origin, ("metadata",), "metadata needs tenant", detail, at_key=True)
        ]
    if authored is not None and folder is not None and authored != folder:
        summary = f"metadata.tenant is {authored}, but the file stands in agents/{shown(folder)}/"
        detail = "Correct the tenant, leave it out, or move the file."
        return None, [Issue(Code.TENANT_MISMATCH, origin, ("metadata", "tenant"), summary, detail)]
    tenant = authored or folder or ""
    if authored is None and not re.fullmatch(NAME_PATTERN, tenant):
        summary = f"the folder agents/{shown(tenant)}/ is no name of a tenant"
        detail = "Expected a name of lower-case letters, digits and dashes (at most 63). Rename the folder."
        return None, [Issue(Code.BAD_FORMAT, origin, ("metadata",), summary, detail)]
    return tenant, []


def _with_file(bench: CompileContext, made: Draft) -> tuple[Draft | None, list[Issue]]:
    """Find the file of the instructions: inside the repository below the path, and a regular file."""
    reference = made.document.spec.instructions_from
    assert reference is not None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(made.origin.path), reference.file))
    if reference.file.startswith("/") or "\\" in reference.file or path.startswith("../") or path == "..":
        return None, [_file_issue(made, Code.FILE_OUTSIDE, "leaves the repository")]
    entry = bench.entries.get(path)
    if entry is None:
        hint = nearest(path, bench.entries)
        return None, [_file_issue(made, Code.MISSING_FILE, f"does not exist as a regular file ({path}){hint}")]
    if entry.size is not None and entry.size > bench.instructions_bytes:
        return None, [too_long(made, entry.size, bench.instructions_bytes)]
    return made._replace(inlined=path), []


def too_long(made: Draft, size: int, allowed: int) -> Issue:
    """The issue for a file of instructions beyond the limit."""
    return _file_issue(made, Code.TOO_LARGE, f"has {size} bytes; at most {allowed} are read")


def _file_issue(made: Draft, code: Code, reason: str) -> Issue:
    reference = made.document.spec.instructions_from
    name = shown(reference.file) if reference else ""
    loc = ("spec", "instructionsFrom", "file")
    detail = "Name a regular UTF-8 file of the repository, relative to this document."
    return Issue(code, made.origin, loc, f"agent {made.key}: {name} {reason}", detail)


def _dependencies(made: Draft, document: AgentDocument) -> tuple[tuple[AgentKey, ...], list[Issue]]:
    references = document.spec.rollout.depends_on
    if not references:
        return (), []
    keys, issues = [], []
    for position, reference in enumerate(references):
        key = AgentKey.parse(reference) if "/" in reference else AgentKey(made.key.tenant, reference)
        if key.tenant != made.key.tenant:
            loc = ("spec", "rollout", "dependsOn", position)
            summary = f"agent {made.key} depends on {key}, an agent of another tenant"
            issues.append(
                Issue(Code.CROSS_TENANT, made.origin, loc, summary, "Tenants never wait for each other.")
            )
        keys.append(key)
    return tuple(dict.fromkeys(keys)), issues


def _resources(plugins: Plugins, made: Draft, document: AgentDocument) -> tuple[tuple[Resource, ...], list[Issue]]:
    """What the drivers make of the document, in bring-up order, and the demands that none of them met."""
    if document.spec.lifecycle == "Retired":
        return (), []
    asked = compilation(plugins, made.key, document)
    found: list[Resource] = []
    issues: list[Issue] = []
    for plugin in plugins:
        options = plugins.options(plugin, document)
        try:
            found.extend(plugin.compile(asked if options is None else replace(asked, options=options)))
        except ValueError as refused:
            issues.append(_refused(made, plugin, refused))
    position = plugins.catalog.position
    found.sort(key=lambda resource: (position(resource.key.kind), resource.key.id))
    if not issues:
        issues = _unmet(made, document.spec, {resource.key.kind for resource in found}, plugins)
    return tuple(found), issues


def compilation(plugins: Plugins, agent: AgentKey, document: AgentDocument) -> Compilation:
    """What plugins get of a document."""
    runtime = plugins.get(document.spec.runtime.driver)
    own = runtime.run_as(document) if runtime is not None and runtime.run_as is not None else {}
    run_as = {"driver": document.spec.runtime.driver, **own}
    return Compilation(agent, document, run_as=run_as, bundle_file=runtime is not None and runtime.bundle_file)


def _refused(made: Draft, plugin: Plugin, refused: ValueError) -> Issue:
    at = ("spec", *refused.at) if isinstance(refused, Refused) else ("spec",)
    summary = f"agent {made.key}: driver {plugin.name} refuses it: {shown(refused, 240)}"
    return Issue(Code.DRIVER_REFUSED, made.origin, at, summary, "Correct what it names.")


# Where the schema asks for something, and the kind of resource that answers it.
_DEMANDS: tuple[tuple[str, str, Callable[[AgentSpec], object]], ...] = (
    ("dns", Kind.DNS, lambda spec: spec.dns),
    ("channels", Kind.CHANNEL, lambda spec: spec.channels),
    ("entitlement", Kind.ENTITLEMENT, lambda spec: spec.entitlement),
    ("credentialPoolRef", Kind.CREDENTIAL, lambda spec: spec.credential_pool_ref),
    ("hooks", Kind.HOOK, lambda spec: spec.hooks != NO_HOOKS),
)


def _unmet(made: Draft, spec: AgentSpec, kinds: set[str], plugins: Plugins) -> list[Issue]:
    asked = spec.dns or spec.channels or spec.entitlement or spec.credential_pool_ref or spec.checks
    if not asked and spec.hooks == NO_HOOKS and _RUNTIME in kinds:
        return []
    unmet = [(field, kind) for field, kind, asks in _DEMANDS if asks(spec) and kind not in kinds]
    missing: list[tuple[tuple[str, ...], str, str]] = [(("spec", field), field, kind) for field, kind in unmet]
    if _RUNTIME not in kinds:
        what = f"runtime.driver {spec.runtime.driver}{nearest(spec.runtime.driver, plugins.runtimes)}"
        missing.append((("spec", "runtime", "driver"), what, _RUNTIME))
    issues: list[Issue] = []
    for loc, what, kind in missing:
        installed = ", ".join(plugins.names) or "none"
        detail = f"Install a driver for it, or change the field (installed: {installed})."
        summary = f"agent {made.key}: no driver for {what} ({kind})"
        issues.append(Issue(Code.DRIVER_NOT_INSTALLED, made.origin, loc, summary, detail, at_key=len(loc) == 2))
    if spec.checks:
        summary, loc = f"agent {made.key}: checks is not built yet", ("spec", "checks")
        issues.append(Issue(Code.NOT_BUILT_YET, made.origin, loc, summary, "Remove the field.", at_key=True))
    return issues
