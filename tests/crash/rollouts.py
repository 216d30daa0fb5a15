"""A campaign of ``kill -9`` at random moments of rollouts over real processes, and what it cost: nothing, or else.

    python -m tests.crash.rollouts [--kills 500] [--seed N] [--workers 2] [--hold HOLD] [--folder FOLDER]

Lives are played side by side: commits good and bad, drift and hooks follow one another. While gitops-agent
(``once`` or ``run``) is at work on one, it is killed at a random moment, or at a random point next to a durable
write or an effect, again and again; then it is called once more. Counted is what must never happen: an agent that
is lost, one that is there twice, an effect that was repeated wrongly (a start, a revert, a hook, a note), and
anything else that is wrong. What holds agents together differs from life to life, by chance or by ``--hold``:
runners alone; a control group that is delegated to gitops-agent (as root, where one can be made), while runners
are killed now and then; record and marks alone, because runners are killed. Exit code 1 when anything was found;
then the folder stays to be looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Engine, event

from gitops_agent.journal.store import open_journal
from gitops_agent.report.sinks.git_notes import parse_note
from tests.crash.forked import begin, ended
from tests.crash.rollout_life import HOLDS, Explained, Life
from tests.support.delegated_group import REASON, delegated_group, unified_mount
from tests.support.fast_disk import hurry
from tests.support.launcher import warm

KILLED = -signal.SIGKILL
ACTS = 7
MOST_KILLS = 6
SETTLE_SECONDS = 10.0
WRITES = ("journal.commit", "journal.begin", "journal.finish", "journal.delivered")
POINTS = (
    *(f"{write}:{when}" for write in WRITES for when in ("before", "inside", "after")),
    *(f"apply:{when}" for when in ("before", "after") for _ in range(4)),
)
"""Around every write and every effect; an effect as often as a write."""
KINDS = ("lost", "duplicated", "repeated", "wrong")


class Player:
    """Plays one life, and writes down what must never happen."""

    def __init__(self, folder: Path, random: Random, most: int, holds: Sequence[str]) -> None:
        self.random = random
        self.life = Life(folder, random, random.choice(("Hold", "Revert")), random.choice(holds))
        self.life.kill_soon = lambda: self.kill(random.uniform(0.02, 0.5), at_point=False)
        self.most = most
        self.kills = 0
        self.found: list[tuple[str, str]] = []
        self.told: dict[str, str] = {}

    def play(self) -> None:
        with ExitStack() as stack:
            if self.life.hold == "group":
                # As systemd starts us: in the group that it delegates, or in a part of it (DelegateSubgroup=).
                part = self.random.choice(("", "main"))
                self.life.delegated = stack.enter_context(delegated_group())
                self.life.group = self.life.delegated / part
            stack.callback(self.life.end)
            self.act(self.life.first)
            for _ in range(ACTS):
                if self.kills < self.most and not self.found:
                    self.life.lose_runners()
                    self.act(self.random.choice(self.life.acts()))
            self.check_notes()

    def act(self, act: Any) -> None:
        life = self.life
        before, called, commits = life.starts(), life.calls(), life.branch() if self.told else []
        explained = act()
        pushed = life.branch()[0]
        for _ in range(self.random.randint(1, MOST_KILLS)):
            if self.kills >= self.most or life.is_over():
                break
            self.kill(self.random.uniform(0.02, 0.9))
        code = ended(begin(life.fleet, "once", "--timeout", "90s", group=life.group), 150.0)
        where = f"{act.__name__} ({life.on_failure}) {pushed[:10]}"
        if code not in explained.codes:
            self.note("wrong", where, f"exit {code}, expected {explained.codes}: {self.log()}")
        self.check_processes(where, settled=True)
        if life.delegated is not None and not any(life.delegated.glob("replica.*")):
            self.note("wrong", where, "no agent is in a control group of its own")
        self.check_starts(where, before, explained)
        self.check_hooks(where, called, explained, code)
        self.check_commits(where, commits, pushed, explained)
        life.catch_up()

    def kill(self, after: float, *, at_point: bool = True) -> None:
        """Let gitops-agent begin, and end it in the middle: at a point now and then, else after some seconds."""
        fleet, random = self.life.fleet, self.random
        verb = random.choice(("once", "once", "run"))
        point = f"{random.choice(POINTS)}:{random.randint(1, 8)}"
        environment = {"GITOPS_FAULT_AT": point} if at_point and random.random() < 0.4 else {}
        child = begin(fleet, verb, group=self.life.group, **environment)
        code = ended(child, 2.0 if environment else after)
        if code is None:
            os.kill(child, signal.SIGKILL)
            code = ended(child)
        self.kills += code == KILLED
        if code not in (KILLED, 0, 5):
            self.note("wrong", verb, f"exit {code}: {self.log()}")
        self.check_processes(f"after a kill at {point if environment else f'{after:.3f} s'}", settled=False)

    # -- what must never happen

    def note(self, kind: str, where: str, what: str) -> None:
        self.found.append((kind, f"[{self.life.hold}] {where}: {what}"))

    def check_processes(self, where: str, *, settled: bool) -> None:
        for name, count in self.settled_copies().items():
            if count > 1:
                self.note("duplicated", where, f"{name} runs {count:g} times")
            if settled and not count and name in self.life.wanted:
                self.note("lost", where, f"{name} does not run: {self.log()}")
            if settled and count and name not in self.life.allowed:
                self.note("wrong", where, f"{name} still runs")

    def settled_copies(self) -> dict[str, float]:
        """How often each agent is there. What a program forks on its way is gone in a moment; a copy is not."""
        deadline = time.monotonic() + SETTLE_SECONDS
        counts = self.life.copies()
        while any(count > 1 for count in counts.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
            counts = self.life.copies()
        return counts

    def settled_starts(self, before: dict[str, int], explained: Explained) -> dict[str, int]:
        """The starts so far; a program needs a moment until it writes its line."""
        deadline = time.monotonic() + SETTLE_SECONDS
        due = {name: before[name] + least for name, (least, _) in explained.starts.items()}
        counts = self.life.starts()
        while any(counts[name] < least for name, least in due.items()) and time.monotonic() < deadline:
            time.sleep(0.05)
            counts = self.life.starts()
        return counts

    def check_starts(self, where: str, before: dict[str, int], explained: Explained) -> None:
        for name, count in self.settled_starts(before, explained).items():
            least, most = explained.starts.get(name, (0, 0))
            new = count - before[name]
            if new > most:
                self.note("repeated", where, f"{name} was started {new} times, {most} are explained: {self.log()}")
            if new < least:
                self.note("lost", where, f"{name} was started {new} times, {least} are due: {self.log()}")

    def check_hooks(self, where: str, before: list[str], explained: Explained, code: int | None) -> None:
        new = self.life.calls()[len(before) :]
        if len(new) > explained.hooks or len(set(new)) < len(new):
            self.note("repeated", where, f"{len(new)} calls of hooks, {explained.hooks} are explained: {new}")
        if code == 0 and len(new) < explained.hooks:
            self.note("lost", where, "a hook was never called, and nobody was told")

    def check_commits(self, where: str, before: list[str], pushed: str, explained: Explained) -> None:
        branch = self.life.branch()
        ours = branch[: branch.index(pushed)] if pushed in branch else branch
        if len(ours) > explained.reverts:
            self.note("repeated", where, f"{len(ours)} reverts on the branch, {explained.reverts} are explained")
        if len(ours) < explained.reverts:
            self.note("wrong", where, f"no revert was pushed: {self.log()}")
        if before and before[0] not in branch:
            self.note("wrong", where, "the branch was rewritten")
        phases = self.life.phases()
        if phases.get(pushed) not in (*explained.phase, *(["Converged"] if pushed in self.told else [])):
            self.note("wrong", where, f"{phases.get(pushed)}, expected {explained.phase}: {self.log()}")
        if changed := {sha: phases.get(sha) for sha, phase in self.told.items() if phases.get(sha) != phase}:
            self.note("repeated", where, f"what was terminal changed: {changed}")
        self.told = phases
        with open_journal(self.life.fleet.state) as journal:
            if left := journal.state().reconcile.open_intents:
                self.note("wrong", where, f"intents without an outcome: {[str(i.action.key) for i in left]}")

    def check_notes(self) -> None:
        """Every commit has the note that its record deserves, and no other."""
        for sha in self.life.branch():
            said = (parse_note(self.life.fleet.note(sha)) or {}).get("phase")
            if said != self.told.get(sha):
                self.note("repeated", sha[:10], f"the note says {said}, the record {self.told.get(sha)}")

    def log(self) -> str:
        path = self.life.fleet.state.parent / "calls.log"
        return path.read_text(errors="replace")[-1500:] if path.exists() else ""


def work(folder: Path, kills: int, seed: int, holds: Sequence[str]) -> None:
    """One worker: lives until there were so many kills; a JSON line for each life."""
    event.listen(Engine, "connect", hurry)
    warm()
    number = done = 0
    while done < kills:
        player = Player(folder / str(number), Random(f"{seed}/{number}"), kills - done, holds)
        player.play()
        done += player.kills
        number += 1
        life = player.life
        told = {"kills": player.kills, "found": player.found, "hold": life.hold, "folder": str(life.counts.parent)}
        print(json.dumps(told), flush=True)


def lead(folder: Path, kills: int, seed: int, workers: int, holds: Sequence[str]) -> int:
    """Start the workers, add up what they tell."""
    missing = "" if unified_mount() is not None else f"; no life with a control group, which {REASON}"
    print(f"seed {seed}: {kills} kills, {workers} workers, held by {', '.join(holds)}{missing}", flush=True)
    program = [sys.executable, "-m", "tests.crash.rollouts", "--worker", "--folder", str(folder)]
    program += [word for hold in holds for word in ("--hold", hold)]
    children = [
        subprocess.Popen(
            [*program, "--kills", str(-(-kills // workers)), "--seed", str(seed * 1000 + number)],
            stdout=subprocess.PIPE,
        )
        for number in range(workers)
    ]
    total: Counter[str] = Counter()
    held: Counter[str] = Counter()
    began, lives, open_ = time.monotonic(), 0, list(children)
    while open_:
        for child in list(open_):
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line:
                open_.remove(child)
                continue
            told = json.loads(line)
            lives += 1
            held[told["hold"]] += told["kills"]
            total.update({"kills": told["kills"], **Counter(kind for kind, _ in told["found"])})
            for kind, what in told["found"]:
                print(f"{kind.upper()}: {what}\n  in {told['folder']}", flush=True)
            print(f"{time.monotonic() - began:6.0f} s  {lives} lives, {total['kills']} kills", flush=True)
    failed = sum(child.wait() != 0 for child in children)
    counts = ", ".join(f"{total[kind]} {kind}" for kind in KINDS)
    by = ", ".join(f"{hold} {count}" for hold, count in sorted(held.items()))
    summed = f"{total['kills']} kills ({by}) in {lives} lives"
    print(f"seed {seed}: {summed}: {counts}; {failed} workers failed", flush=True)
    return int(bool(failed or any(total[kind] for kind in KINDS)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--hold", choices=HOLDS, action="append", help="what holds agents together (default: by chance)"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    here = [hold for hold in HOLDS if hold != "group" or unified_mount() is not None]
    if not (holds := [hold for hold in given.hold or HOLDS if hold in here]):
        parser.error(f"--hold group {REASON}")
    folder = given.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    if given.worker:
        work(folder / f"worker-{given.seed}", given.kills, given.seed, holds)
        return 0
    code = lead(folder, given.kills, given.seed, given.workers, holds)
    if code == 0 and given.folder is None:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
