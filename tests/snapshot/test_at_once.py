"""Every error of a commit at once: no error hides another one, and none is made up by the look behind it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers import config, hook, process
from gitops_agent.drivers.api import RUNTIME, Plugin, Strict
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.finding import Finding
from gitops_agent.settings import Settings
from gitops_agent.snapshot.loader import Loader
from tests.snapshot.styles import documents
from tests.snapshot.world import Content, MemoryReader, agent, other, text

pytestmark = pytest.mark.unit

BUILT_IN = (config.PLUGIN, hook.PLUGIN, process.PLUGIN)
PATH = "agents/acme/bot.yaml"


class Options(Strict):
    namespace: str = "default"


KUBERNETES = Plugin("kubernetes", (RUNTIME,), lambda _: (), lambda _: None, options=Options)  # type: ignore[arg-type, return-value]


def errors_of(files: dict[str, Content], plugins: tuple[Plugin, ...] = BUILT_IN) -> list[Finding]:
    reader = MemoryReader()
    try:
        Loader(reader, Plugins(plugins), Settings(instance="prod")).load(reader.commit(files))
    except InvalidDesiredState as refused:
        return [finding for finding in refused.findings if finding.severity == "error"]
    return []


def found(files: dict[str, Content], plugins: tuple[Plugin, ...] = BUILT_IN) -> set[str]:
    """Where, and what: so that a finding at the wrong place is seen."""
    return {f"{each.address.split(':')[1]} {each.code}" for each in errors_of(files, plugins)}


FOUR_ROUNDS = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {name: bot, tenant: globex}
spec:
  lifecyle: Running
  instructions: x
  instructionsFrom: {file: missing.md}
  runtime:
    driver: process
    command: [run]
    command: [run, again]
    image: busybox
    workdir: here
    replicas: 0
    env:
      - {name: 1A, value: x, valueFrom: {secretRef: {provider: env, name: A}}}
      - {name: B}
      - {name: C, valueFrom: {secretRef: {provider: env, name: not a variable}}}
      - {name: D, valueFrom: {secretRef: {provider: file, name: relative}}}
    stop: {signal: SIGWRONG, grace: 15}
  probes: {readiness: {http: {port: 0}, exec: {command: [x]}}}
  rollout: {healthTimeout: 15, dependsOn: [acme/other, missing]}
  authority: {runtime.replicas: live}
  dns: [{hostname: a.example, type: A, target: x}]
"""


def test_a_file_that_needed_four_rounds_needs_one() -> None:
    assert found({PATH: FOUR_ROUNDS}) == {
        "3 TenantMismatch",
        "5 UnknownField",
        "7 InvalidValue",  # instructions as well
        "11 DuplicateKey",
        "12 DriverRefused",
        "13 DriverRefused",
        "14 OutOfRange",
        "16 BadFormat",
        "16 InvalidValue",  # both sources, whatever its name
        "17 InvalidValue",
        "18 InvalidValue",
        "19 DriverRefused",
        "20 DriverRefused",
        "20 WrongType",
        "21 OutOfRange",
        "21 InvalidValue",
        "22 WrongType",
        "22 CrossTenant",
        "22 UnknownDependency",
        "24 DriverNotInstalled",
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # One finding for one mistake: nothing that follows from it.
        ({"runtime": {"driver": "process", "comand": ["run"]}}, ["UnknownField"]),
        ({"runtime": {"driver": "process", "command": "run"}}, ["WrongType"]),
        ({"runtime": {"driver": 5, "command": ["run"]}}, ["WrongType"]),
        ({"runtime": {"command": ["run"]}}, ["MissingField"]),
        ({"runtime": {"driver": "process", "command": ["run"], "stop": {"signal": 15}}}, ["WrongType"]),
        ({"probes": {"readiness": {"htp": {"port": 1}}}}, ["UnknownField"]),
        ({"probes": {"readiness": {"http": {"port": "x"}}}}, ["WrongType"]),
        ({"hooks": {"onRetired": {"command": [1]}}}, ["WrongType"]),
        ({"rollout": {"dependsOn": ["UPPER"]}}, ["BadFormat"]),
        ({"instructionsFrom": {"file": 1}}, ["WrongType"]),
        ({"reconcile": "paused"}, ["WrongType"]),
        ({"model": {"provider": "p", "name": ""}}, ["BadFormat"]),
        # And two for two, of different stages.
        ({"runtime": {"driver": "proces", "command": ["run"]}, "adopt": 1}, ["DriverNotInstalled", "WrongType"]),
        (
            {"runtime": {"driver": "process", "command": ["run"], "stop": {"signal": "X"}}, "adopt": 1},
            ["DriverRefused", "WrongType"],
        ),
    ],
)
def test_each_mistake_is_found_once(spec: dict[str, Any], expected: list[str]) -> None:
    assert sorted(each.code for each in errors_of({PATH: agent("bot", **spec)})) == expected


