"""README and docs say what the code does: verbs, settings, fields and links stay in step."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import gitops_agent
from gitops_agent.cli import exit_codes
from gitops_agent.drivers.kubernetes.options import KubernetesOptions
from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.document import DOCUMENTS
from gitops_agent.report.status_text import rollout_line
from tests.examples.fleet import ROOT, STARTER
from tests.examples.model_fields import defaults

pytestmark = pytest.mark.unit

VERBS = {"init", "validate", "plan", "once", "run", "status", "explain", "history", "rollback", "logs"}
VERBS |= {"schema", "doctor", "demo", "freeze", "unfreeze", "approve", "retry", "drift", "workflows"}
FOLDERS = (ROOT / "docs", ROOT / "docker", ROOT / "examples", STARTER)
PAGES = [ROOT / "README.md", *sorted(page for folder in FOLDERS for page in folder.rglob("*.md"))]
CALL = re.compile(r"^ *(?:\$ )?gitops-agent +([a-z]+)|`gitops-agent +([a-z]+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[a-z]+)?\)")
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_only_verbs_that_exist_are_shown(page: Path) -> None:
    called = {first or second for first, second in CALL.findall(read(page))}
    assert called <= VERBS


def test_the_readme_teaches_every_verb() -> None:
    assert {verb for verb in VERBS if f"`gitops-agent {verb}" not in read(ROOT / "README.md")} == set()


def test_the_readme_shows_the_picture_of_the_pipeline() -> None:
    picture = [line for line in (gitops_agent.__doc__ or "").splitlines() if line.startswith("    ")]
    assert len(picture) > 4
    assert "\n".join(picture) in read(ROOT / "README.md")


def test_the_readme_shows_a_held_rollout_as_status_does() -> None:
    why = "HealthTimeout: not healthy within 10 s: the readiness probe has not passed yet: GET :18080/helthz: 404"
    rollout = {"failed": f"acme/bot-00 is not Ready: {why}", "waves": [1, 5, 44], "released": 1, "waiting": 49}
    assert f"\n    {rollout_line(rollout)}\n" in read(ROOT / "README.md")


def test_the_readme_has_every_exit_code() -> None:
    kinds = [GitopsAgentError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    codes = {kind.exit_code for kind in kinds} | set(range(exit_codes.NO_SOURCE + 1))
    # Other tables begin with numbers as well, such as the sizes of fleets in that of the benchmarks.
    table = read(ROOT / "README.md").partition("| exit code |")[2].partition("\n\n")[0]
    assert codes | {130} == {int(code) for code in re.findall(r"^\| (\d+) \| ", table, re.MULTILINE)}


def test_the_readme_has_a_place_for_the_benchmarks() -> None:
    before, _, after = read(ROOT / "README.md").partition("<!-- bench:begin -->")
    assert before
    assert "<!-- bench:end -->" in after


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(read(page)) if not (page.parent / link).exists()] == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(LINK.findall(read(folder / "README.md")))
    assert listed == {record.name for record in folder.glob("0*.md")}


def test_the_table_of_settings_is_that_of_the_code() -> None:
    page = read(ROOT / "docs" / "configuration.md")
    assert runpy.run_path(str(ROOT / "docs" / "settings_table.py"))["page"](page) == page


def test_the_table_of_the_kubernetes_settings_is_that_of_the_code() -> None:
    page = read(ROOT / "docs" / "kubernetes.md")
    assert runpy.run_path(str(ROOT / "docs" / "kubernetes_table.py"))["page"](page) == page


def test_the_kubernetes_page_has_a_row_for_every_option_of_a_document() -> None:
    page = read(ROOT / "docs" / "kubernetes.md")
    rows = [line.split("|")[1] for line in page.split("## What is ours")[0].splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {field.alias or name for name, field in KubernetesOptions.model_fields.items()} <= listed


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_field_is_documented_with_its_default(kind: str) -> None:
    rows = dict(ROW.findall(section(kind)))
    fields = dict(defaults(DOCUMENTS[kind]))
    assert [name for name in fields if not any(fnmatchcase(name, plain(row)) for row in rows)] == []
    for row, said in rows.items():
        meant = {text(value) for name, value in fields.items() if fnmatchcase(name, plain(row))}
        assert meant == {said}, row


def section(kind: str) -> str:
    """The part of the page about one kind, without the variables an agent gets."""
    part = read(ROOT / "docs" / "documents.md").split(f"\n## {kind}\n")[1].split("\n## ")[0]
    return part.split("**What an agent gets.**")[0]


def plain(row: str) -> str:
    """A row as a pattern in which only the star is special."""
    return row.replace("[]", "[[][]]")


def text(value: Any) -> str:
    if value is ...:
        return "required"
    if value in (None, (), {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def test_the_image_is_made_of_files_that_exist_and_runs_as_nobody_special() -> None:
    steps = read(ROOT / "docker" / "Dockerfile")
    assert re.search(r"^ARG BASE=python:3.11-slim\nFROM \$\{BASE\}", steps, re.MULTILINE)
    assert re.search(r"^USER [1-9]", steps, re.MULTILINE)
    ignored = read(ROOT / ".dockerignore").splitlines()
    for source in copied(steps):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def copied(steps: str) -> Iterator[str]:
    for line in re.findall(r"^COPY (?!--from)(.+)$", steps, re.MULTILINE):
        *sources, _ = line.split()
        yield from sources
