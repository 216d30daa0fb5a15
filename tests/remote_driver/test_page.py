"""The page on drivers names what is there: types, fields of an observation, methods, positions."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gitops_agent.drivers import api

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parents[2] / "docs" / "drivers.md").read_text(encoding="utf-8")
OF_THE_EXAMPLE = {"Options", "Settings", "PLUGIN", "MAILBOX"}


def test_every_type_it_names_can_be_imported_from_the_api() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)[`(]", PAGE)) - OF_THE_EXAMPLE
    assert {"Refused", "Observation", "ObserveError", "ApplyError", "Reason"} <= named
    assert named - set(api.__all__) == set()


def test_every_field_of_an_observation_it_explains_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(rows) <= {each.name for each in fields(api.Observation)}
    assert {"health", "instances", "authoritative"} <= set(rows)


def test_every_capability_has_the_methods_it_names() -> None:
    rows = re.findall(r"^\| ([A-Z]\w+) \| (`.*?`) \|", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == [
        "Prechecking",
        "Watching",
        "Executing",
        "Closing",
        "Logging",
        "Hiding",
        "Leasing",
        "Locating",
        "Recording",
    ]
    for name, methods in rows:
        for method in re.findall(r"(\w+)\(", methods):
            assert hasattr(getattr(api, name), method), f"{name}.{method}"


def test_the_positions_it_gives_are_those_of_the_kinds() -> None:
    assert ", ".join(f"{kind.name} {kind.position:g}" for kind in api.BUILT_IN_KINDS) in PAGE


def test_every_argument_of_a_plugin_it_shows_exists() -> None:
    shown = set(re.findall(r"^    (\w+)=", PAGE, re.MULTILINE)) | {"local"}
    assert shown <= {each.name for each in fields(api.Plugin)}
