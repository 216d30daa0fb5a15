"""A bare repository and a developer's clone of it, copied from a pair that git made once for this test process."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

BARE, WORK = "fleet.git", "work"
PLAIN = {
    "PATH": os.environ["PATH"],
    "HOME": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}


def make_pair(folder: Path, *options: str, files: tuple[tuple[str, str], ...] = ()) -> tuple[Path, Path]:
    """Repository and clone below a folder, on ``main``, with a first commit of these files if there are any."""
    pattern = _pattern(options, files)
    for name in (BARE, WORK):
        shutil.copytree(pattern / name, folder / name, symlinks=True)
    config = folder / WORK / ".git" / "config"
    address = str(folder / BARE).replace("\\", "\\\\").replace('"', '\\"')
    text = config.read_text(encoding="utf-8").replace(str(pattern / BARE), f'"{address}"')
    config.write_text(text, encoding="utf-8")
    return folder / BARE, folder / WORK


@cache
def _pattern(options: tuple[str, ...], files: tuple[tuple[str, str], ...]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pattern-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    bare, work = folder / BARE, folder / WORK
    _git(folder, "init", "-q", "--bare", "--initial-branch=main", *options, str(bare))
    _git(folder, "clone", "-q", str(bare), str(work))
    _git(work, "checkout", "-q", "-B", "main")
    for sample in folder.rglob("*.sample"):
        sample.unlink()
    for name, text in files:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    if files:
        _git(work, "add", "-A")
        _git(work, "commit", "-q", "-m", "commit 1")
        _git(work, "push", "-q", "origin", "HEAD:main")
    return folder


def _git(where: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=where, env=PLAIN, check=True, capture_output=True)
