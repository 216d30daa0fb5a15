"""Patches of documents on generated objects (RFC 6902): the way out for what no option says. Pure.

They reach everything but what is ours to say: names, selectors, how many replicas, and the marks by which an
object and its pods are known as one tenant's agent. And an object keeps the shape that the driver counts on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsonpatch
import jsonpointer
import orjson

from gitops_agent.drivers.api import Refused
from gitops_agent.drivers.kubernetes.marks import (
    AGENT,
    CONFIG_DIGEST,
    CONTAINER,
    DRIVER,
    INSTANCE,
    MANAGED_BY,
    PLACE,
    SPEC,
    TENANT,
    VALUES,
    WRITING,
)
from gitops_agent.drivers.kubernetes.options import ObjectPatch

RESERVED = frozenset({MANAGED_BY, INSTANCE, TENANT, AGENT, PLACE})
"""Labels that say whose an object is."""

RESERVED_NOTES = frozenset({*RESERVED, SPEC, CONFIG_DIGEST, VALUES, WRITING})
"""Annotations that say what was applied."""

Manifest = dict[str, Any]
Path = tuple[str, ...]

_UNFIT = (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, ValueError, LookupError)
_FIXED: tuple[Path, ...] = (
    ("kind",),
    ("apiVersion",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "generateName"),
    ("spec", "selector"),
    ("spec", "replicas"),
    ("spec", "suspend"),
    ("spec", "jobTemplate", "spec", "selector"),
    ("spec", "jobTemplate", "spec", "manualSelector"),
)
_MAPS: tuple[Path, ...] = ((), ("metadata",), ("metadata", "labels"), ("metadata", "annotations"))
_TEMPLATE_MAPS: tuple[Path, ...] = (*_MAPS, ("spec",))


def patched(manifest: Manifest, patches: Sequence[ObjectPatch], kind: str | None) -> Manifest:
    """The object as the patches of its kind make it."""
    steps = [patch.step() for patch in patches if patch.kind == kind]
    return dict(jsonpatch.apply_patch(manifest, steps)) if steps else manifest


def patch_refusals(
    generated: Mapping[str | None, Manifest], patches: Sequence[ObjectPatch], template: Path
) -> Iterator[Refused]:
    """Patches that cannot be carried out, and those that reach for what is ours. ``generated``: the objects before
    them, by how patches name them, the workload by None. ``template``: where the workload has that of its pods."""
    made: dict[str | None, Any] = dict(generated)
    for position, patch in enumerate(patches):
        at = ("runtime", DRIVER, "patches", position)
        before = made.get(patch.kind)
        if before is None:
            yield Refused(f"the agent has no {patch.kind} to patch", at)
            continue
        inside = template if patch.kind is None else ()
        try:
            after = jsonpatch.apply_patch(before, [patch.step()])
            orjson.dumps(after)
        except _UNFIT as problem:
            yield Refused(
                f"the patch cannot be applied to the generated object: {patch.path}: {_why(problem)}", at
            )
            continue
        if problem_found := _misshapen(after, inside) or _claimed(before, after, inside):
            yield Refused(problem_found, at)
            continue
        made[patch.kind] = after


def _why(problem: Exception) -> str:
    """What is wrong with a patch, without the object that the packages print behind it."""
    return str(problem).partition(" in {")[0]


def _misshapen(manifest: Any, template: Path) -> str:
    """What in an object no longer has the shape that the driver counts on; "" when all has."""
    holders = [template[:length] for length in range(1, len(template) + 1)]
    needed = [*holders, *((*template, *path) for path in _TEMPLATE_MAPS)] if template else []
    for path in needed:
        if not isinstance(_at(manifest, path), dict):
            return f"a patch must leave {'.'.join(path)} a map"
    for path in (*_MAPS, ("spec",), ("data",), ("stringData",)):
        if not isinstance(_at(manifest, path), dict | None):
            return f"a patch must leave {'.'.join(path) or 'the object'} a map"
    if manifest is None:
        return "a patch must leave the object a map"
    return _without_agent(manifest, (*template, "spec", "containers")) if template else ""


def _without_agent(manifest: Any, path: Path) -> str:
    found = _at(manifest, path)
    names = [each.get("name") for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if names.count(CONTAINER) == 1 and len(names) == len(found):
        return ""
    return f"a patch must leave {'.'.join(path)} a list of containers, one of them {CONTAINER}"


def _claimed(before: Any, after: Any, template: Path) -> str:
    """What a patch changes that is ours to say; "" when it changes none of it."""
    fixed = [*_FIXED, *((*template, "metadata", name) for name in ("name", "namespace", "generateName"))]
    for path in fixed:
        if _at(before, path) != _at(after, path):
            return f"a patch may not change {'.'.join(path)}"
    for holder in ((), ("spec", "jobTemplate"), template):
        for where, ours in (("labels", RESERVED), ("annotations", RESERVED_NOTES)):
            path = (*holder, "metadata", where)
            for name in sorted(ours):
                if _at(before, (*path, name)) != _at(after, (*path, name)):
                    return f"a patch may not change {'.'.join(path)} {name}: it is set by gitops-agent"
    return ""


def _at(value: Any, path: Sequence[str]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
