"""One fleet of real processes from commit to commit, and what each of them explains.

Every agent writes a line into a file of its own when it starts, and so does every hook when it is called: the
number of lines is the number of starts, whatever gitops-agent believes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gitops_agent.journal.store import open_journal
from tests.support.fleet import Fleet, alive, signal_pid, until

AGENTS = ("a1", "a2", "a3", "a4", "a5")
CANARY = "a1"
DRIFTS = 4
"""How many agents die in a life, which is short: one more would be mass drift, and rightly stop everything."""
GUEST = "guest"
START = {False: "echo started >> {0}; read never < {1}", True: "echo started >> {0}; exec sleep 600"}
"""What an agent does: it stays the program that was declared, or becomes another one."""

WRAPPED = "a5"
"""The agent that becomes another program. When it was just started again after drift, and is not on record because
of a kill, it cannot be told from a stray child of the old one and is replaced: one start more is explained."""

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

    def __init__(self, folder: Path, random: Random, on_failure: str) -> None:
        self.fleet = Fleet(folder, GITOPS_AGENT_LISTEN="")
        self.random = random
        self.on_failure = on_failure
        self.version = 0
        self.counts = folder / "counts"
        self.counts.mkdir()
        os.mkfifo(self.counts / "never")
        self.drifted: set[str] = set()
        self.held = self.guest = False

    # -- acts: each pushes something or breaks something, and says what that explains

    def first(self) -> Explained:
        policy = self.fleet.policy(rollout={"onFailure": self.on_failure, "second": "40%"})
        self.fleet.commit({"policy.yaml": policy, **self.documents(*AGENTS)})
        return Explained(dict.fromkeys(AGENTS, (1, 1)))

    def acts(self) -> list[Callable[[], Explained]]:
        """What may happen next."""
        if self.held:
            return [self.mend, self.take_back]
        return [self.change, self.change, self.bad, self.bad, self.overtake, self.drift, self.visit]

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
        fresh = [name for name in AGENTS if name not in self.drifted]
        if not room:
            return self.change()
        gone = self.random.sample(fresh, min(room, self.random.randint(1, 2)))
        self.drifted.update(gone)
        for name in gone:
            pid = self.fleet.pid(name)
            signal_pid(pid)
            until(lambda pid=pid: not alive(pid), "the end of the agent")
        starts = {name: (1, 2 if name == WRAPPED else 1) for name in gone}
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
        body = START[name == WRAPPED].format(self.counts / f"starts.{name}", self.counts / "never")
        command = ("sh", "-c", body, f"v{self.version}")
        hooks = {"hooks": self.hooks(name)} if name == GUEST else {}
        runtime = {"minUptime": "0s", "stop": {"grace": "5s"}}
        return self.fleet.agent(name, *command, runtime=runtime, **spec, **hooks)

    def hooks(self, name: str) -> dict[str, Any]:
        call = {"command": ["sh", "-c", CALL.format(self.counts / f"hooks.{name}")]}
        return {"onProvisioned": call, "onRetired": call}

    # -- what is true of it

    @property
    def wanted(self) -> tuple[str, ...]:
        return (*AGENTS, GUEST) if self.guest else AGENTS

    def starts(self) -> dict[str, int]:
        return {name: len(self.lines(f"starts.{name}")) for name in (*AGENTS, GUEST)}

    def calls(self) -> list[str]:
        return self.lines(f"hooks.{GUEST}")

    def lines(self, name: str) -> list[str]:
        path = self.counts / name
        return path.read_text().splitlines() if path.exists() else []

    def processes(self) -> dict[str, int]:
        return {name: len(self.fleet.pids(name)) for name in (*AGENTS, GUEST)}

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
        return bool(record and record.phase.terminal) and all(self.processes()[each] for each in self.wanted)

    def catch_up(self) -> None:
        """Our clone follows what gitops-agent pushed."""
        self.fleet.git("fetch", "-q", "origin")
        self.fleet.git("reset", "-q", "--hard", f"origin/{self.fleet.branch}")
