"""What a verb imports decides how soon it answers: help loads no library of ours, reading loads no driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit


def loaded(code: str) -> set[str]:
    """The modules that a new Python has after some code, and the packages they are in."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for module in done.stderr.split() for name in (module, module.partition(".")[0])}


def test_help_loads_neither_rich_nor_anything_heavy() -> None:
    found = loaded("from gitops_agent.cli.app import app\napp(['--help'], standalone_mode=False)")
    heavy = {"rich", "markdown_it", "pydantic", "sqlalchemy", "git", "psutil", "structlog", "orjson"}
    assert heavy.isdisjoint(found)


def test_verbs_that_read_load_no_driver_no_git_and_no_scheduler() -> None:
    found = loaded(
        "import gitops_agent.cli.app, gitops_agent.settings, gitops_agent.query.fleet\n"
        "import gitops_agent.journal.store, gitops_agent.report.status_text, gitops_agent.report.explain_text"
    )
    heavy = {"git", "psutil", "watchfiles", "apscheduler", "structlog", "starlette", "ruamel", "jsonpatch", "rich"}
    assert heavy.isdisjoint(found)
    assert {"gitops_agent.wiring", "gitops_agent.drivers", "gitops_agent.snapshot"}.isdisjoint(found)
