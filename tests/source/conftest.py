from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.settings import Settings
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import Notes
from tests.support.repositories import PLAIN, make_pair

FILES = (("agents/acme/a.yaml", "a: 1\n"), ("agents/acme/b.yaml", "b: 1\n"))


def git(
    where: Path, *args: str, check: bool = True, env: dict[str, str] | None = None, stdin: str | None = None
) -> str:
    """Plain git, as a developer types it."""
    world = {**PLAIN, **(env or {})}
    done = subprocess.run(
        ["git", *args], cwd=where, env=world, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or not check, f"git {args}: {done.stderr}"
    return done.stdout.strip()


class Wall:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_000_000_000.0

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Desk:
    """A bare repository and a developer's clone of it."""

    bare: Path
    work: Path
    count: int = field(default=0)

    def commit(self, files: dict[str, str | None], message: str = "", push: bool = True) -> str:
        """Write (or, with None, remove) files, commit and push; the sha."""
        for name, text in files.items():
            path = self.work / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        self.count += 1
        git(self.work, "add", "-A")
        git(self.work, "commit", "-q", "-m", message or f"commit {self.count}")
        if push:
            self.push()
        return self.head()

    def push(self, *options: str) -> None:
        git(self.work, "push", "-q", *options, "origin", "HEAD:main")

    def head(self) -> str:
        return git(self.work, "rev-parse", "HEAD")

    def git(self, *args: str) -> str:
        return git(self.work, *args)


def make_desk(folder: Path, *options: str) -> Desk:
    return Desk(*make_pair(folder, *options))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(*make_pair(tmp_path / "remote", files=FILES), count=1)


@pytest.fixture
def settings(desk: Desk, tmp_path: Path) -> Callable[..., Settings]:
    def build(**more: Any) -> Settings:
        given = {
            "repo": str(desk.bare),
            "state_dir": str(tmp_path / "state"),
            "git_timeout": 30.0,
            "instance": "test",
        }
        return Settings(**{**given, **more})

    return build


@pytest.fixture
def mirror_of(settings: Callable[..., Settings]) -> Callable[..., Mirror]:
    def build(environment: dict[str, str] | None = None, **more: Any) -> Mirror:
        return Mirror(settings(**more), {**os.environ, **(environment or {})}, Wall())

    return build


@pytest.fixture
def mirror(mirror_of: Callable[..., Mirror]) -> Iterator[Mirror]:
    return mirror_of()


@pytest.fixture
def notes(mirror: Mirror, settings: Callable[..., Settings]) -> Notes:
    return Notes(mirror, settings(), sleep=lambda _: None)


@pytest.fixture
def writer(mirror: Mirror, settings: Callable[..., Settings]) -> BranchWriter:
    mirror.refresh()
    return BranchWriter(mirror, settings())
