"""Short ways to write the values the plan stage works on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gitops_agent.drivers import config, process
from gitops_agent.model.agent import Agent, DeletionPolicy, Origin, Resource
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.plan import Plan
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import Health
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PlanContext

NOW = 1_000_000.0
SHA = "c" * 40

Content = Mapping[str, Any]

CATALOG = Catalog(
    {("fake", code): each for code, each in {**process.PLUGIN.reasons, **config.PLUGIN.reasons}.items()},
    instance_fields={"fake": "replicas"},
)
"""The made-up driver of these tests gives the reasons of the local ones."""


def key(text: str, kind: str = "runtime", identity: str = "process") -> ResourceKey:
    return ResourceKey(AgentKey.parse(text), kind, identity)


def resource(of: ResourceKey, content: Content, **options: Any) -> Resource:
    return Resource(of, "fake", Fields.of(content), **options)


def agent(text: str, resources: Iterable[Resource] | Content = (), **options: Any) -> Agent:
    """An agent; a mapping instead of resources stands for the fields of its one runtime."""
    if isinstance(resources, Mapping):
        resources = (resource(key(text), resources),)
    return Agent(AgentKey.parse(text), Origin(f"agents/{text}.yaml", 1, "b"), tuple(resources), **options)


def base(of: ResourceKey, content: Content, **options: Any) -> Base:
    options.setdefault("commit", SHA)
    return Base(of, "fake", Fields.of(content), applied_at=NOW - 60, **options)


def live(of: ResourceKey, content: Content | None, owner: Owner = Owner.OURS, **options: Any) -> Observation:
    fields = None if content is None else Fields.of(content)
    options.setdefault("observed_at", NOW)
    return Observation(of, "fake", owner, fields, "Running" if fields else "Missing", **options)


def snapshot(agents: Iterable[Agent], policy: Content | None = None, sha: str = SHA) -> Snapshot:
    revision = Revision(sha, "t" * 40, (), "A U Thor <a@example.com>", NOW, NOW, "a change")
    return Snapshot(revision, {each.key: each for each in agents}, PolicySpec.model_validate(policy or {}))


def context(desired: Snapshot, bases: Iterable[Base] = (), **options: Any) -> PlanContext:
    known = {each.key: each for each in bases}
    options.setdefault("now", NOW)
    options.setdefault("catalog", CATALOG)
    repairs = options.pop("repairs", {})
    options["repairs"] = lambda key: repairs.get(key, ())
    return PlanContext(snapshot=desired, bases=known, **options)


def plan(
    desired: Snapshot,
    observations: Iterable[Observation] = (),
    bases: Iterable[Base] = (),
    healths: Mapping[AgentKey, Health] | None = None,
    **options: Any,
) -> Plan:
    return build(desired, observations, context(desired, bases, **options), healths or {})


def running(text: str, content: Content, **options: Any) -> tuple[Agent, Base, Observation]:
    """An agent that is in sync."""
    of = key(text)
    declared = agent(text, content, **options)
    recorded = base(of, content, deletion_policy=options.get("deletion_policy", DeletionPolicy.DELETE))
    return declared, recorded, live(of, content)


def stopped(declared: Agent) -> Agent:
    """The same agent, with a runtime that is wanted absent."""
    return replace(declared, resources=tuple(replace(each, stopped=True) for each in declared.resources))


def verbs(made: Plan) -> list[tuple[str, str]]:
    return [(action.verb.value, str(action.key)) for action in made.actions]
