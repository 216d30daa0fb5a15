"""``.gitopsignore``: the grammar of git, judged by git itself; and never a crash, a hang or a silent loss."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_agent.settings import Limits, Settings
from gitops_agent.snapshot import ignore
from tests.snapshot.world import World, agent, codes, load, refuse

PATH = "agents/acme/bot.yaml"
PARTS = ["a", "b", "c", ".", "*", "**", "?", "[ab]", "[!a]", "[a-b]", "[]a]", "\\a", "\\*", "!", "#", " ", "-"]
GLOBS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join)
LINES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(GLOBS | st.sampled_from(["**", "a", "b"]), min_size=1, max_size=4).map("/".join),
    st.sampled_from(["", "", "/"]),
)
NAMES = st.text("aabbc.-]!#* ", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ignore")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINES, min_size=1, max_size=5), st.lists(PATHS, min_size=20, max_size=40, unique=True))
def test_patterns_mean_what_they_mean_to_git(checkout: Path, lines: list[str], paths: list[str]) -> None:
    text = "\n".join(lines).encode()
    (checkout / ".gitignore").write_bytes(text)
    asked = subprocess.run(
        ["git", "-C", str(checkout), "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths) + "\0",
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
    )
    ignored, _ = ignore.read(text, 10_000)
    assert {path for path in paths if ignored(path)} == set(asked.stdout.split("\0")) - {""}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("drafts/\n!\n", ("BadPattern", ":2:1")),
        ("/\n", ("BadPattern", ":1:1")),
        ("a//b\n", ("BadPattern", ":1:1")),
        ("a[b\n", ("BadPattern", ":1:1")),
        ("a[z-a]\n", ("BadPattern", ":1:1")),
        ("[]\n", ("BadPattern", ":1:1")),
        ("a[!]\n", ("BadPattern", ":1:1")),
        ("x/[^]\n", ("BadPattern", ":1:1")),
        ("[[:alpha:]]\n", ("BadPattern", ":1:1")),
        ("a\\\n", ("BadPattern", ":1:1")),
        ("\n" + "a" * 257, ("BadPattern", ":2:1")),
        ("a\n" * 257, ("TooLarge", ":257:1")),
        ("#" * 1_001, ("TooLarge", ":1:1")),
        (b"drafts/\ncaf\xe9\n", ("NotUtf8", ":2:4")),
        (("120000", "/etc/passwd"), ("Symlink", ":1:1")),
    ],
)
def test_what_cannot_be_followed_is_addressed(text: str, expected: tuple[str, str]) -> None:
    found = refuse({PATH: agent(), ".gitopsignore": text}, settings=Settings(limits=Limits(file_bytes=1_000)))
    assert [(finding.code, finding.address) for finding in found] == [(expected[0], ".gitopsignore" + expected[1])]
    assert found[0].detail


@pytest.mark.unit
@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 24,
        "*a" * 24 + "/" + "*a" * 24,
        "**/a/" * 40 + "b",
        "**/*a*a/" * 30 + "b",
        "a/**/*a*/**/" * 20 + "*",
        "*" * 200,
        "[!b]*" * 40 + "b",
    ],
)
def test_no_pattern_takes_longer_than_reading_it(pattern: str) -> None:
    """Each of these takes a regular expression that backtracks longer than anybody lives."""
    names = {f"{'a' * 255}{number}b/{'a' * 255}.yaml": "a: 1\n" for number in range(20)}
    deep = {"a/" * 60 + "c.yaml": "a: 1\n"}
    assert load({PATH: agent(), ".gitopsignore": pattern + f"\n!{PATH}\n!agents\n!acme\n", **names, **deep})


@pytest.mark.unit
def test_paths_that_no_person_writes_are_refused() -> None:
    found = refuse({PATH: agent(), "a" * 1_100 + ".yaml": "a: 1\n", "b/" * 65 + "c.yaml": "a: 1\n"})
    assert codes(found) == ["BadPath", "BadPath"]


@pytest.mark.unit
def test_how_much_is_hidden_is_said_and_stays_said() -> None:
    world = World()
    files = {PATH: agent(), "x/a.yaml": agent("a"), "x/b.yml": "b: 1\n", "x/c.md": "", ".gitopsignore": "x/\n"}
    first = world.load(files)
    assert [(f.severity, f.code, f.address, f.summary) for f in first.findings] == [
        ("info", "IgnoredFiles", ".gitopsignore:1:1", "2 YAML files ignored")
    ]
    assert world.load({**files, PATH: agent(adopt=True)}).findings == first.findings
    fewer = {path: text for path, text in files.items() if path != "x/b.yml"}
    assert world.load(fewer).findings[0].summary == "1 YAML file ignored"
    assert load({PATH: agent(), ".gitopsignore": "x/\n"}).findings == ()
