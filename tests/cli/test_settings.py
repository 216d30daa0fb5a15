"""Settings people got wrong are named as they wrote them, with where, what was found and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_agent.cli.settings_file import read_settings_file
from gitops_agent.cli.settings_text import settings_lines, settings_shape
from gitops_agent.errors import UsageError
from gitops_agent.settings import Settings, build_settings

pytestmark = pytest.mark.unit

DURATION = "is not a duration such as 500ms, 30s, 2m or 1h30m"


@pytest.mark.parametrize(
    ("file", "environment", "options", "said"),
    [
        ({"pollInterval": "soon"}, {}, {}, f"pollInterval in fleet.yaml: 'soon' {DURATION}"),
        ({}, {"GITOPS_AGENT_POLL_INTERVAL": "soon"}, {}, f"GITOPS_AGENT_POLL_INTERVAL: 'soon' {DURATION}"),
        ({"timeout": "1s"}, {"GITOPS_AGENT_TIMEOUT": "2s"}, {"timeout": "soon"}, f"--timeout: 'soon' {DURATION}"),
        ({}, {}, {"instance": "Not/OK"}, "--instance: 'Not/OK' is not a name of lower-case letters"),
        ({}, {"GITOPS_AGENT_PUSH": "maybe"}, {}, "GITOPS_AGENT_PUSH: 'maybe' is not true or false"),
        ({"logFormat": "xml"}, {}, {}, "logFormat in fleet.yaml: 'xml' is not one of auto, json or text"),
        ({"parallelism": 0}, {}, {}, "parallelism in fleet.yaml: 0 is not at least 1"),
        ({"limits": {"depth": 900}}, {}, {}, "limits.depth in fleet.yaml: 900 is not at most 200"),
        ({}, {"GITOPS_AGENT_LIMITS__DEPTH": "x"}, {}, "GITOPS_AGENT_LIMITS__DEPTH: 'x' is not a whole number"),
        ({"limits": 5}, {}, {}, "limits in fleet.yaml: 5 is not settings below it"),
        (
            {"polInterval": 1},
            {},
            {},
            "polInterval in fleet.yaml: there is no such setting; did you mean pollInterval?",
        ),
        (
            {},
            {"GITOPS_AGENT_POL_INTERVAL": "1"},
            {},
            "GITOPS_AGENT_POL_INTERVAL: there is no such setting; did you mean GITOPS_AGENT_POLL_INTERVAL?",
        ),
        (
            {},
            {"GITOPS_AGENT_LIMITS__FILE_BYTE": "1"},
            {},
            "no such setting; did you mean GITOPS_AGENT_LIMITS__FILE_BYTES?",
        ),
        ({"frobnicate": 1}, {}, {}, "frobnicate in fleet.yaml: there is no such setting"),
        ({"fileBytes": 1}, {}, {}, "fileBytes in fleet.yaml: there is no such setting"),
        ({"limits": {"pollInterval": 1}}, {}, {}, "limits.pollInterval in fleet.yaml: there is no such setting"),
    ],
)
def test_a_wrong_setting_is_named_as_it_was_written(
    file: dict[str, Any], environment: dict[str, str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        build_settings(file, environment, options, file_name="fleet.yaml")
    assert said in wrong.value.message
    assert "^" not in wrong.value.message, "words, not patterns"
    assert "docs/configuration.md" in wrong.value.hint


def test_every_wrong_setting_is_named_at_once_and_no_secret() -> None:
    with pytest.raises(UsageError) as wrong:
        build_settings({"timeout": "x", "sentryDsn": ["https://key@host/1"]}, {"GITOPS_AGENT_PUSH": "x"}, {})
    assert all(name in wrong.value.message for name in ("timeout", "sentryDsn", "GITOPS_AGENT_PUSH"))
    assert "key@host" not in wrong.value.message


@pytest.mark.parametrize("content", [None, "{", "- a list", "x: " + "y" * 70000])
def test_a_settings_file_that_cannot_be_used_gets_a_way_out(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as wrong:
        read_settings_file(file)
    assert str(file) in wrong.value.message
    assert "docs/configuration.md" in wrong.value.hint


def test_settings_in_force_read_as_people_write_them() -> None:
    settings = Settings(retention=30 * 86400.0, poll_interval=1.5, sentry_dsn="https://key@host/1", push=False)
    lines = list(settings_lines(settings))
    for line in (
        "pollInterval: 1500ms",
        "resyncInterval: 1m",
        "retention: 30d",
        "push: no",
        "tokenFile: none",
        "sentryDsn: ***",
        "limits.depth: 32",
    ):
        assert line in lines
    assert settings_shape(settings)["sentryDsn"] == "***"
    assert settings_shape(Settings())["sentryDsn"] is None


def test_a_variable_changes_one_setting_of_a_driver_and_leaves_the_others() -> None:
    file = {
        "drivers": {
            "kubernetes": {"inCluster": True, "createNamespaces": False, "namespaces": ["acme"], "deep": {"a": 1}},
            "my-driver": {"rate": 5},
        }
    }
    environment = {
        "GITOPS_AGENT_DRIVERS__KUBERNETES__FENCE_AS": "me",
        "GITOPS_AGENT_DRIVERS__KUBERNETES__CREATE_NAMESPACES": "true",
        "GITOPS_AGENT_DRIVERS__KUBERNETES__DEEP__B": "2",
        "GITOPS_AGENT_DRIVERS__MY_DRIVER__BURST": "9",
        "GITOPS_AGENT_DRIVERS__TMUX__RATE": "1",
    }
    assert build_settings(file, environment, {}).drivers == {
        "kubernetes": {
            "inCluster": True,
            "createNamespaces": "true",
            "namespaces": ["acme"],
            "deep": {"a": 1, "b": "2"},
            "fence_as": "me",
        },
        "my-driver": {"rate": 5, "burst": "9"},
        "tmux": {"rate": "1"},
    }


def test_a_section_of_the_environment_leaves_the_rest_of_it_to_the_file() -> None:
    file = {"limits": {"fileBytes": 7, "depth": 8}}
    limits = build_settings(file, {"GITOPS_AGENT_LIMITS__FILE_BYTES": "9"}, {}).limits
    assert (limits.file_bytes, limits.depth) == (9, 8)
