"""Overlays: RFC 6902 patches by selector, for this instance only.

A selector looks at the authored document. Overlays apply in the order of their paths; the result is validated
again, and what is wrong with it is addressed to the overlay, with the agent named.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jsonpatch
import jsonpointer
import orjson

from gitops_agent.model.agent import Origin
from gitops_agent.model.document import DOCUMENTS, AgentDocument, OverlayDocument
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.key import AgentKey
from gitops_agent.snapshot.codes import Code
from gitops_agent.snapshot.compiled_file import Issue, Labels, OverlayUnit
from gitops_agent.snapshot.schema import Documents, check
from gitops_agent.snapshot.schema_errors import Problem

_IDENTITY = ("name", "tenant")


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
    return OverlayUnit(origin, name, selector.tenant, names, labels, patches)


def matching(overlays: Sequence[OverlayUnit], key: AgentKey, labels: Labels) -> tuple[OverlayUnit, ...]:
    """The overlays that select an agent, in the order in which they apply."""
    return tuple(overlay for overlay in overlays if _selects(overlay, key, labels)) if overlays else ()


def in_path_order(overlays: Iterable[OverlayUnit]) -> tuple[OverlayUnit, ...]:
    """Overlays in the order in which they apply."""
    return tuple(sorted(overlays, key=lambda overlay: (overlay.origin.path, overlay.origin.line)))


def _selects(overlay: OverlayUnit, key: AgentKey, labels: Labels) -> bool:
    if overlay.tenant is not None and overlay.tenant != key.tenant:
        return False
    if overlay.names and key.name not in overlay.names:
        return False
    return all(label in labels for label in overlay.labels)


def apply(
    raw: bytes,
    overlays: Sequence[OverlayUnit],
    key: AgentKey,
    size_limit: int,
    documents: Documents = DOCUMENTS,
) -> tuple[AgentDocument | None, list[Issue]]:
    """The document as patched and validated again, or what went wrong, addressed to the overlay."""
    value = orjson.loads(raw)
    identity = _identity(value)
    steps: list[_Step] = []
    for overlay in overlays:
        for position, patch in enumerate(orjson.loads(overlay.patches)):
            steps.append(_Step(overlay, position, patch))
            try:
                value = _patched(value, patch, size_limit)
            except _Failed as failed:
                return None, [_issue(steps[-1], key, Code.OVERLAY_FAILED, str(failed))]
            if _identity(value) != identity:
                return None, [
                    _issue(steps[-1], key, Code.OVERLAY_IDENTITY, "changes apiVersion, kind, name or tenant")
                ]
    model, problems = check(orjson.dumps(value), "Agent", documents)
    if isinstance(model, AgentDocument):
        return model, []
    return None, [_blamed(steps, key, problem) for problem in problems]


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
    return (value.get("apiVersion"), value.get("kind"), *(metadata.get(name) for name in _IDENTITY))


def _issue(step: _Step, key: AgentKey, code: Code, reason: str) -> Issue:
    loc = ("spec", "patches", step.position)
    detail = "Correct the patch, or narrow the selector of the overlay."
    return Issue(code, step.overlay.origin, loc, f"patch {step.position} on agent {key}: {reason}", detail)


def _blamed(steps: Sequence[_Step], key: AgentKey, problem: Problem) -> Issue:
    """The last patch whose path leads to the problem or lies below it; else the last one."""
    wrong = [str(part) for part in problem.loc]
    touching = [step for step in steps if _touches(step.patch["path"], wrong)]
    step = (touching or list(steps))[-1]
    at = "value" if "value" in step.patch else "path"
    loc = ("spec", "patches", step.position, at)
    return Issue(problem.code, step.overlay.origin, loc, f"on agent {key}: {problem.summary}", problem.detail)


def _touches(pointer: str, wrong: Sequence[str]) -> bool:
    parts = jsonpointer.JsonPointer(pointer).parts
    shared = min(len(parts), len(wrong))
    return all(part in (step, "-") for part, step in zip(parts[:shared], wrong[:shared], strict=True))
