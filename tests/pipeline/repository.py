"""A desired repository in memory: the source and the loader of a pass, with everything a remote may do to us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any

from gitops_agent.drivers.api import Plugin
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState, NothingToDo, SourceError, SourceRefused
from gitops_agent.model.agent import Agent, DeletionPolicy, Lifecycle, Mode, Origin, Pause
from gitops_agent.model.catalog import BUILT_IN
from gitops_agent.model.document import AgentDocument, PolicySpec
from gitops_agent.model.fields import Fields, canonical
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import epoch, seconds
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.snapshot.compile import compilation

TENANT = "acme"
Spec = Mapping[str, Any]
Fleet = Mapping[str, Spec]


def key(name: str) -> AgentKey:
    return AgentKey(TENANT, name)


@dataclass(frozen=True)
class Commit:
    revision: Revision
    fleet: Fleet
    policy: Spec
    errors: tuple[Finding, ...]


class Repository:
    """Commits on one branch. ``down`` is raised by the next refreshes while it is set. ``remembers``: whether it
    is known how a commit compiled that is refused now. ``unreadable`` is raised by whoever asks for that."""

    branch, path = "main", "."

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = Plugins(plugins)
        self.commits: dict[str, Commit] = {}
        self.head: str | None = None
        self.down: SourceError | None = None
        self.remembers = True
        self.unreadable: SourceError | None = None
        self.refreshed = self.loaded = 0
        self.pushed: list[tuple[str, str]] = []
        self.asked_for: list[str] = []
        self.elsewhere: dict[str, Commit] = {}  # at the remote, and not in the mirror

    def commit(
        self,
        fleet: Fleet | None = None,
        *,
        policy: Spec | None = None,
        broken: str = "",
        message: str = "",
        parent: str | None = None,
        missing_path: bool = False,
        push: bool = True,
    ) -> str:
        """A commit on top of the head (or of ``parent``: a rewritten branch); its sha."""
        before = self.commits.get(parent or self.head or "")
        fleet = dict(fleet if fleet is not None else before.fleet if before else {})
        chosen = dict(policy if policy is not None else before.policy if before else {})
        parents = (before.revision.sha,) if before else ()
        tree = "" if missing_path else sha1(canonical([fleet, chosen, broken])).hexdigest()
        number = len(self.commits)
        sha = sha1(f"{number} {tree} {parents}".encode()).hexdigest()
        text = message or f"commit {number}"
        revision = Revision(sha, tree, parents, "Ada <ada@example.com>", float(number), float(number), text)
        errors = (Finding(Severity.ERROR, "BadYaml", "a.yaml:1:1", broken),) if broken else ()
        self.commits[sha] = Commit(revision, fleet, chosen, errors)
        if push:
            self.head = sha
        return sha

    # -- what we write ourselves

    def restore(self, to: str, message: str) -> str:
        """A commit that nobody has pushed yet."""
        good = self.commits[to]
        assert self.head is not None
        if self.commits[self.head].revision.tree == good.revision.tree:
            raise NothingToDo("the tree is the same already")
        return self.commit(good.fleet, policy=good.policy, message=message, push=False)

    def revert(self, shas: Sequence[str], message: str) -> str:
        raise NotImplementedError

    def tip(self, branch: str) -> str | None:
        if self.down is not None:
            raise self.down
        return self.head if branch == "main" else next((sha for sha, to in self.pushed if to == branch), None)

    def check_push(self, branch: str) -> None:
        """Every branch may be pushed to."""

    def push(self, sha: str, branch: str) -> None:
        if self.down is not None:
            raise self.down
        self.pushed.append((sha, branch))
        if branch != "main":
            return
        if self.head not in (sha, *self.commits[sha].revision.parents):
            raise SourceRefused("not a fast-forward")
        self.head = sha

    # -- the source

    def refresh(self) -> Revision:
        self.refreshed += 1
        if self.down is not None:
            raise self.down
        assert self.head is not None
        return self.commits[self.head].revision

    def has(self, sha: str) -> bool:
        return sha in self.commits

    def bring(self, sha: str) -> None:
        self.asked_for.append(sha)
        if sha not in self.elsewhere:
            raise SourceRefused(f"there is no commit {sha}")
        self.commits[sha] = self.elsewhere.pop(sha)

    def revision(self, ref: str) -> Revision:
        if ref not in self.commits:
            raise SourceRefused(f"there is no commit {ref}")
        return self.commits[ref].revision

    def between(self, old: str | None, new: str) -> tuple[Revision, ...]:
        old = old if old in self.commits else None
        known = {revision.sha for revision in self.history(old, 10**6)} if old else set()
        found = [revision for revision in self.history(new, 10**6) if revision.sha not in known]
        return tuple(reversed(found)) if old else (self.revision(new),)

    def history(self, sha: str, limit: int) -> tuple[Revision, ...]:
        found: list[Revision] = []
        at: str | None = sha
        while at is not None and len(found) < limit:
            found.append(self.revision(at))
            at = next(iter(found[-1].parents), None)
        return tuple(found)

    def is_ancestor(self, old: str, new: str) -> bool:
        return old in {revision.sha for revision in self.history(new, 10**6)}

    def undoes(self, later: str, earlier: str) -> bool:
        """Whether the difference of one commit is the inverse of another's."""
        one, other = self._difference(later), self._difference(earlier)
        return bool(one) and one == {name: (new, old) for name, (old, new) in other.items()}

    def _difference(self, sha: str) -> dict[str, tuple[Any, Any]]:
        after = self.commits[sha]
        before = self.commits[after.revision.parents[0]]
        old, new = ({**commit.fleet, "policy.yaml": commit.policy} for commit in (before, after))
        names = old.keys() | new.keys()
        return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}

    def merged(self, sha: str) -> tuple[str, ...]:
        return ()

    # -- the loader

    def load(self, revision: Revision) -> Snapshot:
        self.loaded += 1
        commit = self.commits[revision.sha]
        if commit.errors:
            raise InvalidDesiredState("not valid", commit.errors)
        return self._compiled(commit)

    def tighten(self, sha: str) -> None:
        """From now on a commit breaks a rule: we are a newer version."""
        found = (Finding(Severity.ERROR, "OutOfRange", "a.yaml:3:1", "too long"),)
        self.commits[sha] = replace(self.commits[sha], errors=found)

    def recall(self, revision: Revision) -> Snapshot | None:
        if self.unreadable is not None:
            raise self.unreadable
        return self._compiled(self.commits[revision.sha]) if self.remembers else None

    def _compiled(self, commit: Commit) -> Snapshot:
        agents = {key(name): self._agent(name, spec) for name, spec in commit.fleet.items()}
        # Waves follow each other at once where the bake is not what a story is about.
        policy = {**commit.policy, "rollout": {"bake": "0s", **commit.policy.get("rollout", {})}}
        return Snapshot(commit.revision, agents, PolicySpec.model_validate_json(Fields.of(policy).raw))

    def _agent(self, name: str, given: Spec) -> Agent:
        runtime = {"driver": "process", "command": ["serve"], **given.get("runtime", {})}
        content = {
            "apiVersion": "gitops-agent.dev/v1",
            "kind": "Agent",
            "metadata": {"name": name, "tenant": TENANT},
            "spec": {**given, "runtime": runtime},
        }
        document = AgentDocument.model_validate_json(Fields.of(content).raw)
        spec = document.spec
        asked = compilation(self.plugins, key(name), document)
        resources = [resource for plugin in self.plugins for resource in plugin.compile(asked)]
        made = Agent(
            key=key(name),
            origin=Origin(f"agents/{TENANT}/{name}.yaml", 1, "blob"),
            resources=tuple(sorted(resources, key=lambda each: BUILT_IN.position(each.key.kind))),
            lifecycle=Lifecycle(spec.lifecycle),
            deletion_policy=DeletionPolicy(spec.deletion_policy),
            mode=Mode(spec.reconcile.mode),
            adopt=spec.adopt,
            authority=tuple(sorted(spec.authority.items())),
            depends_on=tuple(AgentKey.parse(other) for other in spec.rollout.depends_on),
            health_timeout=seconds(spec.rollout.health_timeout),
            exclusive=spec.runtime.exclusive,
        )
        until = epoch(spec.reconcile.until) if spec.reconcile.until else None
        return (
            replace(made, pause=Pause(spec.reconcile.reason or "by hand", until))
            if spec.reconcile.paused
            else made
        )
