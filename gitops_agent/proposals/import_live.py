"""One proposal: a commit on a branch of its own that brings a document in line with what live decided.

The author's document is changed in place; whether nothing else changed is checked by loading the result. What
cannot be changed safely is refused with a finding that says what to do by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gitops_agent.errors import GitopsAgentError, InvalidDesiredState, SourceUnavailable
from gitops_agent.model.agent import Agent, Resource
from gitops_agent.model.catalog import BUILT_IN, Catalog
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.plan import Action
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.three_way import graft, live_paths
from gitops_agent.ports import BlobReader, SnapshotLoader, Source
from gitops_agent.settings import Limits
from gitops_agent.snapshot.editing.edit import CannotEdit, Path, edited, value_at

PREFIX = "gitops-agent/import"

"""Where the fields of a kind of resource stand in the document."""


class ProposalWriter(Protocol):
    """New commits on the head, and branches of the remote for them."""

    def edit(self, files: Mapping[str, bytes], message: str) -> str:
        """A commit on the head in which some files have another content; its sha."""

    def tip(self, branch: str) -> str | None:
        """The commit a branch of the remote is at."""

    def push(self, sha: str, branch: str) -> None:
        """Send a commit to a branch of the remote, fast-forward only."""


class Repository(Source, BlobReader, Protocol):
    """Commits and blobs."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What proposals are made with. ``mask`` turns a value that holds a secret into another one."""

    source: Repository
    writer: ProposalWriter
    loader: Callable[[], AbstractContextManager[SnapshotLoader]]
    mask: Callable[[Any, str], Any]
    branch: str
    instance: str
    limits: Limits
    push: bool = True
    catalog: Catalog = BUILT_IN


def branch_of(action: Action) -> str:
    """The branch on which a change is proposed: the same change always has the same."""
    name = digest(canonical([str(action.key), list(action.patch)]))[:8]
    return f"{PREFIX}/{action.key.agent.tenant}-{action.key.agent.name}-{name}"


