"""Which paths are read, which are left alone, and which make a commit invalid."""

from __future__ import annotations

import pytest

from gitops_agent.settings import Limits, Settings
from tests.snapshot.world import World, agent, codes, load, refuse

pytestmark = pytest.mark.unit

PATH = "agents/acme/bot.yaml"


@pytest.mark.parametrize(
    "path",
    [
        "../bot.yaml",
        "agents/../../bot.yaml",
        "/etc/bot.yaml",
        "agents//bot.yaml",
        "./bot.yaml",
        ".git/config",
        "agents/.GIT/hooks/x",
        "agents/git~1/x",
        "agents/.git. /x",
        "agents/.g\u200cit/x.yaml",
        "agents\\bot.yaml",
        "agents/a\nb.yaml",
        "agents/\x7f.yaml",
        "agents/\udcff.yaml",
    ],
)
def test_odd_names_are_refused(path: str) -> None:
    found = refuse({PATH: agent(), path: "a: 1\n"})
    assert codes(found) == ["BadPath"]
    assert found[0].address.isprintable()


def test_links_and_submodules_are_refused_and_never_followed() -> None:
    files = {PATH: agent(), "agents/acme/link.yaml": ("120000", "/etc/passwd"), "vendored": ("160000", "x")}
    assert codes(refuse(files)) == ["Symlink", "Gitlink"]
    ignored = {**files, ".gitopsignore": "link.yaml\nvendored\n"}
    assert load(ignored).agents
    assert load({PATH: agent(), ".github/link": ("120000", "x")}).agents


def test_names_that_differ_only_by_case_are_refused() -> None:
    found = refuse({PATH: agent(), "agents/acme/BOT.yaml": agent("other")})
    assert codes(found) == ["CaseCollision"]
    assert found[0].address.startswith(PATH)


def test_a_rename_that_changes_only_case_is_fine() -> None:
    world = World()
    world.load({PATH: agent()})
    assert world.load({"agents/acme/Bot.yaml": agent()}).agents


def test_dot_folders_ignored_files_and_other_suffixes_are_not_read() -> None:
    bad = "a: [\n"
    files = {
        PATH: agent(),
        ".github/workflows/ci.yaml": bad,
        "agents/.hidden/x.yaml": bad,
        "charts/templates/x.yaml": bad,
        "README.md": bad,
        "values.yaml.tpl": bad,
        ".gitopsignore": "# templates are not YAML\ncharts/\n",
    }
    assert [str(key) for key in load(files).agents] == ["acme/bot"]
    assert load({PATH: agent(), "more.yml": agent("crm", tenant="acme")}).agents.keys() == {
        ("acme", "bot"),
        ("acme", "crm"),
    }


def test_a_changed_ignore_file_is_followed_and_keeps_the_untouched() -> None:
    world = World()
    first = world.load({PATH: agent(), "x/a.yaml": agent("a", tenant="t")})
    second = world.load({PATH: agent(), "x/a.yaml": agent("a", tenant="t"), ".gitopsignore": "x/\n"})
    assert set(second.agents) == {("acme", "bot")}
    assert second.agents["acme", "bot"] is first.agents["acme", "bot"]  # type: ignore[index]
    third = world.load({PATH: agent(), "x/a.yaml": agent("a", tenant="t")})
    assert third.agents == first.agents


def test_instructions_are_inlined_relative_to_the_document() -> None:
    files = {
        PATH: agent(instructionsFrom={"file": "prompts/bot.md"}),
        "agents/acme/prompts/bot.md": "Be kind.\n",
        "agents/acme/deep/crm.yaml": agent("crm", instructionsFrom={"file": "../../shared.md"}),
        "agents/shared.md": "Shared.\n",
    }
    prompts = {k.name: a.resources[0].fields.value["instructions"] for k, a in load(files).agents.items()}
    assert prompts == {"bot": "Be kind.\n", "crm": "Shared.\n"}


@pytest.mark.parametrize(
    ("file", "extra", "code"),
    [
        ("../../../etc/passwd", {}, "FileOutsideRepository"),
        ("/etc/passwd", {}, "FileOutsideRepository"),
        ("..\\x", {}, "FileOutsideRepository"),
        ("../..", {}, "MissingFile"),
        ("missing.md", {}, "MissingFile"),
        ("folder", {"agents/acme/folder/x.md": "x"}, "MissingFile"),
        ("link.md", {"agents/acme/link.md": ("120000", "/etc/passwd"), ".gitopsignore": "*.md"}, "MissingFile"),
        ("sub", {"agents/acme/sub": ("160000", "x"), ".gitopsignore": "sub"}, "MissingFile"),
        ("bytes.md", {"agents/acme/bytes.md": b"\xff"}, "NotUtf8"),
        ("large.md", {"agents/acme/large.md": "x" * 101}, "TooLarge"),
    ],
)
def test_instructions_stay_inside(file: str, extra: dict[str, str], code: str) -> None:
    settings = Settings(limits=Limits(instructions_bytes=100))
    found = refuse({PATH: agent(instructionsFrom={"file": file}), **extra}, settings=settings)
    assert codes(found) == [code]
    assert found[0].address == f"{PATH}:9:15"


def test_one_prompt_for_a_whole_fleet_counts_each_time() -> None:
    settings = Settings(limits=Limits(total_bytes=200_000))
    files = {f"agents/t/a{n}.yaml": agent(f"a{n}", instructionsFrom={"file": "p.md"}) for n in range(50)}
    assert codes(refuse({**files, "agents/t/p.md": "x" * 10_000}, settings=settings)) == ["TooLarge"]


def test_a_missing_path_and_an_empty_tree() -> None:
    world = World(Settings(path="fleet"))
    revision = world.reader.commit({})
    snapshot = world.loader.load(revision)
    assert (snapshot.agents, [f.code for f in snapshot.findings]) == ({}, ["NoAgents"])
