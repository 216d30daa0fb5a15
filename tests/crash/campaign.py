"""A program that lets ``gitops-agent once`` be killed at the points of a fleet's life, and says what it found.

    python -m tests.crash.campaign FOLDER PART PARTS [--all]

One life has four acts: the fleet comes up for the first time, a commit removes an agent, a commit changes one, one
dies. Each life kills ``once`` at one point of each act (the point is named by ``GITOPS_FAULT_AT``, which the
product reads), looks, and calls ``once`` again. This part takes every PARTS-th life. One JSON line per kill.

A sample of the points is a point of every kind in every act, the first and the last; ``--all`` takes every point.

It forks for every call, so that the imports are paid for once; what is forked is the real command line.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

import gitops_agent.cli.app
from gitops_agent.journal.sqlite import FILE_NAME
from gitops_agent.journal.store import open_journal
from gitops_agent.testing.faults import FaultInjector
from tests.support.fast_disk import hurry
from tests.support.fleet import Fleet, alive, signal_pid, until
from tests.support.launcher import warm

AGENTS = ("one", "two")
AROUND_AN_EFFECT = ("journal.begin", "apply", "journal.finish")
KILLED = -signal.SIGKILL


@dataclass
class Life:
    """One fleet from its first commit on; ``acts`` are played in order."""

    fleet: Fleet
    length: int = 300

    @property
    def acts(self) -> dict[str, Callable[[], None]]:
        return {"first": self.first, "delete": self.delete, "change": self.change, "drift": self.drift}

    def first(self) -> None:
        self.fleet.commit({f"{name}.yaml": self.document(name) for name in AGENTS})

    def change(self) -> None:
        self.length += 1
        self.fleet.commit({"one.yaml": self.document("one")})

    def drift(self) -> None:
        (pid,) = self.fleet.pids("one")
        signal_pid(pid)
        until(lambda: not alive(pid), "the end of the agent")

    def delete(self) -> None:
        self.fleet.commit({"two.yaml": None})

    def document(self, name: str) -> str:
        command = ("sleep", str(self.length if name == "one" else 300))
        return self.fleet.agent(name, *command, runtime={"minUptime": "0s", "stop": {"grace": "5s"}})

    def look(self) -> dict[str, list[int]]:
        return {name: self.fleet.pids(name) for name in AGENTS}


def once(fleet: Fleet, point: str = "", report: Path | None = None) -> int:
    """``gitops-agent once`` in a child; its exit code, negative when a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _child(fleet, point, report)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _child(fleet: Fleet, point: str, report: Path | None) -> int:
    log = os.open(fleet.state.parent / "once.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for handle in (1, 2):
        os.dup2(log, handle)
    os.environ.clear()
    os.environ.update(fleet.environment)
    counted = FaultInjector()
    if report is not None:
        FaultInjector.at = classmethod(lambda *_: counted)  # type: ignore[method-assign,assignment]
        point = "count:1"
    if point:
        os.environ["GITOPS_FAULT_AT"] = point
    sys.argv = fleet.command("once", "--no-push", "--timeout", "60s")[2:]
    try:
        gitops_agent.cli.app.app()
    except SystemExit as end:
        if report is not None:
            report.write_text(json.dumps(counted.points()))
        return int(end.code or 0)
    return 71


def distinct(points: list[str]) -> list[str]:
    """Nothing durable happens between an ``after`` and the ``before`` that follows it: one of them is enough."""
    return [points[0], *(point for point in points[1:] if ":after:" in point)]


def sample(points: dict[str, list[str]]) -> dict[str, list[str]]:
    """The points of few lives: around an effect in every act; what comes before and after it in one act each."""
    chosen = {act: [f"{kind}:after:1" for kind in AROUND_AN_EFFECT] for act in points}
    for number, (act, found) in enumerate(points.items()):
        # The first write, the one before the effects, the one after them, the last of a pass.
        commits = [point for point in found if point.startswith("journal.commit:")]
        ends = (found[0], commits[2], commits[-1], found[-1])
        chosen[act].append(ends[(number + 1) % len(ends)])
    return chosen


def counted(folder: Path) -> dict[str, list[str]]:
    """Every point of every act, from a life in which nothing goes wrong."""
    life = Life(Fleet(folder))
    found = {}
    try:
        for name, act in life.acts.items():
            act()
            assert once(life.fleet, report=folder / "points") == 0, (folder / "once.log").read_text()
            found[name] = distinct(json.loads((folder / "points").read_text()))
    finally:
        life.fleet.end()
    return found


def coherent(fleet: Fleet) -> dict[str, Any]:
    """What the journal says when all is over."""
    connection = sqlite3.connect(fleet.state / FILE_NAME)
    (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    with open_journal(fleet.state) as journal:
        head = journal.state().source.head or ""
        record = journal.commit_record(head)
        entries = journal.entries(limit=1000)
        agents = sorted({key.agent.name for key in journal.state().reconcile.bases})
        return {
            "sound": sound == "ok",
            "open": len(journal.state().reconcile.open_intents) + sum(entry.result is None for entry in entries),
            "phase": record.phase.value if record else None,
            "followed": head == fleet.head() == journal.state().rollout.enforced,
            "ready": sorted(key.name for key, status in journal.state().status.agents.items() if status.ready),
            "recorded": agents,
        }


def live(folder: Path, points: dict[str, str]) -> None:
    """One life, killed in every act that has a point left, until none has; one line for each."""
    while points and not [*points.values()][-1]:
        points.popitem()
    life = Life(Fleet(folder))
    try:
        for name, point in points.items():
            life.acts[name]()
            before = life.look()
            ended = once(life.fleet, point)
            between = life.look()
            code = once(life.fleet)
            after = life.look()
            told = {"act": name, "point": point, "ended": ended, "code": code, **coherent(life.fleet)}
            told |= {"before": before, "between": between, "after": after}
            if code or ended not in (0, KILLED):
                told["log"] = (folder / "once.log").read_text()[-3000:]
            print(json.dumps(told), flush=True)
    finally:
        life.fleet.end()


def main(folder: Path, part: int, parts: int, *, every_point: bool) -> None:
    warm()
    points = counted(folder / "counted")
    print(json.dumps({"counted": points}), flush=True)
    chosen = points if every_point else sample(points)
    for number, some in enumerate(zip_longest(*chosen.values())):
        if number % parts == part:
            live(folder / str(number), {act: point or "" for act, point in zip(points, some, strict=True)})


if __name__ == "__main__":
    event.listen(Engine, "connect", hurry)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), every_point="--all" in sys.argv)
