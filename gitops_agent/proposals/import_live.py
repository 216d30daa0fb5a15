"""Imports: where live decides a field, Git follows by a branch that people review. Never on the tracked branch.

The author's document is changed in place; whether nothing else changed is checked by loading the result. What
cannot be changed safely is refused with a finding that says what to do by hand. Nothing is proposed in a freeze:
what live is like in an incident is nothing to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import GitopsAgentError, InvalidDesiredState, SourceUnavailable
from gitops_agent.model.agent import Agent, Resource, live_paths, with_live_values
from gitops_agent.model.control import frozen_scopes, is_frozen
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.passes import Now, PassRecord
from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import LiveImport, ProposalState
from gitops_agent.settings import Settings
from gitops_agent.snapshot.editing import CannotEdit, Path, edited, value_at
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror

BRANCH_PREFIX = "gitops-agent/import"


def branch_of(action: Action) -> str:
    """The branch on which a change is proposed: the same change always has the same."""
    name = digest(canonical([str(action.key), list(action.patch)]))[:8]
    return f"{BRANCH_PREFIX}/{action.key.agent.tenant}-{action.key.agent.name}-{name}"


def wanted_imports(record: PassRecord, now: Now) -> dict[str, Action]:
    """The changes that live made and no freeze covers, by the branch that proposes each."""
    actions = [action for action in record.plan.actions if action.decision is Decision.IMPORT]
    if not actions:
        return {}
    scopes = frozen_scopes(record.snapshot.policy, record.directives.freezes, now.wall)
    return {branch_of(action): action for action in actions if not is_frozen(action.key.agent, scopes)}


def update_imports(
    proposals: ProposalState, record: PassRecord, now: Now, *, hold_seconds: float = 0.0
) -> ProposalState:
    """The proposals with what this pass wants imported, and without what it observed and no longer wants.

    A value must have been live for the hold time before it is proposed.
    """
    scope, wanted = record.live.scope, wanted_imports(record, now)
    kept = {
        name: each
        for name, each in proposals.imports.items()
        if name in wanted or not (scope is None or each.key.agent in scope)
    }
    new = {
        name: LiveImport(action.key, now.wall, next_at=now.wall + hold_seconds)
        for name, action in wanted.items()
        if name not in kept
    }
    if not new and len(kept) == len(proposals.imports):
        return proposals
    return replace(proposals, imports={**kept, **new})


@dataclass(frozen=True, slots=True)
class ImportProposer:
    """Makes and pushes proposals. Safe to use from a thread of its own: ``loader`` opens one that no pass uses.

    ``mask`` turns a value that holds a secret into another one.
    """

    source: Mirror
    writer: BranchWriter
    loader: Callable[[], AbstractContextManager[Loader]]
    mask: Callable[[Any, str], Any]
    settings: Settings
    plugins: Plugins

    def propose(self, action: Action) -> Finding | None:
        """The finding about the branch pushed for an action; None when Git has caught up in the meantime.

        ImportRefused when it cannot be proposed, SourceUnavailable when the remote does not answer.
        """
        head = self.source.revision(self.settings.branch)
        with self.loader() as loader:
            snapshot = loader.load(head)
            agent, resource = _found(snapshot, action.key)
            if agent is None or resource is None or action.live is None:
                return None
            wanted = with_live_values(resource.fields.value, action.live.value, live_paths(agent, action.key.kind))
            section = self.plugins.catalog.section(action.key.kind)
            change = _Change(action, agent, resource.fields.value, wanted, section)
            values = self._values(change)
            if not values:
                return None
            sha = self._commit(change, values)
            self._check(change, snapshot, loader, self.source.revision(sha))
        return self._pushed(change, values, sha, head)

    def _values(self, change: _Change) -> dict[Path, Any]:
        if change.section is None:
            raise ImportRefused(change, f"a {change.action.key.kind} has no place in the document")
        try:
            values = {(*change.section, *path): value for path, value in leaves(change.git, change.live).items()}
        except CannotEdit as problem:
            raise ImportRefused(change, str(problem)) from problem
        if any(self.mask(value, path[-1]) != value for path, value in values.items()):
            raise ImportRefused(change, "the live value looks like a secret, which must not get into Git")
        return values

    def _commit(self, change: _Change, values: Mapping[Path, Any]) -> str:
        origin = change.agent.origin
        data = dict(self.source.blobs([origin.blob]))[origin.blob]
        try:
            content = edited(data, origin.line, values, self.settings.limits, self.plugins.documents)
            return self.writer.edit({origin.path: content}, _message(change, values, self.settings.instance))
        except CannotEdit as problem:
            raise ImportRefused(change, str(problem)) from problem

    def _check(self, change: _Change, before: Snapshot, loader: Loader, made: Revision) -> None:
        """Load the commit; ImportRefused unless the agent gets what live decided and no other agent changes."""
        try:
            after = loader.load(made)
        except InvalidDesiredState as problem:
            first = problem.findings[0].summary if problem.findings else problem.message
            raise ImportRefused(change, f"with it the commit would not be valid ({first})") from problem
        _, resource = _found(after, change.action.key)
        paths = live_paths(change.agent, change.action.key.kind)
        fields = resource.fields if resource is not None else None
        if fields is None or with_live_values(fields.value, change.live, paths) != fields.value:
            raise ImportRefused(change, "an overlay sets it; change the overlay instead")
        own = change.agent.key
        others = before.agents.keys() | after.agents.keys()
        if before.policy != after.policy or any(
            _content(before, key) != _content(after, key) for key in others if key != own
        ):
            raise ImportRefused(change, "the change would reach other agents as well")

    def _pushed(self, change: _Change, values: Mapping[Path, Any], sha: str, head: Revision) -> Finding:
        branch = branch_of(change.action)
        if not self.settings.push:
            raise ImportRefused(change, "push is off, so that no branch can be proposed")
        tip = self.writer.tip(branch)
        # An earlier proposal of the same change: merged meanwhile, it can go on; waiting, it says it all.
        if tip is None or self.source.is_ancestor(tip, head.sha):
            try:
                self.writer.push(sha, branch)
            except SourceUnavailable:
                raise
            except GitopsAgentError as problem:
                raise ImportRefused(change, f"{problem.message} ({problem.hint})") from problem
        fields = ", ".join(".".join(path) for path in values)
        return Finding(
            Severity.INFO,
            "ImportProposed",
            str(change.action.key),
            f"live decides {fields}: branch {branch} proposes the live value for {self.settings.branch}",
            f"Review and merge it: git fetch origin {branch} && git merge FETCH_HEAD. To have Git decide again, "
            f"remove the field from spec.authority in {change.agent.origin}.",
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """What live decided: the fields as Git has them at the head, and as they would be. ``section``: where they
    stand in the document; None when they have no place there."""

    action: Action
    agent: Agent
    git: dict[str, Any]
    live: dict[str, Any]
    section: Path | None


class ImportRefused(Exception):
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
    """An agent without its place in the file: a line more in a file moves its neighbours."""
    agent = snapshot.agents.get(key)
    return None if agent is None else replace(agent, origin=replace(agent.origin, line=0, blob=""))


def _message(change: _Change, values: Mapping[Path, Any], instance: str) -> str:
    agent, depth = change.agent.key, len(change.section or ())
    moves = [
        f"{'.'.join(path)}: {_before(change, path[depth:])} -> {_shown(value)}" for path, value in values.items()
    ]
    names = ", ".join(path[-1] for path in values)
    return (
        f"{agent}: {names} as the live system has it\n\n" + "\n".join(moves) + "\n\n"
        f"The document leaves this to the live system (spec.authority); instance {instance} saw it there."
    )


def _before(change: _Change, path: Path) -> str:
    try:
        return _shown(value_at(change.git, path))
    except KeyError:
        return "nothing"


def _shown(value: Any) -> str:
    text = canonical(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
