"""A fleet whose gitops-agent has the example driver installed, and the system that it drives."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote_driver.server import RemoteSystem, remote_system
from tests.support.fleet import Fleet

HERE = Path(__file__).parent


def install(folder: Path) -> str:
    """Write what an installer would of this distribution; the search path on which it is found.

    By hand, because it must be there for these tests only, and without a package index.
    """
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in found.items())
        for group, found in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def system() -> Iterator[RemoteSystem]:
    with remote_system() as running:
        yield running


@pytest.fixture(scope="session")
def search_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture
def fleet(tmp_path: Path, system: RemoteSystem, search_path: str) -> Iterator[Fleet]:
    settings = {f"GITOPS_AGENT_DRIVERS__{name}__URL": system.url for name in ("REMOTE", "MAILBOX")}
    fleet = Fleet(tmp_path / "fleet", PYTHONPATH=search_path, **settings)
    yield fleet
    fleet.end()