def test_a_mistake_in_the_name_makes_up_no_duplicates() -> None:
    bad = agent("Not A Name")
    assert found({PATH: bad, "agents/acme/b.yaml": bad}) == {"5 BadFormat"}
    assert len(errors_of({PATH: bad, "agents/acme/b.yaml": bad})) == 2


def test_references_of_a_document_with_errors_are_checked_and_those_to_it_hold() -> None:
    one = agent("one", adopt=1, rollout={"dependsOn": ["nobody"]})
    two = agent("two", rollout={"dependsOn": ["one"]})
    codes = [each.code for each in errors_of({"agents/acme/one.yaml": one, "agents/acme/two.yaml": two})]
    assert sorted(codes) == ["UnknownDependency", "WrongType"]


def test_a_policy_with_an_error_is_still_one_policy_too_many() -> None:
    files: dict[str, Content] = {
        "a.yaml": other("Policy", {"rollout": {"canary": 0}, "tenants": {"acme": {"rollout": {"canary": 9}}}}),
        "b.yaml": other("Policy", {}),
        PATH: agent(),
    }
    assert sorted(each.code for each in errors_of(files)) == ["OutOfRange", "SeveralPolicies", "SeveralPolicies"]


def test_what_nothing_uses_is_an_error() -> None:
    pool = other(
        "CredentialPool",
        {"provider": "p", "keys": [{"name": "a", "secretRef": {"provider": "env", "name": "A"}}]},
        name="p",
    )
    (unused,) = errors_of({PATH: agent(), "pools/p.yaml": pool})
    assert (unused.code, unused.address.split(":")[0]) == ("DriverNotInstalled", "pools/p.yaml")
    runtime = {"driver": "process", "command": ["run"], "kubernetes": {"namespace": "x"}}
    assert [each.code for each in errors_of({PATH: agent("bot", runtime=runtime)})] == ["UnknownField"]
    (block,) = errors_of({PATH: agent("bot", runtime=runtime)}, (*BUILT_IN, KUBERNETES))
    assert "runtime.kubernetes is for the driver kubernetes" in block.summary
    (field,) = errors_of({PATH: agent("bot", authority={"runtime.replicas": "live", "runtime.replcas": "live"})})
    assert "did you mean runtime.replicas?" in field.summary


WRONG = st.sampled_from([5, True, "", "x y/z", [1], {"a": 1}, [{"name": 1}], None, "99999d", "-1"])


@given(documents(), st.data())
def test_whatever_is_wrong_there_is_an_error_and_no_crash(value: Any, data: st.DataObject) -> None:
    """Replace a part of a valid document: what is found stands in the file, and the look behind it ends."""
    place, steps = value, []
    while isinstance(place, (dict, list)) and place and data.draw(st.booleans() if steps else st.just(True)):
        step = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        steps.append((place, step))
        place = place[step]
    box, step = steps[-1]
    box[step] = data.draw(WRONG)
    for each in errors_of({"x.yaml": text(value)}):
        assert each.address.startswith("x.yaml:")
