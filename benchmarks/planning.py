"""A fresh ``gitops-agent plan`` process over a converged fleet: what each further unchanged agent adds.

The fleets are real: the installed drivers, a journal and files written by ``gitops-agent once``. All agents are
``Stopped``, so that ten thousand of them need no ten thousand processes; each still has its bundle file on disk,
its health record and its place in the journal, and is read, observed and compared by the process measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from benchmarks import Row
from benchmarks.fleet import build_fleet, commit
from benchmarks.instance import WIDE
from benchmarks.timing import medians, moment, timed

SIZE = 10_000
TURNS = 5


def run(size: int = SIZE) -> list[Row]:
    """Time per further agent, from a fleet of this size and one of a tenth."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        _prepare(large, size)
        _prepare(small, size // 10)
        few, many = medians(TURNS, lambda: timed(lambda: _plan(small)), lambda: timed(lambda: _plan(large)))
    each = (many - few) / (size - size // 10) * 1e6
    note = f"{moment(few)} for {size // 10} agents, {moment(many)} for {size}"
    return [Row("fresh `plan` process: each further unchanged agent", each, 100.0, "µs", note)]


def _prepare(folder: Path, size: int) -> None:
    """A repository of stopped agents, and the state directory of an instance that has converged it."""
    repo = folder / "fleet.git"
    build_fleet(repo, size, lifecycle="Stopped")
    commit(repo, {"gitops-agent.yaml": WIDE}, message="A wide policy")
    _gitops_agent(folder, "once", "--no-push", "--timeout", "10m")


def _plan(folder: Path) -> None:
    answer = orjson.loads(_gitops_agent(folder, "plan"))
    if answer["actions"]:
        raise AssertionError(f"expected an empty plan: {answer['summary']}")


def _gitops_agent(folder: Path, verb: str, *options: str) -> bytes:
    command = [sys.executable, "-m", "gitops_agent", verb, *options, "-o", "json"]
    where = ["--repo", str(folder / "fleet.git"), "--state-dir", str(folder / "state"), "--instance", "bench"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GITOPS_AGENT_")}
    done = subprocess.run([*command, *where], env=environment, capture_output=True)
    if done.returncode:
        raise AssertionError(f"{verb} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    print(*run(), sep="\n")
