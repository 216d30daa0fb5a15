"""Overlays: RFC 6902 patches by selector, for this instance only.

A selector looks at the authored document. Overlays apply in the order of their paths; the result is validated
again, and what is wrong with it is addressed to the overlay, with the agent named.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import jsonpatch
import jsonpointer
import orjson

from gitops_agent.model.agent import Origin
from gitops_agent.model.document import AgentDocument, OverlayDocument
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.key import AgentKey
from gitops_agent.snapshot.codes import Code, Invalid, Issue, Loc
from gitops_agent.snapshot.compiled_file import OverlayUnit
from gitops_agent.snapshot.schema import Documents, check


class _Step(NamedTuple):
    """One operation of one overlay."""

    overlay: OverlayUnit
    position: int
    patch: dict[str, Any]


def unit_of(origin: Origin, document: OverlayDocument) -> OverlayUnit:
    """What an overlay document contributes."""
    selector = document.spec.selector
    labels = tuple(sorted(selector.labels.items()))
    patches = canonical(document.spec.patches)
    names = frozenset(selector.names)
    name = digest(canonical([selector.tenant, sorted(names), labels]) + patches)
    return OverlayUnit(origin, name, selector.tenant, names, labels, patches.decode())


def apply(
    raw: bytes, overlays: Sequence[OverlayUnit], key: AgentKey, size_limit: int, documents: Documents
) -> AgentDocument:
    """The document as patched and validated again; Invalid, addressed to the overlay, otherwise."""
    value = orjson.loads(raw)
    identity = _identity(value)
    steps: list[_Step] = []
    for overlay in overlays:
        for position, patch in enumerate(orjson.loads(overlay.patches)):
            steps.append(_Step(overlay, position, patch))
            try:
                value = _patched(value, patch, size_limit)
            except _Failed as failed:
                raise Invalid(_failed(steps[-1], key, Code.OVERLAY_FAILED, str(failed))) from None
            if _identity(value) != identity:
                reason = "changes apiVersion, kind, name or tenant"
                raise Invalid(_failed(steps[-1], key, Code.OVERLAY_IDENTITY, reason))
    try:
        return cast("AgentDocument", check(orjson.dumps(value), "Agent", documents))
    except Invalid as invalid:
        raise Invalid(*(_blamed(steps, key, issue) for issue in invalid.issues)) from None


def patched_places(overlays: Sequence[OverlayUnit]) -> Iterator[Loc]:
    """The paths in a document that some overlays would change."""
    for overlay in overlays:
        for patch in orjson.loads(overlay.patches):
            for pointer in (patch["path"], patch.get("from", patch["path"])):
                parts = jsonpointer.JsonPointer(pointer).parts
                yield tuple(int(part) if part.isdecimal() else part for part in parts if part != "-")


class _Failed(Exception):
    """A patch does not apply; the message quotes no value."""


def _patched(value: Any, patch: dict[str, Any], size_limit: int) -> Any:
    try:
        value = jsonpatch.apply_patch(value, [patch], in_place=True)
    except jsonpatch.JsonPatchTestFailed:
        raise _Failed("its test does not hold") from None
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        raise _Failed("its path does not exist there") from None
    except (TypeError, KeyError, IndexError, ValueError, AttributeError, RecursionError):
        raise _Failed("it does not fit what stands there") from None
    # One copy can double a document; thirty of them must not fill the memory.
    try:
        grown = patch["op"] == "copy" and len(orjson.dumps(value)) > size_limit
    except (TypeError, RecursionError):
        raise _Failed("the result is no document any more") from None
    if grown:
        raise _Failed("the result is too large")
    return value


def _identity(value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, dict) or not isinstance(metadata := value.get("metadata"), dict):
        return None
    return (value.get("apiVersion"), value.get("kind"), metadata.get("name"), metadata.get("tenant"))


def _failed(step: _Step, key: AgentKey, code: Code, reason: str) -> Issue:
    loc, summary = ("spec", "patches", step.position), f"patch {step.position} on agent {key}: {reason}"
    detail = "Correct the patch, or narrow the selector of the overlay."
    return Issue(code, loc, summary, detail, origin=step.overlay.origin)


def _blamed(steps: Sequence[_Step], key: AgentKey, issue: Issue) -> Issue:
    """The issue at the last patch whose path leads to it or lies below it; else at the last one."""
    wrong = [str(part) for part in issue.loc]
    touching = [step for step in steps if _touches(step.patch["path"], wrong)]
    step = (touching or list(steps))[-1]
    loc = ("spec", "patches", step.position, "value" if "value" in step.patch else "path")
    return Issue(issue.code, loc, f"on agent {key}: {issue.summary}", issue.detail, origin=step.overlay.origin)


def _touches(pointer: str, wrong: Sequence[str]) -> bool:
    parts = jsonpointer.JsonPointer(pointer).parts
    return all(part in (step, "-") for part, step in zip(parts, wrong, strict=False))