class ImportProposer:
    """Makes proposals. Safe to use from a thread of its own."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def propose(self, action: Action) -> Finding | None:
        """Push the branch for an action; None when Git has caught up in the meantime.

        Refused when it cannot be proposed, SourceUnavailable when the remote does not answer.
        """
        desk = self._desk
        head = desk.source.revision(desk.branch)
        with desk.loader() as loader:
            snapshot = loader.load(head)
            agent, resource = _found(snapshot, action.key)
            if agent is None or resource is None or action.live is None:
                return None
            wanted = graft(resource.fields.value, action.live.value, live_paths(agent, action.key.kind))
            change = _Change(action, agent, resource.fields.value, wanted)
            values = self._values(change)
            if not values:
                return None
            sha = self._commit(change, values)
            self._check(change, snapshot, loader, desk.source.revision(sha))
        return self._pushed(change, values, sha, head)

    def _values(self, change: _Change) -> dict[Path, Any]:
        parent = self._desk.catalog.section(change.action.key.kind)
        if parent is None:
            raise Refused(change, f"a {change.action.key.kind} has no place in the document")
        try:
            values = {(*parent, *path): value for path, value in leaves(change.git, change.live).items()}
        except CannotEdit as problem:
            raise Refused(change, str(problem)) from problem
        if any(self._desk.mask(value, path[-1]) != value for path, value in values.items()):
            raise Refused(change, "the live value looks like a secret, which must not get into Git")
        return values

    def _commit(self, change: _Change, values: Mapping[Path, Any]) -> str:
        origin = change.agent.origin
        data = dict(self._desk.source.blobs([origin.blob]))[origin.blob]
        try:
            content = edited(data, origin.line, values, self._desk.limits)
            return self._desk.writer.edit({origin.path: content}, _message(change, values, self._desk))
        except CannotEdit as problem:
            raise Refused(change, str(problem)) from problem

    def _check(self, change: _Change, before: Snapshot, loader: SnapshotLoader, made: Revision) -> None:
        """By loading it: the agent gets what live decided, and nobody else gets anything new."""
        try:
            after = loader.load(made)
        except InvalidDesiredState as problem:
            said = problem.findings[0].summary if problem.findings else problem.message
            raise Refused(change, f"with it the commit would not be valid ({said})") from problem
        _, resource = _found(after, change.action.key)
        paths = live_paths(change.agent, change.action.key.kind)
        if resource is None or graft(resource.fields.value, change.live, paths) != resource.fields.value:
            raise Refused(change, "an overlay sets it; change the overlay instead")
        own = change.agent.key
        others = before.agents.keys() | after.agents.keys()
        if before.policy != after.policy or any(
            _content(before, key) != _content(after, key) for key in others if key != own
        ):
            raise Refused(change, "the change would reach other agents as well")

    def _pushed(self, change: _Change, values: Mapping[Path, Any], sha: str, head: Revision) -> Finding:
        desk, branch = self._desk, branch_of(change.action)
        if not desk.push:
            raise Refused(change, "push is off, so that no branch can be proposed")
        tip = desk.writer.tip(branch)
        # An earlier proposal of the same change: merged meanwhile, it can go on; waiting, it says it all.
        if tip is None or desk.source.is_ancestor(tip, head.sha):
            try:
                desk.writer.push(sha, branch)
            except SourceUnavailable:
                raise
            except GitopsAgentError as problem:
                raise Refused(change, f"{problem.message} ({problem.hint})") from problem
        fields = ", ".join(".".join(path) for path in values)
        return Finding(
            Severity.INFO,
            "ImportProposed",
            str(change.action.key),
            f"live decides {fields}: branch {branch} proposes the live value for {desk.branch}",
            f"Review and merge it: git fetch origin {branch} && git merge FETCH_HEAD. To have Git decide again, "
            f"remove the field from spec.authority in {change.agent.origin}.",
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """What live decided: the fields as Git has them at the head, and as they would be."""

    action: Action
    agent: Agent
    git: dict[str, Any]
    live: dict[str, Any]


class Refused(Exception):
    """The change cannot be proposed; the finding says why and what to do by hand."""

    def __init__(self, change: _Change, why: str) -> None:
        super().__init__(why)
        fields = ", ".join(str(step["path"])[1:].replace("/", ".") for step in change.action.patch)
        self.finding = Finding(
            Severity.WARNING,
            "ImportRefused",
            str(change.action.key),
            f"live decides {fields}, and no branch can be proposed: {why}",
            f"Git and live stay different; nothing is repaired. Change it by hand in {change.agent.origin} "
            f"(gitops-agent drift {change.agent.key} shows the values), or remove the field from spec.authority.",
        )


def leaves(before: Mapping[str, Any], after: Mapping[str, Any], path: Path = ()) -> dict[Path, Any]:
    """The values that differ, each as deep as it can be; CannotEdit when something would have to go."""
    if before.keys() - after.keys():
        gone = ".".join((*path, min(before.keys() - after.keys())))
        raise CannotEdit(f"{gone} is gone in the live system, and taking lines out of a document is for people")
    found: dict[Path, Any] = {}
    for name, value in after.items():
        known = before.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            found |= leaves(known, value, (*path, name))
        elif name not in before or canonical(known) != canonical(value):
            found[(*path, name)] = value
    return found


def _found(snapshot: Snapshot, key: ResourceKey) -> tuple[Agent | None, Resource | None]:
    agent = snapshot.agents.get(key.agent)
    resources = agent.resources if agent is not None else ()
    return agent, next((resource for resource in resources if resource.key == key), None)


def _content(snapshot: Snapshot, key: AgentKey) -> Agent | None:
    """An agent apart from where it stands: a line more in a file moves its neighbours."""
    agent = snapshot.agents.get(key)
    return None if agent is None else replace(agent, origin=replace(agent.origin, line=0, blob=""))


def _message(change: _Change, values: Mapping[Path, Any], desk: Desk) -> str:
    agent, parent = change.agent.key, desk.catalog.section(change.action.key.kind) or ()
    moves = [
        f"{'.'.join(path)}: {_before(change, path[len(parent) :])} -> {_shown(value)}"
        for path, value in values.items()
    ]
    names = ", ".join(path[-1] for path in values)
    return (
        f"{agent}: {names} as the live system has it\n\n" + "\n".join(moves) + "\n\n"
        f"The document leaves this to the live system (spec.authority); instance {desk.instance} saw it there."
    )


def _before(change: _Change, path: Path) -> str:
    try:
        return _shown(value_at(change.git, path))
    except KeyError:
        return "nothing"


def _shown(value: Any) -> str:
    text = canonical(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
