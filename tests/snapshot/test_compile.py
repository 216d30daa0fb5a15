"""From documents to agents: tenants, demands on drivers, references between documents, policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import CREDENTIAL, Compilation, Plugin, Refused
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.snapshot import Snapshot, changed_agents
from gitops_agent.settings import Settings
from gitops_agent.snapshot.cache import Cache
from gitops_agent.snapshot.loader import Loader
from gitops_agent.testing.memory_driver import MemoryDriver
from tests.snapshot.world import COMPILERS, PLUGINS, MemoryReader, World, agent, codes, load, other, refuse

pytestmark = pytest.mark.unit

PATH = "agents/acme/bot.yaml"


def test_the_tenant_is_the_folder_unless_written() -> None:
    assert set(load({PATH: agent(), "x.yaml": agent("b", tenant="globex")}).agents) == {
        ("acme", "bot"),
        ("globex", "b"),
    }
    assert codes(refuse({PATH: agent(tenant="globex")})) == ["TenantMismatch"]
    assert codes(refuse({"bot.yaml": agent()})) == ["MissingField"]
    assert codes(refuse({"agents/Acme_Inc/bot.yaml": agent()})) == ["BadFormat"]


def test_two_documents_with_one_key_name_each_other() -> None:
    found = refuse({PATH: agent(), "agents/acme/again.yaml": agent()})
    assert codes(found) == ["DuplicateAgent"] * 2
    assert all("agents/acme/again.yaml:1 and agents/acme/bot.yaml:1" in finding.summary for finding in found)
    assert {finding.address for finding in found} == {f"{PATH}:5:13", "agents/acme/again.yaml:5:13"}


def test_retired_agents_have_no_resources() -> None:
    (found,) = load({PATH: agent(lifecycle="Retired", dns=[DNS])}).agents.values()
    assert found.resources == ()


DNS = {"hostname": "a.example", "type": "A", "target": "x"}


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"runtime": {"driver": "vm", "image": "x"}}, "DriverNotInstalled", "runtime.driver vm"),
        ({"dns": [DNS]}, "DriverNotInstalled", "dns"),
        ({"channels": [{"name": "a", "type": "t"}]}, "DriverNotInstalled", "channels"),
        ({"entitlement": {"plan": "p", "provider": "s", "customer": "c"}}, "DriverNotInstalled", "entitlement"),
        ({"checks": [{"a": 1}]}, "NotBuiltYet", "checks"),
        ({"hooks": {"onRetired": {"command": ["true"]}}}, "DriverNotInstalled", "hooks"),
    ],
)
def test_what_no_driver_meets_is_an_error_with_an_address(spec: Any, code: str, field: str) -> None:
    found = refuse({PATH: agent(**spec)})
    assert codes(found) == [code]
    assert field in found[0].summary
    assert found[0].address.startswith(f"{PATH}:")
    assert not found[0].address.endswith(":1:1")


def test_a_driver_that_meets_the_demand_is_enough() -> None:
    def dns(key: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
        records = [Fields.of(record.model_dump()) for record in document.spec.dns]
        return tuple(Resource(ResourceKey(key, "dns", "a"), "dns", fields) for fields in records)

    compilers = (("dns", dns), *COMPILERS)
    (found,) = load({PATH: agent(dns=[DNS])}, compilers=compilers).agents.values()
    assert [resource.key.kind for resource in found.resources] == ["config", "runtime", "dns"]


def test_what_a_driver_refuses_is_a_finding() -> None:
    def picky(key: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
        raise ValueError("workdir is \x1b[31mrelative")

    (found,) = refuse({PATH: agent()}, compilers=(("picky", picky),))
    assert found.code == "DriverRefused"
    assert found.summary == "agent acme/bot: driver picky: workdir is \\x1b[31mrelative"


@pytest.mark.parametrize(
    ("fact", "at", "said"),
    [
        (
            "a pod is ended by SIGTERM",
            ("runtime", "stop", "signal"),
            "runtime.stop.signal: a pod is ended by SIGTERM",
        ),
        ("an image is needed", ("runtime", "image"), "an image is needed"),
    ],
)
def test_what_a_driver_refuses_is_told_as_the_field_and_the_fact(
    fact: str, at: tuple[str, ...], said: str
) -> None:
    def picky(key: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
        raise Refused(fact, at)

    (found,) = refuse({PATH: agent()}, compilers=(("picky", picky),))
    assert found.summary == f"agent acme/bot: {said}"


def test_short_dependencies_mean_the_same_tenant() -> None:
    files = {PATH: agent(rollout={"dependsOn": ["crm"]}), "agents/acme/crm.yaml": agent("crm")}
    assert load(files).agents[AgentKey("acme", "bot")].depends_on == (AgentKey("acme", "crm"),)


def test_unknown_and_foreign_dependencies_are_refused() -> None:
    found = refuse(
        {
            PATH: agent(rollout={"dependsOn": ["crm-bto", "globex/x"]}),
            "agents/globex/x.yaml": agent("x"),
            "agents/acme/crm-bot.yaml": agent("crm-bot"),
            "agents/acme/a.yaml": agent("a", rollout={"dependsOn": ["crm-bto"]}),
        }
    )
    assert sorted(codes(found)) == ["CrossTenant", "UnknownDependency", "UnknownDependency"]
    unknown = next(finding for finding in found if finding.code == "UnknownDependency")
    assert "did you mean crm-bot?" in unknown.summary


def test_who_depends_on_a_broken_document_is_not_blamed_as_well() -> None:
    files = {PATH: agent(rollout={"dependsOn": ["crm"]}), "agents/acme/crm.yaml": agent("crm", typo=1)}
    assert codes(refuse(files)) == ["UnknownField"]


def ring(*names: str) -> dict[str, str]:
    return {
        f"agents/acme/{name}.yaml": agent(name, rollout={"dependsOn": [after]})
        for name, after in zip(names, (*names[1:], names[0]), strict=True)
    }


def test_cycles_are_refused_with_all_members_named() -> None:
    found = refuse({**ring("a", "b", "c"), **ring("self"), **ring("x", "y"), PATH: agent()})
    assert codes(found) == ["DependencyCycle"] * 6
    assert "acme/a -> acme/b -> acme/c -> acme/a" in found[0].summary


def test_a_thousand_wrong_documents_cost_no_more_than_a_thousand_findings() -> None:
    names = [f"a{n}" for n in range(400)]
    lost = {f"agents/t/{name}.yaml": agent(name, rollout={"dependsOn": ["nobody"]}) for name in names}
    same = {f"agents/t/{name}.yaml": agent("same") for name in names}
    for files in (ring(*names), lost, same):
        found = refuse(files)
        assert len(found) == len(names)
        assert max(len(finding.summary) for finding in found) < 1_000


def test_a_commit_that_closes_a_cycle_is_refused_and_one_that_opens_it_accepted() -> None:
    world = World()
    closed = ring("a", "b", "c")
    opened = {**closed, "agents/acme/c.yaml": agent("c")}
    world.load(opened)
    assert codes(world.refuse(closed)) == ["DependencyCycle"] * 3
    assert world.load(opened).agents


def test_a_long_chain_is_no_cycle_and_no_recursion() -> None:
    chain = {f"agents/t/a{n}.yaml": agent(f"a{n}", rollout={"dependsOn": [f"a{n + 1}"]}) for n in range(2_000)}
    assert len(load({**chain, "agents/t/a2000.yaml": agent("a2000")}).agents) == 2_001


def test_removing_what_others_depend_on_is_refused() -> None:
    world = World()
    files = {PATH: agent(rollout={"dependsOn": ["crm"]}), "agents/acme/crm.yaml": agent("crm")}
    world.load(files)
    found = world.refuse({PATH: files[PATH]})
    assert codes(found) == ["UnknownDependency"]
    assert found[0].address == f"{PATH}:10:9"


POOL = {"provider": "openai", "keys": [{"name": "a", "secretRef": {"provider": "env", "name": "KEY"}}]}


def credential(key: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    reference = document.spec.credential_pool_ref
    fields = Fields.of({"pool": reference.name if reference else None})
    return (Resource(ResourceKey(key, "credential", "pool"), "credential", fields),) if reference else ()


def pool(provider: str, **metadata: str) -> str:
    key = {"name": "k", "secretRef": {"provider": "env", "name": "K"}}
    return other("CredentialPool", {"provider": provider, "keys": [key]}, name="openai", **metadata)


def providers(asked: Compilation) -> tuple[Resource, ...]:
    """A driver of credentials: it needs to know the pool, not only its name."""
    fields = Fields.of({name: spec.provider for name, spec in asked.pools.items()})
    return (Resource(ResourceKey(asked.agent, "credential", "pool"), "pools", fields),)


POOL_PLUGIN = Plugin("pools", (CREDENTIAL,), providers, lambda _: MemoryDriver("pools"))


def test_a_driver_sees_the_pool_that_a_document_names(tmp_path: Path) -> None:
    plugins, settings, reader = Plugins([*PLUGINS, POOL_PLUGIN]), Settings(), MemoryReader()
    loader = Loader(reader, plugins, settings, Cache(tmp_path / "cache", "1"))
    users = {PATH: agent(credentialPoolRef={"name": "openai"}), "agents/acme/idle.yaml": agent("idle")}

    def seen(**pools: str) -> tuple[Snapshot, object]:
        files = {**users, **{f"{name}.yaml": text for name, text in pools.items()}}
        snapshot = loader.load(reader.commit(files))
        # Neither what was loaded before nor the cache shows: it is what a load from nothing sees.
        assert snapshot.agents == Loader(reader, plugins, settings).load(reader.commit(files)).agents
        resources = [each for agent in snapshot.agents.values() for each in agent.resources]
        return snapshot, {each.key.agent.name: each.fields.value for each in resources if each.driver == "pools"}

    first, found = seen(zz=pool("for-all"))
    assert found == {"bot": {"openai": "for-all"}, "idle": {}}
    second, found = seen(zz=pool("moved"))
    assert found == {"bot": {"openai": "moved"}, "idle": {}}
    assert changed_agents(first, second) == {("acme", "bot")}
    assert seen(zz=pool("moved"), aa=pool("own", tenant="acme"))[1] == {"bot": {"openai": "own"}, "idle": {}}
    assert seen(zz=pool("for-all"))[1] == {"bot": {"openai": "for-all"}, "idle": {}}


def test_pools_must_exist_for_the_tenant_or_for_all() -> None:
    user = agent(credentialPoolRef={"name": "prod"})
    compilers = (("credential", credential), *COMPILERS)
    shared, foreign = (
        other("CredentialPool", POOL, name="prod"),
        other("CredentialPool", POOL, name="prod", tenant="x"),
    )
    world = World(compilers=compilers)
    assert world.load({PATH: user, "pools/p.yaml": shared}).agents
    assert codes(world.refuse({PATH: user})) == ["UnknownPool"]
    assert codes(world.refuse({PATH: user, "pools/p.yaml": foreign})) == ["UnknownPool"]
    assert codes(world.refuse({"pools/a.yaml": shared, "pools/b.yaml": shared})) == ["DuplicatePool"] * 2
    assert "DriverNotInstalled" in codes(refuse({PATH: user, "pools/p.yaml": shared}))


def test_one_policy_only() -> None:
    policy = other("Policy", {"actionsPerMinute": 7})
    assert load({"gitops-agent.yaml": policy}).policy.actions_per_minute == 7
    assert load({PATH: agent()}).policy.actions_per_minute == 500
    assert codes(refuse({"a.yaml": policy, "b.yaml": policy})) == ["SeveralPolicies"] * 2


def test_a_cap_a_pass_is_no_field_any_more_and_the_error_names_the_new_one() -> None:
    (finding,) = refuse({"gitops-agent.yaml": other("Policy", {"actionsPerPass": 100})})
    assert finding.code == "UnknownField"
    assert "did you mean actionsPerMinute?" in finding.summary


@pytest.mark.parametrize(
    ("tenant", "field"),
    [
        ({"actionsPerMinute": 600}, "actionsPerMinute"),
        ({"massDelete": {"min": 6}}, "massDelete.min"),
        ({"massDelete": {"ratio": 0.5}}, "massDelete.ratio"),
        ({"rollout": {"second": "20%"}}, "rollout.second"),
        ({"rollout": {"onFailure": "Revert"}}, "rollout.onFailure"),
        ({"oscillation": {"window": "1m"}}, "oscillation.window"),
        ({"forcePush": "follow"}, "forcePush"),
        ({"massChange": None}, "massChange"),
    ],
)
def test_a_tenant_may_only_be_stricter(tenant: Any, field: str) -> None:
    policy = other("Policy", {"massChange": {"min": 9}, "tenants": {"acme": tenant}})
    found = refuse({"gitops-agent.yaml": policy})
    assert codes(found) == ["LooserPolicy"]
    assert field in found[0].summary


def test_a_tenant_inherits_what_it_does_not_say() -> None:
    spec = {
        "actionsPerMinute": 50,
        "massDelete": {"min": 3, "ratio": 0.1},
        "tenants": {"acme": {"massDelete": {"min": 2}}},
    }
    tenant = load({"gitops-agent.yaml": other("Policy", spec)}).policy.tenants["acme"]
    assert (tenant.actions_per_minute, tenant.mass_delete.min, tenant.mass_delete.ratio) == (50, 2, 0.1)
