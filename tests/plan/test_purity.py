"""The pure stages import nothing that does I/O or reads a clock, the environment or randomness."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gitops_agent

pytestmark = pytest.mark.unit

ROOT = Path(gitops_agent.__file__).parent
FILES = sorted(
    path
    for folder in ("model", "plan", "rollout", "status")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "writer.py"  # the commit points
)
ALLOWED = frozenset(
    {
        "__future__", "collections", "dataclasses", "datetime", "difflib", "enum", "functools", "hashlib",
        "itertools", "math", "operator", "re", "sys", "types", "typing",
        "gitops_agent", "jsonpatch", "jsonpointer", "orjson", "pydantic",
    }
)  # fmt: skip
OURS = (
    "gitops_agent.model", "gitops_agent.plan", "gitops_agent.ports", "gitops_agent.rollout", "gitops_agent.status",
    "gitops_agent.control.directives", "gitops_agent.reconcile.pace", "gitops_agent.reconcile.retry",
    "gitops_agent.source.commits",
    "gitops_agent.proposals.import_live", "gitops_agent.proposals.revert",
)  # fmt: skip
READS_A_CLOCK = frozenset({"now", "utcnow", "today"})
DOES_IO = frozenset({"open", "print", "input", "exec", "eval", "__import__", "breakpoint"})


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def offences(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [name for name in imports(tree) if name.split(".")[0] not in ALLOWED]
    found += [name for name in imports(tree) if name.startswith("gitops_agent") and not name.startswith(OURS)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DOES_IO:
            found.append(node.func.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS_A_CLOCK:
            found.append(node.func.attr)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pure(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os", "import time", "from random import Random", "import logging", "from pathlib import Path",
        "import structlog", "open('x')", "from datetime import datetime\ndatetime.now()",
        "from gitops_agent.reconcile import execute",
    ],
)  # fmt: skip
def test_an_offence_is_seen(source: str) -> None:
    assert offences(source)
