"""One fleet under pressure: commits as fast as they can be pushed, while everything else goes wrong at random.

    python -m tests.pressure [--commits 60] [--seconds 120] [--seed N] [--folder FOLDER]

At the end everything is left alone, and live must equal Git. Counted is what must never happen: an agent that ran
twice, one that is not as the newest commit asks, a report that was not true when it was made, a commit without its
note, a traceback. Exit code 1 when anything was found; then the folder stays to be looked at.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gitops_agent.errors import GitopsAgentError
from gitops_agent.query.fleet import open_reader
from gitops_agent.report.sinks.git_notes import parse_note
from gitops_agent.settings import Settings
from tests.pressure.gremlins import Daemon, Disk, Gremlin, Harm
from tests.pressure.reports import NoteReport, StatusReport, false_notes, false_statuses
from tests.pressure.truth import Truth, now
from tests.support.fleet import Fleet
from tests.support.git_servers import GitHttpServer, http_server

AGENTS = tuple(f"a{number}" for number in range(8))
SETTLED_SECONDS = 180.0
POLICY: dict[str, Any] = {
    "rollout": {"bake": "300ms", "recovery": "2s"},
    "backoff": {"first": "200ms", "longest": "2s"},
    "oscillation": {"repairs": 100_000},
    "actionsPerMinute": 100_000,
}
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")


@dataclass
class Found:
    """What must never happen, and what was done to provoke it."""

    seed: int
    problems: list[tuple[str, str]] = field(default_factory=list)
    harm: Counter[str] = field(default_factory=Counter)
    reports: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, what: str) -> None:
        if (kind, what) not in self.problems:
            self.problems.append((kind, what))

    def __str__(self) -> str:
        kinds = Counter(kind for kind, _ in self.problems)
        names = ("twice", "not as Git", "false", "unreported", "broken")
        done = ", ".join(f"{count} × {name}" for name, count in sorted(self.harm.items()))
        made = ", ".join(f"{count} {name}" for name, count in sorted(self.reports.items()))
        counts = ", ".join(f"{kinds[name]} {name}" for name in names)
        return f"seed {self.seed}: {done}; {made} compared with the process table: {counts}"


class Author:
    """Pushes commits of every kind, and knows what each of them asks for."""

    def __init__(self, fleet: Fleet, random: Random, starts: Path) -> None:
        self._fleet, self._random, self._starts = fleet, random, starts
        self._number = 0
        self.pushed: dict[str, tuple[float, dict[str, str]]] = {}
        self._asked: dict[str, str] = {}
        os.mkfifo(starts / "never")

    def first(self) -> str:
        return self._commit(AGENTS, {"policy.yaml": self._fleet.policy(**POLICY)})

    def any(self) -> str:
        """A commit: mostly good, sometimes one that dies, one that is invalid, or a revert."""
        kind = self._random.choices(("good", "dies", "invalid", "revert"), (7, 1, 1, 1))[0]
        chosen = self._random.sample(AGENTS, self._random.randint(1, len(AGENTS)))
        if kind == "revert" and len(self.pushed) > 1:
            self._fleet.git("revert", "--no-edit", "HEAD")
            return self._push(self._read())
        if kind == "invalid":
            return self._commit(chosen, {"invalid.yaml": "apiVersion: gitops-agent.dev/v1\nkind: Agent\n"})
        return self._commit(chosen, dies=kind == "dies")

    def last(self) -> str:
        return self._commit(AGENTS)

    def _commit(self, names: Any, more: dict[str, str] | None = None, *, dies: bool = False) -> str:
        self._number += 1
        files: dict[str, str | None] = {f"{name}.yaml": self._document(name, dies=dies) for name in names}
        if (self._fleet.work / "invalid.yaml").exists():
            files["invalid.yaml"] = None
        self._fleet.commit({**files, **(more or {})}, f"Commit {self._number}", push=False)
        return self._push(self._read())

    def _push(self, asked: dict[str, str]) -> str:
        sha, at = self._fleet.head(), now()
        self.pushed[sha] = (at, asked)
        self._fleet.push()
        return sha

    def _document(self, name: str, *, dies: bool) -> str:
        stay = "exit 1" if dies else f"read never < {self._starts / 'never'}"
        body = f'echo "$$ $0" >> {self._starts / f"starts.{name}"}; {stay}'
        return self._fleet.agent(
            name,
            "sh",
            "-c",
            body,
            f"v{self._number}",
            rollout={"healthTimeout": "20s"},
            runtime={"minUptime": "100ms"},
        )

    def _read(self) -> dict[str, str]:
        """The version that the work tree asks of every agent."""
        documents = {name: json.loads((self._fleet.work / f"{name}.yaml").read_text()) for name in AGENTS}
        return {name: each["spec"]["runtime"]["command"][-1] for name, each in documents.items()}


class Witness(threading.Thread):
    """Reads every report as it is made, and compares it with what was really running."""

    def __init__(self, fleet: Fleet, truth: Truth, author: Author, found: Found) -> None:
        super().__init__(daemon=True)
        self._fleet, self._truth, self._author, self._found = fleet, truth, author, found
        self._stop_asked = threading.Event()
        self._last_pass: float | None = None
        self._looked = now()
        self._notes: dict[str, str] = {}

    def run(self) -> None:
        try:
            while not self._stop_asked.wait(0.2):
                self.look()
        except Exception as problem:
            self._found.add("broken", f"the witness: {type(problem).__name__}: {problem}")
            raise

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(60.0)
        self.look()

    def look(self) -> None:
        self._read_status()
        self._read_notes()

    def _read_status(self) -> None:
        settings = Settings(instance=self._fleet.instance, state_dir=str(self._fleet.state))
        since, at = self._looked, now()
        try:
            with open_reader(settings, {}) as reader:
                last, answer = reader.journal.state().status.last_pass, reader.fleet()
        except GitopsAgentError:
            return  # there is no journal yet, or the disk is full: then nothing is reported
        self._looked = at
        if last == self._last_pass:
            return
        self._last_pass = last
        self._found.reports["statuses"] += 1
        for what in false_statuses(StatusReport(since, at, answer), self._truth):
            self._found.add("false", what)

    def _read_notes(self) -> None:
        ref = f"refs/notes/gitops-agent/{self._fleet.instance}"
        listed = self._fleet.git("notes", f"--ref={ref}", "list", where=self._fleet.bare, check=False)
        notes = {sha: blob for blob, _, sha in (line.partition(" ") for line in listed.splitlines())}
        changed = [
            sha for sha, blob in notes.items() if self._notes.get(sha) != blob and sha in self._author.pushed
        ]
        self._notes = notes or self._notes
        for sha in changed:
            note = parse_note(self._fleet.git("cat-file", "blob", notes[sha], where=self._fleet.bare)) or {}
            pushed, versions = self._author.pushed[sha]
            self._found.reports["notes"] += 1
            for what in false_notes(NoteReport(pushed, now(), sha, note, versions), self._truth):
                self._found.add("false", what)


class Campaign:
    """All of it, in one folder."""

    def __init__(self, folder: Path, seed: int, *, commits: int, seconds: float) -> None:
        self._random = Random(seed)
        self._folder, self._commits, self._seconds = folder, commits, seconds
        self.found = Found(seed)

    def play(self) -> Found:
        with ExitStack() as stack:
            fleet = self._fleet(stack)
            truth = stack.enter_context(Truth(self._starts, AGENTS))
            author = Author(fleet, self._random, self._starts)
            offset = self._folder / "offset"
            offset.write_text("0")
            daemon = Daemon(fleet, offset, self._folder / "run.log")
            disk = Disk(self._folder / "disk", lambda: daemon.pid)
            stack.callback(disk.close)
            stack.callback(fleet.end)
            fleet.state = self._folder / "disk" / "state"
            witness = Witness(fleet, truth, author, self.found)
            first = author.first()
            daemon.start()
            stack.callback(lambda: daemon.pid and daemon.end(signal.SIGTERM))
            witness.start()
            self._settle(fleet, first)
            self._storm(Harm(self._random, truth, daemon, disk, self._server), author, fleet, offset)
            self._end(fleet, truth, author, daemon, witness)
            if truth.problem:
                self.found.add("broken", f"the recorder: {truth.problem}")
        return self.found

    @property
    def _starts(self) -> Path:
        return self._folder / "starts"

    def _fleet(self, stack: ExitStack) -> Fleet:
        fleet = Fleet(
            self._folder,
            GITOPS_AGENT_POLL_INTERVAL="500ms",
            GITOPS_AGENT_GIT_TIMEOUT="10s",
            GITOPS_AGENT_LOG_FORMAT="json",
        )
        self._starts.mkdir()
        self._server: GitHttpServer = stack.enter_context(http_server(fleet.bare.parent))
        fleet.repo = self._server.url(fleet.bare.name)
        return fleet

    def _storm(self, harm: Harm, author: Author, fleet: Fleet, offset: Path) -> None:
        journal, random = fleet.state / "journal.db", self._random
        kinds = {
            "agents ended": (harm.end_agents, (0.3, 2.0)),
            "gitops-agent ended": (harm.end_daemon, (3.0, 7.0)),
            "remote broken": (harm.break_remote, (2.0, 8.0)),
            "disk full": (harm.fill_disk, (8.0, 20.0)),
            "journal locked": (lambda: harm.lock_journal(journal), (4.0, 10.0)),
            "clock jumped": (lambda: harm.jump(offset), (5.0, 12.0)),
        }
        gremlins = [Gremlin(name, do, Random(random.random()), pause) for name, (do, pause) in kinds.items()]
        for each in gremlins:
            each.start()
        until = time.monotonic() + self._seconds
        for _ in range(self._commits):
            author.any()
            self.found.harm["commits"] += 1
        while time.monotonic() < until:
            time.sleep(random.uniform(3.0, 8.0))
            author.any()
            self.found.harm["commits"] += 1
        for each in gremlins:
            each.stop()
            self.found.harm[each.name] += each.done
            if each.problem:
                self.found.add("broken", each.problem)

    def _end(self, fleet: Fleet, truth: Truth, author: Author, daemon: Daemon, witness: Witness) -> None:
        if daemon.pid is None:
            daemon.start()
        last = author.last()
        self._settle(fleet, last)
        self._check_live(truth, author.pushed[last][1])
        code = daemon.end(signal.SIGTERM)
        if code != 0:
            self.found.add("broken", f"gitops-agent ended with {code} when it was asked to end")
        witness.stop()
        self._check_notes(fleet, last)
        for one, other in truth.twice():
            self.found.add("twice", f"{one.agent} ran as {one.pid} and {other.pid} at the same time")
        log = (self._folder / "run.log").read_text(errors="replace")
        for match in _TRACEBACK.finditer(log):
            self.found.add("broken", f"a traceback: {log[match.start() : match.start() + 1500]}")

    def _settle(self, fleet: Fleet, sha: str) -> None:
        """Wait for a commit, as its author would who also lifts the freezes that all this has tripped."""
        until = time.monotonic() + SETTLED_SECONDS
        while time.monotonic() < until:
            status = fleet.status()
            if (status["commit"], status["phase"]) == (sha, "Converged"):
                return
            if any(each["code"] in ("Frozen", "MassDrift") for each in status["findings"]):
                self.found.harm["freezes lifted"] += 1
                fleet.call("unfreeze", "--scope", "*", "--reason", "pressure")
            time.sleep(0.5)
        seen = json.dumps({key: status[key] for key in ("commit", "phase", "findings")})[:1500]
        self.found.add("not as Git", f"{sha[:10]} did not converge: {seen}")

    def _check_live(self, truth: Truth, asked: dict[str, str]) -> None:
        for name in AGENTS:
            versions = [span.version for span in truth.alive(name)]
            if versions != [asked[name]]:
                self.found.add("not as Git", f"{name} runs {versions or 'nothing'}, Git asks for {asked[name]}")

    def _check_notes(self, fleet: Fleet, last: str) -> None:
        for sha in fleet.git("rev-list", fleet.branch, where=fleet.bare).split():
            phase = (parse_note(fleet.note(sha)) or {}).get("phase")
            if phase is None or (sha == last and phase != "Converged"):
                self.found.add("unreported", f"the note on {sha[:10]} says {phase}")
