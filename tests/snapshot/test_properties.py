"""Laws: both parsers agree, nothing crashes the loader, history does not show in a snapshot."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.finding import Finding
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.settings import Limits, Settings
from gitops_agent.snapshot.compiled_file import decode, encode
from gitops_agent.snapshot.positions import Locator, Positions
from gitops_agent.snapshot.yaml_documents import FileParser
from gitops_agent.support.text import escape_control
from tests.snapshot.styles import documents, styled
from tests.snapshot.world import World, agent, other

pytestmark = pytest.mark.unit

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def value_of(node: Any) -> Any:
    """The value of a composed node, by the rules of YAML 1.2 and with moments as text."""
    if isinstance(node, MappingNode):
        return {value_of(key): value_of(item) for key, item in node.value}
    if isinstance(node, SequenceNode):
        return [value_of(item) for item in node.value]
    assert isinstance(node, ScalarNode)
    kind, text = str(node.tag).rpartition(":")[2], node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, 0)
    return float(text) if kind == "float" else text


def paths(value: Any, loc: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [loc, *(path for key, item in items for path in paths(item, (*loc, key)))]


@slow
@given(st.data())
def test_both_parsers_read_the_same_value(data: st.DataObject) -> None:
    value = data.draw(documents())
    text = data.draw(styled(value))
    found, findings = FileParser(Limits(), Locator(9)).parse("a.yaml", text.encode())
    assert findings == []
    assert orjson.loads(found[0].raw) == value
    assert value_of(YAML(typ="safe", pure=True).compose(text)) == value


@slow
@given(st.data())
def test_positions_point_at_what_they_name(data: st.DataObject) -> None:
    value = data.draw(documents())
    text = data.draw(styled(value))
    lines, positions = text.split("\n"), Positions(text, 1)
    for loc in paths(value):
        spot = positions.find(loc, at_key=True)
        if loc and isinstance(loc[-1], str):
            there = lines[spot.line - 1][spot.column - 1 :]
            assert there.startswith((loc[-1], '"'))
        assert positions.find(loc) >= spot


def outcome(files: dict[str, Any], world: World | None = None) -> Snapshot | tuple[Finding, ...]:
    """A snapshot or findings: there is no third way."""
    found: Snapshot | tuple[Finding, ...]
    try:
        found = (world or World()).load(files)
    except InvalidDesiredState as invalid:
        found = invalid.findings
    findings = found.findings if isinstance(found, Snapshot) else found
    assert any(finding.severity == "error" for finding in findings) != isinstance(found, Snapshot)
    assert all(escape_control(text) == text for f in findings for text in (f.summary, f.address))
    return found


@slow
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash(content: bytes) -> None:
    outcome({"agents/acme/x.yaml": content})


PIECES = (
    *(
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\n",
        "  ",
        "\t",
        "&x ",
        "*x",
        "!t ",
        "!!str ",
        '"',
        "'",
    ),
    *(
        "|\n",
        ">\n",
        "#",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "<<: ",
        "~",
        "1",
        ".nan",
        "\r",
        "\x00",
        "\ufeff",
        "é",
        "\\",
    ),
    *("apiVersion: gitops-agent.dev/v1\n", "kind: Agent\n", "metadata: {name: x}\n", "spec:\n"),
)
YAMLISH = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@slow
@given(YAMLISH)
def test_text_that_resembles_yaml_never_crashes(text: str) -> None:
    outcome({"agents/acme/x.yaml": text, "overlays/x.yaml": "apiVersion: gitops-agent.dev/v1\n" + text})


@slow
@given(st.data())
def test_mutated_documents_never_crash(data: st.DataObject) -> None:
    text = data.draw(styled(data.draw(documents())))
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 8)))
        text = text[:begin] + data.draw(YAMLISH | st.text(max_size=4)) + text[end:]
    outcome({"agents/acme/x.yaml": text.encode("utf-8", "surrogatepass")})


@slow
@given(documents(), st.data())
def test_units_survive_the_cache(value: dict[str, Any], data: st.DataObject) -> None:
    world = World()
    world.load({"x.yaml": data.draw(styled(value))})
    assert world.loader._last is not None
    for unit in world.loader._last.index.files.values():
        assert decode(unit.path, unit.blob, encode(unit)) == unit


NAMES = ("a", "b", "c")


@st.composite
def repositories(draw: st.DrawFn) -> dict[str, Any]:
    """Small repositories in which documents refer to each other, rightly and wrongly."""
    files: dict[str, Any] = {}
    for name in draw(st.sets(st.sampled_from(NAMES))):
        spec: dict[str, Any] = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "rollout": st.fixed_dictionaries(
                        {"dependsOn": st.lists(st.sampled_from(NAMES), max_size=2, unique=True)}
                    ),
                    "instructionsFrom": st.sampled_from([{"file": "p.md"}, {"file": "q.md"}]),
                    "lifecycle": st.sampled_from(["Running", "Stopped", "Wrong"]),
                },
            )
        )
        folder = draw(st.sampled_from(["agents/t", "more"]))
        files[f"{folder}/{name}.yaml"] = agent(name, tenant="t", labels={"l": draw(st.sampled_from("xy"))}, **spec)
    for path in draw(st.sets(st.sampled_from(["agents/t/p.md", "agents/t/q.md", "more/p.md"]))):
        files[path] = draw(st.sampled_from(["one", "two"]))
    for path in draw(st.sets(st.sampled_from(["overlays/1.yaml", "agents/zz.yaml"]))):
        patch = {"op": "add", "path": "/spec/adopt", "value": draw(st.sampled_from([True, False, "x"]))}
        selector = draw(st.sampled_from([{}, {"names": ["a"]}, {"labels": {"l": "x"}}]))
        files[path] = other("Overlay", {"instance": "prod", "selector": selector, "patches": [patch]})
    extras = {
        "gitops-agent.yaml": other("Policy", {"actionsPerMinute": 9}),
        "foreign.yaml": "a: 1\n",
        ".gitopsignore": "more/\n",
        "Foreign.yaml": "a: 1\n",
    }
    files.update({path: extras[path] for path in draw(st.sets(st.sampled_from(sorted(extras)), max_size=2))})
    return files


def comparable(result: Snapshot | tuple[Finding, ...]) -> Any:
    return (result.agents, result.policy, result.findings) if isinstance(result, Snapshot) else result


@slow
@given(st.lists(repositories(), min_size=1, max_size=5))
def test_history_does_not_show(history: list[dict[str, Any]]) -> None:
    """A load that follows others says exactly what a load from nothing says; so does one that goes back."""
    world = World()
    for files in [*history, *reversed(history)]:
        assert comparable(outcome(files, world)) == comparable(outcome(files))


@slow
@given(repositories(), st.randoms(use_true_random=False))
def test_order_of_files_never_shows(files: dict[str, Any], random: Any) -> None:
    shuffled = list(files.items())
    random.shuffle(shuffled)
    assert comparable(outcome(files)) == comparable(outcome(dict(shuffled)))


def test_limits_are_settings() -> None:
    world = World(Settings(limits=Limits(depth=3)))
    assert world.refuse({"agents/t/a.yaml": agent("a")})[0].code == "TooDeep"
