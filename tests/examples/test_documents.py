"""The example fleet and the starter are valid as they stand, and stay what the pages say of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import jsonpatch
import pytest
from ruamel.yaml import YAML

import gitops_agent_demo.agents
from gitops_agent.drivers.kubernetes.options import KubernetesOptions
from gitops_agent.model.document import DOCUMENTS, AgentDocument
from tests.examples.fleet import EXAMPLE, ROOT, STARTER, agents, documents

pytestmark = pytest.mark.unit

ALL = [*documents(EXAMPLE), *documents(STARTER)]
DEMO_AGENTS = Path(gitops_agent_demo.agents.__file__).parent


def tuples(value: Any) -> Any:
    """Lists as tuples: the strict models take what a loader has already frozen."""
    if isinstance(value, dict):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def validate(document: Mapping[str, Any]) -> Any:
    return DOCUMENTS[document["kind"]].model_validate(tuples(document))


@pytest.mark.parametrize(("path", "document"), ALL, ids=[path.name for path, _ in ALL])
def test_every_document_validates(path: Path, document: Mapping[str, Any]) -> None:
    assert validate(document).kind == document["kind"]


def test_a_misspelt_field_would_be_noticed() -> None:
    _, document = agents(EXAMPLE)["acme/crm-bot"]
    with pytest.raises(ValueError, match="replica"):
        validate({**document, "spec": {**document["spec"], "replica": 1}})


def test_the_first_document_of_the_kubernetes_page_is_a_whole_one() -> None:
    lines = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8").splitlines()
    begun = lines.index("    apiVersion: gitops-agent.dev/v1")
    shown = dedent("\n".join(lines[begun : lines.index("", begun)]))
    document = YAML(typ="safe", pure=True).load(shown)
    of_driver = document["spec"]["runtime"].pop("kubernetes")
    assert validate(document).kind == "Agent"
    assert KubernetesOptions.model_validate(tuples(of_driver)).ports


@pytest.mark.parametrize("folder", [EXAMPLE, STARTER], ids=["example", "starter"])
def test_keys_follow_the_folders(folder: Path) -> None:
    for key, (path, _) in agents(folder).items():
        assert str(path.relative_to(folder)) == f"agents/{key}.yaml"


def test_it_is_the_fleet_the_page_promises() -> None:
    fleet = agents(EXAMPLE)
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert len(fleet) == 6
    assert len({key.split("/")[0] for key in fleet}) == 3
    assert [key for key in fleet if f"`{key}`" not in page] == []
    assert sorted({document["kind"] for _, document in documents(EXAMPLE)}) == ["Agent", "Overlay", "Policy"]


def test_dependencies_and_instruction_files_exist() -> None:
    fleet = agents(EXAMPLE)
    for path, document in fleet.values():
        spec = document["spec"]
        assert set(spec.get("rollout", {}).get("dependsOn", ())) <= set(fleet)
        if "instructionsFrom" in spec:
            assert (path.parent / spec["instructionsFrom"]["file"]).is_file()


def test_ports_do_not_collide_and_probes_ask_where_the_agent_listens() -> None:
    listening = {}
    for key, (_, document) in agents(EXAMPLE).items():
        env = {entry["name"]: entry["value"] for entry in document["spec"]["runtime"].get("env", ())}
        probe = document["spec"].get("probes", {}).get("readiness", {}).get("http")
        if "PORT" in env:
            listening[key] = env["PORT"]
        assert probe is None or str(probe["port"]) == env["PORT"]
    assert len(set(listening.values())) == len(listening) == 2


def test_overlays_apply_to_somebody_and_leave_valid_documents() -> None:
    for _, overlay in documents(EXAMPLE):
        if overlay["kind"] != "Overlay":
            continue
        chosen = [document for _, document in agents(EXAMPLE).values() if selects(overlay, document)]
        assert chosen
        for document in chosen:
            patched = jsonpatch.apply_patch(document, overlay["spec"]["patches"])
            assert patched != document
            assert isinstance(validate(patched), AgentDocument)


def selects(overlay: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    selector, metadata = overlay["spec"]["selector"], document["metadata"]
    return (
        selector.get("tenant") in (None, metadata["tenant"])
        and metadata["name"] in selector.get("names", [metadata["name"]])
        and selector.get("labels", {}).items() <= metadata["labels"].items()
    )


def test_demo_agents_import_nothing_but_python_and_the_heartbeat() -> None:
    allowed = {*sys.stdlib_module_names, "gitops_agent.heartbeat"}
    for module in DEMO_AGENTS.glob("*.py"):
        for name in imported(ast.parse(module.read_text(encoding="utf-8"))):
            ours = name.startswith("gitops_agent_demo.agents")
            assert ours or name in allowed or name.split(".")[0] in sys.stdlib_module_names, (module.name, name)


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return names
