"""The named texts that journals up to version 4 kept, as the fields of the state that they became. Pure.

Only the step to version 5 reads this.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from gitops_agent.model.codec import to_json
from gitops_agent.model.fields import JSON
from gitops_agent.model.finding import Finding, Severity

Texts = Mapping[str, str]

_RETRIED = "retried:"


def fields_of(texts: Texts) -> dict[str, JSON]:
    """The rows of the table ``state`` that the texts stand for, by name."""
    made = {name: convert(texts[old]) for old, (name, convert) in _ONE_TO_ONE.items() if old in texts}
    ended = float(texts.get("last_pass", 0.0))
    if "unready" in texts:
        since = {agent: _active(at, ended) for agent, at in orjson.loads(texts["unready"]).items()}
        made["rollout.unready_since"] = since
    if "rollout" in texts:
        rollout = made["rollout.rollout"]
        if rollout.get("passed_at") is not None:
            rollout["passed_at"] = _active(rollout["passed_at"], ended)
    if texts.get("source_problem"):
        made["source.problem"] = to_json(Finding, _problem(texts))
    if retried := dict(_retried(texts)):
        made["control.retried_at"] = retried
    return made


def _active(at: float, ended: float) -> float:
    """A moment in active seconds, which start at 0 now: only time before the last pass ended had run."""
    return -max(0.0, ended - at)


def _problem(texts: Texts) -> Finding:
    code = texts.get("source_code") or "SourceUnavailable"
    return Finding(Severity.ERROR, code, "source", texts["source_problem"], texts.get("source_hint") or "")


def _retried(texts: Texts) -> Iterator[tuple[str, float]]:
    for name, text in texts.items():
        if name.startswith(_RETRIED):
            yield name.removeprefix(_RETRIED), float(text)


def _released(text: str) -> JSON:
    return {"/".join(key): sha for sha, keys in orjson.loads(text).items() for key in keys}


def _circuits(text: str) -> JSON:
    return {each["driver"]: each for each in orjson.loads(text)}


def _given_up(text: str) -> JSON:
    known: dict[str, dict[str, Any]] = orjson.loads(text)
    for each in known.values():
        retried = each.pop("retried", "")
        each["retried_at"] = float(retried) if retried else None
    return known


def _reverts(text: str) -> JSON:
    return {each["failed"]: _renamed(each, over="finished", said="message") for each in orjson.loads(text)}


def _imports(text: str) -> JSON:
    """What was a list: key, since, done, the head it was refused at, findings (none or one), next try."""
    return {
        branch: {
            "key": key,
            "since": since,
            "finished": done,
            "refused_at": head,
            "finding": findings[0] if findings else None,
            "next_at": next_at,
        }
        for branch, (key, since, done, head, findings, next_at) in orjson.loads(text).items()
    }


def _renamed(values: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


_ONE_TO_ONE: Mapping[str, tuple[str, Callable[[str], JSON]]] = {
    "head": ("source.head", str),
    "accepted": ("source.verified", str),
    "valid": ("source.valid", str),
    "git_freezes": ("source.freezes_first_seen", orjson.loads),
    "last_fetch": ("source.fetched_at", float),
    "enforced": ("rollout.enforced", str),
    "ahead": ("rollout.released", _released),
    "rollout": ("rollout.rollout", orjson.loads),
    "failed": ("rollout.failed_trees", orjson.loads),
    "converged": ("rollout.converged", str),
    "converged_policy": ("rollout.converged_policy", orjson.loads),
    "touched": ("rollout.judged_agents", orjson.loads),
    "abandoned": ("rollout.given_up", _given_up),
    "circuits": ("reconcile.circuits", _circuits),
    "obeyed": ("control.handled_seq", int),
    "findings": ("status.findings", orjson.loads),
    "last_pass": ("status.last_pass", float),
    "reverts": ("proposals.reverts", _reverts),
    "imports": ("proposals.imports", _imports),
}
