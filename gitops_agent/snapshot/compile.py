"""From a validated Agent document to the agent the later stages know, with its resources.

Resources come from the drivers' pure compilers. What a document demands and no driver met is an error: nothing
that was written is ever silently left undone.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import intern
from typing import Any, NamedTuple

from pydantic import BaseModel

from gitops_agent.drivers.api import Compilation, Refused
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.agent import Agent, Origin, Pause, Resource
from gitops_agent.model.document import AgentDocument, AgentSpec
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.quantity import epoch, seconds
from gitops_agent.model.scalars import NAME_PATTERN
from gitops_agent.ports import TreeEntry
from gitops_agent.settings import Limits
from gitops_agent.snapshot import overlay as overlays
from gitops_agent.snapshot.codes import Code, Invalid, Issue, shown
from gitops_agent.snapshot.compiled_file import (
    DELETIONS,
    LIFECYCLES,
    MODES,
    AgentUnit,
    Labels,
    OverlayUnit,
    PoolUnit,
    Shared,
)
from gitops_agent.snapshot.schema import REVOKE, nearest
from gitops_agent.snapshot.second_look import UNNAMED
from gitops_agent.support.secrets import secret_line

_RUNTIME = Kind.RUNTIME.value
_NAME_A_FILE = "Name a regular UTF-8 file of the repository, relative to this document."


class Draft(NamedTuple):
    """A valid document with its overlays applied, which may still wait for its instructions. When an overlay
    failed, it is the document as written: ``unpatched`` are the overlays, ``failures`` what is wrong with them."""

    origin: Origin
    key: AgentKey
    labels: Labels
    document: AgentDocument
    overlays: tuple[str, ...] = ()
    inlined: str | None = None
    is_named: bool = True  # its tenant is known
    unpatched: tuple[OverlayUnit, ...] = ()
    failures: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileContext:
    """What compiling one document may look at besides the document. ``settings``: those of plugins by their names,
    as far as they are known."""

    plugins: Plugins
    files: Mapping[str, TreeEntry]
    limits: Limits
    shared: Shared
    settings: Mapping[str, BaseModel]


def draft(
    context: CompileContext, origin: Origin, document: AgentDocument, raw: bytes, issues: list[Issue]
) -> Draft:
    """The agent by its name, with its overlays applied and the file of its instructions found. Adds to the issues
    what is wrong with the document."""
    tenant = _tenant(origin, document, issues)
    key = AgentKey(intern(tenant or UNNAMED), document.metadata.name)
    labels = _labels(document)
    made = Draft(origin, key, labels, document, is_named=bool(tenant))
    if chosen := context.shared.matching(key, labels):
        try:
            document = overlays.apply(raw, chosen, key, context.limits.file_bytes, context.plugins.documents)
            made = made._replace(document=document, overlays=tuple([overlay.digest for overlay in chosen]))
        except Invalid as invalid:
            made = made._replace(unpatched=chosen, failures=invalid.issues)
    if document.spec.instructions_from is None:
        return made
    return made._replace(inlined=_inlined(context, made, issues))


def finish(context: CompileContext, made: Draft, content: bytes | None, issues: list[Issue]) -> AgentUnit:
    """The compiled agent, as far as it can be compiled: it counts only when nothing was added to the issues.
    ``content``: that of the file of instructions, if it names one."""
    document, inlined = made.document, None
    if made.inlined is not None and content is not None:
        document = _with_instructions(context, made, content, issues)
        inlined = (made.inlined, context.files[made.inlined].blob)
    spec, asked = document.spec, document.spec.reconcile
    name = spec.credential_pool_ref.name if spec.credential_pool_ref is not None else None
    pool = context.shared.pool(made.key.tenant, name)
    before = len(issues)
    resources = _resources(context, made, compilation(context.plugins, made.key, document, pool), issues)
    if spec.authority:
        issues += _unknown_authority(made, spec, resources, complete=bool(resources) and len(issues) == before)
    depends_on = _dependencies(made, document, issues)
    agent = Agent(
        key=made.key,
        origin=made.origin,
        resources=resources,
        lifecycle=LIFECYCLES[spec.lifecycle],
        deletion_policy=DELETIONS[spec.deletion_policy],
        mode=MODES[asked.mode],
        pause=Pause(asked.reason, epoch(asked.until) if asked.until else None) if asked.paused else None,
        adopt=spec.adopt,
        labels=_labels(document) if made.overlays else made.labels,
        depends_on=depends_on,
        health_timeout=seconds(spec.rollout.health_timeout),
        canary=spec.rollout.canary,
        pause_after_ready=seconds(spec.rollout.pause),
        authority=tuple(sorted(spec.authority.items())) if spec.authority else (),
        description=spec.description or "",
        exclusive=spec.runtime.exclusive,
    )
    shared = made.overlays if pool is None else (*made.overlays, pool.digest)
    return AgentUnit(agent, made.labels, shared, inlined, name)


def _labels(document: AgentDocument) -> Labels:
    labels = document.metadata.labels
    return tuple([(intern(name), intern(labels[name])) for name in sorted(labels)]) if labels else ()


def _tenant(origin: Origin, document: AgentDocument, issues: list[Issue]) -> str:
    """The authored tenant, or the folder under ``agents/`` in which a document stands; nothing when neither is."""
    parts = origin.path.split("/", 2)
    folder = parts[1] if len(parts) == 3 and parts[0] == "agents" else None
    authored = document.metadata.tenant
    if authored is not None:
        if folder in (None, authored):
            return authored
        summary = f"metadata.tenant is {authored}, but the file stands in agents/{shown(folder)}/"
        detail = "Correct the tenant, leave it out, or move the file."
        issues.append(Issue(Code.TENANT_MISMATCH, ("metadata", "tenant"), summary, detail, origin=origin))
        return authored
    if folder is None:
        summary, detail = "metadata needs tenant", "Write metadata.tenant, or move the file to agents/<tenant>/."
        issues.append(Issue(Code.MISSING_FIELD, ("metadata",), summary, detail, at_key=True, origin=origin))
        return ""
    if not re.fullmatch(NAME_PATTERN, folder):
        summary = f"the folder agents/{shown(folder)}/ is no name of a tenant"
        detail = "Expected a name of lower-case letters, digits and dashes (at most 63). Rename the folder."
        issues.append(Issue(Code.BAD_FORMAT, ("metadata",), summary, detail, origin=origin))
        return ""
    return folder


def _inlined(context: CompileContext, made: Draft, issues: list[Issue]) -> str | None:
    """The path of the instructions: inside the repository below the path, and a regular file; None otherwise."""
    file = _reference(made)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(made.origin.path), file))
    if file.startswith("/") or "\\" in file or path.startswith("../") or path == "..":
        issues.append(_bad_file(made, Code.FILE_OUTSIDE, "leaves the repository"))
        return None
    entry = context.files.get(path)
    if entry is None:
        hint = nearest(path, context.files)
        issues.append(_bad_file(made, Code.MISSING_FILE, f"does not exist as a regular file ({path}){hint}"))
        return None
    if entry.size and (issue := _too_long(context, made, entry.size)):
        issues.append(issue)
        return None
    return path


def _with_instructions(context: CompileContext, made: Draft, content: bytes, issues: list[Issue]) -> AgentDocument:
    if issue := _too_long(context, made, len(content)):
        issues.append(issue)
        return made.document
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        issues.append(_bad_file(made, Code.NOT_UTF8, "is not UTF-8 text"))
        return made.document
    if line := secret_line(text):
        issues.append(_bad_file(made, Code.LITERAL_SECRET, f"holds a secret in line {line}", REVOKE))
    spec = made.document.spec.model_copy(update={"instructions": text, "instructions_from": None})
    return made.document.model_copy(update={"spec": spec})


def _too_long(context: CompileContext, made: Draft, size: int) -> Issue | None:
    allowed = context.limits.instructions_bytes
    if size <= allowed:
        return None
    return _bad_file(made, Code.TOO_LARGE, f"has {size} bytes; at most {allowed} are read")


def _reference(made: Draft) -> str:
    reference = made.document.spec.instructions_from
    return reference.file if reference is not None else ""


def _bad_file(made: Draft, code: Code, reason: str, detail: str = _NAME_A_FILE) -> Issue:
    summary = f"agent {made.key}: {shown(_reference(made))} {reason}"
    return Issue(code, ("spec", "instructionsFrom", "file"), summary, detail, origin=made.origin)


def _dependencies(made: Draft, document: AgentDocument, issues: list[Issue]) -> tuple[AgentKey, ...]:
    keys: dict[AgentKey, None] = {}
    for position, reference in enumerate(document.spec.rollout.depends_on):
        key = AgentKey.parse(reference) if "/" in reference else AgentKey(made.key.tenant, reference)
        if made.is_named and key.tenant != made.key.tenant:
            loc = ("spec", "rollout", "dependsOn", position)
            summary = f"agent {made.key} depends on {key}, an agent of another tenant"
            detail = "Tenants never wait for each other."
            issues.append(Issue(Code.CROSS_TENANT, loc, summary, detail, origin=made.origin))
        keys[key] = None
    return tuple(keys)


def compilation(
    plugins: Plugins, agent: AgentKey, document: AgentDocument, pool: PoolUnit | None = None
) -> Compilation:
    """What plugins get of a document."""
    pools = {} if pool is None else {pool.name: pool.spec}
    return Compilation(agent, document, pools=pools, runtime=plugins.get(document.spec.runtime.driver))


def _resources(
    context: CompileContext, made: Draft, asked: Compilation, issues: list[Issue]
) -> tuple[Resource, ...]:
    """What the drivers make of the document, in bring-up order; adds to the issues what none of them met."""
    spec, plugins = asked.document.spec, context.plugins
    if spec.lifecycle == "Retired":
        return ()
    found: list[Resource] = []
    refused: set[str] = set()  # kinds of drivers that refused, rather than left it to others
    for plugin in plugins:
        options = plugins.options(plugin, asked.document)
        if options is not None and plugin.is_runtime and plugin.name != spec.runtime.driver:
            issues.append(_for_another_driver(made, plugin.name, spec.runtime.driver))
        try:
            own = context.settings.get(plugin.name)
            told = options is not None or own is not None
            found.extend(plugin.compile(replace(asked, options=options, settings=own) if told else asked))
        except ValueError as problem:
            issues += [_refusal(made, plugin.name, each) for each in (problem, *getattr(problem, "more", ()))]
            refused.update(kind.name for kind in plugin.kinds)
    position = plugins.catalog.position
    found.sort(key=lambda resource: (position(resource.key.kind), resource.key.id))
    issues += _unmet(made, spec, {resource.key.kind for resource in found} | refused, plugins)
    return tuple(found)


def _refusal(made: Draft, driver: str, refused: ValueError) -> Issue:
    at, fact = (refused.at if isinstance(refused, Refused) else ()), shown(refused, 240)
    # The field, unless the fact names it; of a fact about the whole document, who says so.
    field = next((each for each in reversed(at) if isinstance(each, str)), "")
    where = f"driver {driver}" if not at else "" if field in fact else ".".join(map(str, at))
    summary = f"agent {made.key}: {f'{where}: ' if where else ''}{fact}"
    return Issue(Code.DRIVER_REFUSED, ("spec", *at), summary, "Correct what it names.", origin=made.origin)


def _for_another_driver(made: Draft, block: str, driver: str) -> Issue:
    summary = f"agent {made.key}: runtime.{block} is for the driver {block}, but runtime.driver is {driver}"
    detail = f"Remove the block, or write driver: {block}."
    return Issue(Code.DRIVER_REFUSED, ("spec", "runtime", block), summary, detail, True, made.origin)


def _unknown_authority(
    made: Draft, spec: AgentSpec, resources: Sequence[Resource], *, complete: bool
) -> list[Issue]:
    """Fields under ``authority`` that nothing of this agent has: they would decide nothing. Unless the resources
    are complete, the fields of a kind that is missing are not known."""
    known = [path for each in resources for path in _paths(each.fields.value, each.key.kind)]
    kinds = {each.key.kind for each in resources}
    found: list[Issue] = []
    for path in spec.authority:
        if path not in known and (complete or path.partition(".")[0] in kinds):
            summary = f"agent {made.key}: authority names {shown(path)}, which is no field of it"
            detail = "Expected a kind of resource and a field of it, such as runtime.replicas."
            loc = ("spec", "authority", path)
            found.append(Issue(Code.UNKNOWN_FIELD, loc, summary + nearest(path, known), detail, True, made.origin))
    return found


def _paths(value: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, item in value.items():
        yield f"{prefix}.{name}"
        if isinstance(item, dict):
            yield from _paths(item, f"{prefix}.{name}")


# Where the schema asks for something, and the kind of resource that answers it.
_DEMANDS: tuple[tuple[str, str, Callable[[AgentSpec], object]], ...] = (
    ("dns", Kind.DNS, lambda spec: spec.dns),
    ("channels", Kind.CHANNEL, lambda spec: spec.channels),
    ("entitlement", Kind.ENTITLEMENT, lambda spec: spec.entitlement),
    ("credentialPoolRef", Kind.CREDENTIAL, lambda spec: spec.credential_pool_ref),
    ("hooks", Kind.HOOK, lambda spec: spec.hooks.on_provisioned or spec.hooks.on_retired),
)


def _unmet(made: Draft, spec: AgentSpec, kinds: set[str], plugins: Plugins) -> list[Issue]:
    """What the document demands and no driver met."""
    unmet = [(field, kind) for field, kind, asks in _DEMANDS if asks(spec) and kind not in kinds]
    missing: list[tuple[tuple[str, ...], str, str]] = [(("spec", field), field, kind) for field, kind in unmet]
    if _RUNTIME not in kinds:
        what = f"runtime.driver {spec.runtime.driver}{nearest(spec.runtime.driver, plugins.runtimes)}"
        missing.append((("spec", "runtime", "driver"), what, _RUNTIME))
    issues: list[Issue] = []
    for loc, what, kind in missing:
        detail = f"Install a driver for it, or change the field (installed: {', '.join(plugins.names) or 'none'})."
        summary, at_key = f"agent {made.key}: no driver for {what} ({kind})", len(loc) == 2
        issues.append(Issue(Code.DRIVER_NOT_INSTALLED, loc, summary, detail, at_key, made.origin))
    if spec.checks:
        loc, summary = ("spec", "checks"), f"agent {made.key}: checks is not built yet"
        issues.append(Issue(Code.NOT_BUILT_YET, loc, summary, "Remove the field.", True, made.origin))
    return issues
