"""What a verb imports decides how soon it answers: help loads no library of ours, reading loads no driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gitops_agent.journal.store import open_journal

pytestmark = pytest.mark.unit

HEAVY = {
    "apscheduler", "git", "gitdb", "httpx", "jsonpatch", "jsonschema", "kubernetes", "prometheus_client", "psutil",
    "rich", "ruamel", "sentry_sdk", "starlette", "structlog", "uvicorn", "watchfiles", "yaml_rs",
    "sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.mysql",
}  # fmt: skip
"""Libraries that answering from the journal needs none of."""

DISTANT = {
    "gitops_agent.control", "gitops_agent.daemon", "gitops_agent.drivers",
    "gitops_agent.model.passes", "gitops_agent.observe", "gitops_agent.pipeline", "gitops_agent.plan",
    "gitops_agent.proposals", "gitops_agent.reconcile", "gitops_agent.rollout", "gitops_agent.snapshot",
    "gitops_agent.source", "gitops_agent.web", "gitops_agent.wiring",
}  # fmt: skip
"""Parts of ours that it needs none of; one that slips in brings its libraries along sooner or later."""


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


def run(*arguments: str) -> set[str]:
    """What is loaded after a verb has run."""
    return loaded(f"from gitops_agent.cli.app import app\napp({list(arguments)!r}, standalone_mode=False)")


@pytest.mark.parametrize("verb", ["status", "history"])
def test_verbs_that_read_load_no_driver_no_git_and_no_scheduler(tmp_path: Path, verb: str) -> None:
    open_journal(tmp_path).close()
    found = run(verb, "--state-dir", str(tmp_path))
    assert "gitops_agent.query.fleet" in found
    assert found & (HEAVY | DISTANT) == set()


def test_verbs_that_steer_load_no_driver_no_git_and_no_scheduler(tmp_path: Path) -> None:
    found = run("freeze", "--reason", "a test", "--state-dir", str(tmp_path))
    assert "gitops_agent.control.commands" in found
    assert found & (HEAVY | DISTANT) == {"gitops_agent.control"}
