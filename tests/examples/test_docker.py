"""``docker/``: the compose file and the page run the image as hardened as the tests of the image do."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_agent.settings import Settings, build_settings
from tests.servers.image import HARDENED

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PAGE = (DOCKER / "README.md").read_text(encoding="utf-8")
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
OF_THE_TESTS = {"--pull=never", "--network=host", "--read-only-tmpfs=false"}
"""Options of podman that say nothing about how hard it is for the container to do harm."""


def service() -> dict[str, Any]:
    (found,) = YAML(typ="safe").load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    return dict(found)


def as_options(compose: dict[str, Any]) -> set[str]:
    """What the compose file says, as options of ``podman run``."""
    flags = {"init": "--init", "read_only": "--read-only"}
    lists = {"tmpfs": "--tmpfs", "cap_drop": "--cap-drop", "security_opt": "--security-opt"}
    found = {option for key, option in flags.items() if compose.get(key) is True}
    found |= {f"{option}={value}" for key, option in lists.items() for value in compose.get(key, ())}
    return {option.removesuffix(":true") for option in found}


def test_compose_runs_the_image_as_the_tests_do() -> None:
    compose = service()
    assert as_options(compose) == set(HARDENED) - OF_THE_TESTS
    build = compose["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"
    (volume,) = compose["volumes"]
    assert f"VOLUME {volume.partition(':')[2]}\n" in DOCKERFILE
    pod = YAML(typ="safe").load((DOCKER / "kubernetes/base/deployment.yaml").read_text())["spec"]["template"][
        "spec"
    ]
    assert compose["stop_grace_period"] == f"{pod['terminationGracePeriodSeconds']}s"


def test_the_page_runs_the_image_as_compose_does() -> None:
    command = re.search(r"^    (docker run .*?[^\\])$", PAGE, re.MULTILINE | re.DOTALL)
    assert command is not None
    words = shlex.split(command[1].replace("\\\n", " "))
    compose = service()
    given = set(re.findall(r"--(?:init|read-only|tmpfs \S+|cap-drop \S+|security-opt \S+)", " ".join(words)))
    assert {each.replace(" ", "=") for each in given} == as_options(compose)
    assert words[words.index("-v") + 1] == compose["volumes"][0]
    variables = {words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "-e"}
    assert variables == set(compose["environment"])


@pytest.mark.parametrize("text", [(DOCKER / "compose.yaml").read_text(encoding="utf-8"), PAGE, DOCKERFILE])
def test_the_settings_that_are_named_exist(text: str) -> None:
    named = set(re.findall(r"GITOPS_AGENT_([A-Z_]+)\b", text))
    assert named
    assert {name.lower() for name in named} <= set(Settings.model_fields)


def test_the_settings_of_compose_are_valid() -> None:
    given = {
        name: re.sub(r"\$\{[A-Z_]+:(?:\?[^}]*|-([^}]*))\}", lambda match: match[1] or "https://x.example/f", text)
        for name, text in service()["environment"].items()
    }
    settings = build_settings({}, given, {})
    assert (settings.repo, settings.instance) == ("https://x.example/f", "default")


def test_the_port_and_the_user_of_the_page_are_those_of_the_image() -> None:
    port = Settings.model_fields["listen"].default.rpartition(":")[2]
    assert f"GITOPS_AGENT_LISTEN=0.0.0.0:{port}" in PAGE
    user = re.search(r"^USER (\d+):", DOCKERFILE, re.MULTILINE)
    assert user is not None
    assert f"It runs as user {user[1]} " in PAGE


def test_the_libraries_are_those_that_the_build_argument_names() -> None:
    default = re.search(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert default is not None
    assert f"(the default is `{default[1]}`)" in PAGE
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for extras in (default[1], "kubernetes", ""):
        chosen = set(extras.split(",")) - {""}
        lines = installed(extras)
        for name in ("sentry", "kubernetes", "postgres"):
            assert (set(offered[name]) <= set(lines)) == (name in chosen), (extras, name)
        assert any(line.startswith("pydantic") for line in lines)


def installed(extras: str) -> list[str]:
    """What the build installs besides us."""
    call = [sys.executable, str(DOCKER / "dependencies.py"), str(ROOT / "pyproject.toml"), extras]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
