"""docs/architecture.md stays true: every name it mentions can be imported, and the pass fits its file."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(gitops_agent(?:\.\w+)+)`", PAGE)))
LOOSE = {"__init__", "__main__", "pipeline", "wiring", "settings", "errors", "ports", "heartbeat"}


def found(name: str) -> object:
    """The object of a dotted name."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            thing: object = import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[depth:]:
            thing = getattr(thing, attribute)
        return thing
    raise ImportError(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_is_there(name: str) -> None:
    assert found(name) is not None


def test_the_page_names_much() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(gitops_agent/[\w/]+\.py)`", PAGE))))
def test_every_file_on_the_page_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_pass_fits_its_file() -> None:
    assert len((ROOT / "gitops_agent" / "pipeline.py").read_text(encoding="utf-8").splitlines()) <= 120


def test_no_module_lies_loose() -> None:
    assert {path.stem for path in (ROOT / "gitops_agent").glob("*.py")} == LOOSE


def test_every_package_says_what_belongs_in_it() -> None:
    charters = [path for path in (ROOT / "gitops_agent").rglob("__init__.py") if "starter" not in path.parts]
    short = [str(path) for path in charters if len(path.read_text(encoding="utf-8")) < 80]
    assert short == []
