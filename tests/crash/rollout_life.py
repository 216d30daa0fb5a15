"""One fleet of real processes from commit to commit, and what each of them explains.

The agents are programs of five kinds (``tests/support/programs.py``). Each writes a line into a file of its own
when it starts, and so does every hook when it is called: the number of lines is the number of starts, whatever
gitops-agent believes. Every process of a program holds a file of it open: so all of it is counted by the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gitops_agent.journal.store import open_journal
from tests.support.fleet import RUNNER, Fleet, alive, signal_pid, until
from tests.support.programs import AGENTS as PROGRAMS
from tests.support.programs import holders

KINDS = {
    "a1": "plain",
    "a2": "gunicorn",
    "a3": "node" if PROGRAMS["node"].is_here else "cluster",
    "a4": "forking",
    "a5": "setproctitle",
}
AGENTS = tuple(KINDS)
CANARY = "a1"
DRIFTS = 4
"""How many agents die in a life, which is short: one more would be mass drift, and rightly stop everything."""
GUEST = "guest"
SLEEPER = "sleeper"
"""The agent that goes into the background whenever it is started, so that it never becomes ready."""

HOLDS = ("runner", "group", "environment")
"""What holds the agents of a life together. With ``group`` and ``environment`` runners are killed now and then:
agents are then known by their control group, or by record and marks alone."""

TRIES = 50  # of an agent that is never ready, while it is wanted
CALL = 'echo "$MANAGED_AGENT_HOOK_KEY" >> {}'


@dataclass
class Explained:
    """What an act explains: new starts of each agent (at least, at most), and how ``once`` may end.

    ``hooks``: calls of hooks that are due (each may also end unknown, and then it is for people). ``reverts``: how
    many commits of ours. ``phase``: what becomes of the commit of the act.
    """

    starts: dict[str, tuple[int, int]] = field(default_factory=dict)
    codes: tuple[int, ...] = (0,)
    hooks: int = 0
    reverts: int = 0
    phase: tuple[str, ...] = ("Converged",)


class Life:
    """A fleet, the acts that may be played, and what is true of it."""

    def __init__(self, folder: Path, random: Random, on_failure: str, hold: str) -> None:
        self.hold = hold
        self.delegated: Path | None = None  # the control group that is delegated to gitops-agent
        self.group: Path | None = None  # the one that it is started in
        self.mains: dict[str, int] = {}  # of agents whose runner was killed
        self.fleet = Fleet(folder, GITOPS_AGENT_LISTEN="")
        self.random = random
        self.on_failure = on_failure
        self.version = 0
        self.counts = folder / "counts"
        self.counts.mkdir()
        kinds = {**KINDS, GUEST: "plain", SLEEPER: "daemonizing"}
        self.programs = {name: PROGRAMS[kind].made(folder / "programs" / name) for name, kind in kinds.items()}
        self.drifted: set[str] = set()
        self.held = self.guest = self.sleeps = False

    # -- acts: each pushes something or breaks something, and says what that explains

    def first(self) -> Explained:
        policy = self.fleet.policy(rollout={"onFailure": self.on_failure, "second": "40%"})
        self.fleet.commit({"policy.yaml": policy, **self.documents(*AGENTS)})
        return Explained(dict.fromkeys(AGENTS, (1, 1)))

    def acts(self) -> list[Callable[[], Explained]]:
        """What may happen next."""
        if self.held:
            return [self.mend, self.take_back]
        if self.sleeps:
            return [self.wake]
        return [self.change, self.change, self.bad, self.bad, self.overtake, self.drift, self.visit, self.sleep]

    def change(self) -> Explained:
        chosen = self.random.sample(AGENTS, self.random.randint(2, len(AGENTS)))
        self.version += 1
        self.fleet.commit(self.documents(*chosen))
        return Explained(dict.fromkeys(chosen, (1, 1)))

    def bad(self) -> Explained:
        """A probe that can never succeed: the canary is touched, nobody else."""
        self.version += 1
        self.fleet.commit(self.documents(*AGENTS, broken=True))
        if self.on_failure == "Revert":
            return Explained({CANARY: (2, 2)}, reverts=1, phase=("Degraded",))
        self.held = True
        return Explained({CANARY: (1, 1)}, codes=(5,), phase=("Degraded",))

    def mend(self) -> Explained:
        self.version += 1
        self.fleet.commit(self.documents(*AGENTS))
        self.held = False
        return Explained(dict.fromkeys(AGENTS, (1, 1)))

    def take_back(self) -> Explained:
        self.fleet.revert("HEAD")
        self.held = False
        return Explained({CANARY: (1, 1)})

    def overtake(self) -> Explained:
        """A bad commit, and a good one before anybody could judge it; the first may have reached the canary."""
        self.version += 1
        self.fleet.commit(self.documents(*AGENTS, broken=True))
        self.kill_soon()
        self.version += 1
        self.fleet.commit(self.documents(*AGENTS))
        return Explained({**dict.fromkeys(AGENTS, (1, 1)), CANARY: (1, 2)})

    def drift(self) -> Explained:
        room = DRIFTS - len(self.drifted)
        fresh = [name for name in AGENTS if name not in self.drifted and self.is_held(name)]
        if not room or not fresh:
            return self.change()
        gone = self.random.sample(fresh, min(room, len(fresh), self.random.randint(1, 2)))
        self.drifted.update(gone)
        for name in gone:
            if self.is_held_alone(name) and self.random.random() < 0.5:
                self.lose_runner(name)
            pid = self.fleet.main(name) if self.fleet.runners(name) else self.mains[name]
            signal_pid(pid)
            until(lambda pid=pid: not alive(pid), "the end of the agent")
        starts = dict.fromkeys(gone, (1, 1))
        if self.phases().get(self.branch()[0]) == "Degraded":  # a hook whose end is unknown waits for people
            return Explained(starts, codes=(5,), phase=("Degraded",))
        return Explained(starts)

    def visit(self) -> Explained:
        """An agent with hooks comes, or goes. A call whose end nobody knows is for people."""
        path = f"{GUEST}.yaml"
        self.guest = not self.guest
        self.fleet.commit(self.documents(GUEST) if self.guest else {path: None})
        starts = {GUEST: (1, 1)} if self.guest else {}
        return Explained(starts, codes=(0, 5), hooks=1, phase=("Converged", "Degraded"))

    def sleep(self) -> Explained:
        """An agent comes that goes into the background: it is tried again and again, and leaves one daemon."""
        self.version += 1
        # Without a probe it is ready when it has run for so long, which it never does.
        runtime = {**self.runtime(), "minUptime": "1h"}
        command, timeout = self.programs[SLEEPER].command, {"healthTimeout": "2s"}
        document = self.fleet.agent(SLEEPER, *command, runtime=runtime, rollout=timeout)
        self.fleet.commit({f"{SLEEPER}.yaml": document})
        if self.on_failure == "Revert":
            return Explained({SLEEPER: (1, TRIES)}, reverts=1, phase=("Degraded",))
        self.sleeps = True
        return Explained({SLEEPER: (1, TRIES)}, codes=(5,), phase=("Degraded",))

    def wake(self) -> Explained:
        """Its document is deleted, and nothing of it runs on."""
        self.sleeps = False
        if self.hold == "group":
            self.lose_runner(SLEEPER)
        self.fleet.commit({f"{SLEEPER}.yaml": None})
        return Explained({SLEEPER: (0, TRIES)})

    def lose_runners(self) -> None:
        """Kill the runners of some agents, all of which are on record. Nothing of that is drift."""
        for name in self.random.sample(AGENTS, self.random.randint(0, 3)) if self.hold != "runner" else ():
            self.lose_runner(name)

    def lose_runner(self, name: str) -> None:
        for runner in self.fleet.runners(name):
            self.mains[name] = self.fleet.main(name)
            signal_pid(runner)
            until(lambda runner=runner: not alive(runner), "the end of the runner")

    def is_held(self, name: str) -> bool:
        """Whether all of an agent stays known when its own process dies."""
        return self.is_held_alone(name) or bool(self.fleet.runners(name))

    def is_held_alone(self, name: str) -> bool:
        """Whether it does without a runner: what lost its parents and its marks is known by its group alone."""
        return self.hold == "group" or (self.hold == "environment" and self.programs[name].size == 1)

    kill_soon: Callable[[], None] = staticmethod(lambda: None)
    """Let gitops-agent be killed in the middle of an act; set by who plays it."""

    def documents(self, *names: str, broken: bool = False) -> dict[str, str | None]:
        probe = ["false"] if broken else ["true"]
        spec: dict[str, Any] = {
            "probes": {"readiness": {"exec": {"command": probe}, "period": "1s", "timeout": "20s"}},
            "rollout": {"healthTimeout": "1s" if broken else "60s"},
        }
        return {f"{name}.yaml": self.document(name, spec) for name in names}

    def document(self, name: str, spec: dict[str, Any]) -> str:
        hooks = {"hooks": self.hooks(name)} if name == GUEST else {}
        return self.fleet.agent(name, *self.programs[name].command, runtime=self.runtime(), **spec, **hooks)

    def runtime(self) -> dict[str, Any]:
        version = {"name": "VERSION", "value": f"v{self.version}"}
        return {"minUptime": "0s", "stop": {"grace": "5s"}, "env": [version]}

    def hooks(self, name: str) -> dict[str, Any]:
        call = {"command": ["sh", "-c", CALL.format(self.counts / f"hooks.{name}")]}
        return {"onProvisioned": call, "onRetired": call}

    # -- what is true of it

    @property
    def wanted(self) -> tuple[str, ...]:
        return (*AGENTS, GUEST) if self.guest else AGENTS

    @property
    def allowed(self) -> tuple[str, ...]:
        """What may run: what is wanted, and what never becomes ready."""
        return (*self.wanted, SLEEPER) if self.sleeps else self.wanted

    def starts(self) -> dict[str, int]:
        return {name: program.starts for name, program in self.programs.items()}

    def calls(self) -> list[str]:
        return self.lines(f"hooks.{GUEST}")

    def lines(self, name: str) -> list[str]:
        path = self.counts / name
        return path.read_text().splitlines() if path.exists() else []

    def copies(self) -> dict[str, float]:
        """How often each program is there as a whole: a copy that is still coming up, or going, is part of one."""
        held = holders({program.mark for program in self.programs.values()})
        runners = Counter(
            marks["MANAGED_AGENT_OWNER"].rpartition("/")[2]
            for marks in self.fleet.marked(runners=True).values()
            if RUNNER in marks
        )
        return {
            name: max(len(held[program.mark]) / program.size, runners[name])
            for name, program in self.programs.items()
        }

    def branch(self) -> list[str]:
        """The commits of the tracked branch, newest first, as the remote has them."""
        return self.fleet.git("rev-list", self.fleet.branch, where=self.fleet.bare).split()

    def phases(self) -> dict[str, str]:
        """What the journal says of each commit."""
        with open_journal(self.fleet.state) as journal:
            return {record.sha: record.phase.value for record in journal.commits()}

    def is_over(self) -> bool:
        """Whether the newest commit has been judged, and everybody is there."""
        if not (self.fleet.state / "journal.db").exists():
            return False
        with open_journal(self.fleet.state) as journal:
            record = journal.commit_record(self.branch()[0])
        if not record or not record.phase.terminal:
            return False
        copies = self.copies()
        return all(copies[each] for each in self.wanted)

    def end(self) -> None:
        """End all of it: by its marks, and by the files that its programs hold."""
        self.fleet.end()
        marks = {program.mark for program in self.programs.values()}
        until(lambda: not [signal_pid(pid) for pids in holders(marks).values() for pid in pids], "the end of all")

    def catch_up(self) -> None:
        """Our clone follows what gitops-agent pushed."""
        self.fleet.git("fetch", "-q", "origin")
        self.fleet.git("reset", "-q", "--hard", f"origin/{self.fleet.branch}")
