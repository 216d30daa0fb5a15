"""Two gitops-agents of one instance keep a fleet in a real cluster while commits arrive and all goes wrong.

    python -m tests.kubernetes.chaos [--seconds 120] [--commits 40] [--seed N] [--folder FOLDER]

At random the API server is killed, watches are cut or fall silent, requests are refused, delayed or lose their
answers, the leader is killed or paused for longer than its Lease lasts, people delete and edit what is not theirs.
At the end all is left alone, and live must equal Git, read by kubectl. From the API server's audit log: no object
was created twice or deleted wrongly, nobody wrote who did not lead, and a lost leader was followed within 20 s
(seconds without an API server are not counted). Exit code 1 when anything was found; then the folder stays.
"""

from __future__ import annotations

import re
import signal
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from gitops_agent.report.sinks.git_notes import parse_note
from tests.kubernetes.chaos.author import NO_IMAGE, Author
from tests.kubernetes.chaos.harm import Harm, Lost
from tests.kubernetes.chaos.live import not_as_git
from tests.kubernetes.chaos.machines import Machine
from tests.kubernetes.chaos.trail import (
    Change,
    Entry,
    Span,
    changes_of_leader,
    created_twice,
    overlap,
    read_trail,
    stale_writes,
    wrongly_deleted,
)
from tests.kubernetes.fleet import KubeFleet
from tests.pressure.gremlins import Gremlin
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy
from tests.servers.postgres import Postgres
from tests.support.election import HERE

AGENTS = 30
USERS = {"agent": "a", "agent-2": "b"}
"""The users of the API, and the names of the processes that are them."""

SECRET = "canary-of-the-campaign"
FAILOVER_SECONDS = 20.0
LAG_SECONDS = 20.0
"""How long a commit may go unheard of: nobody may lead for that long."""

SETTLED_SECONDS = 240.0
HELD_SECONDS = 30.0
"""How long the author of a commit that fails waits until it is held, before it is reverted."""
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
KINDS = ("twice", "wrongly deleted", "not as Git", "stale", "failover", "unreported", "broken")


@dataclass(frozen=True)
class Failover:
    """Seconds from the loss of a leader to the next one, and in how many of them that one had no API server."""

    how: str
    seconds: float
    without_server: float


@dataclass
class Found:
    """What must never happen, and what was done to provoke it."""

    seed: int
    problems: list[tuple[str, str]] = field(default_factory=list)
    commits: Counter[str] = field(default_factory=Counter)
    harm: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    operator: Counter[str] = field(default_factory=Counter)
    failovers: list[Failover] = field(default_factory=list)
    leaders: int = 0
    objects: int = 0
    settled: float = 0.0

    def add(self, kind: str, what: str) -> None:
        """Remember a problem, once."""
        if (kind, what) not in self.problems:
            self.problems.append((kind, what))

    def __str__(self) -> str:
        kinds = Counter(kind for kind, _ in self.problems)
        lines = (
            f"seed {self.seed}",
            f"commits:    {_counts(self.commits)}",
            f"harm:       {_counts(self.harm)}",
            f"operator:   {_counts(self.operator) or 'had nothing to do'}",
            f"requests:   {_counts(self.requests)}",
            f"failovers:  {_times(self.failovers)}; the Lease changed hands {self.leaders} times",
            f"at the end: {self.objects} objects as Git has them, {self.settled:.1f} s after the last commit",
            f"found:      {', '.join(f'{kinds[name]} {name}' for name in KINDS)}",
        )
        return "\n".join(lines)


def _times(failovers: list[Failover]) -> str:
    if not failovers:
        return "none"
    took = [each.seconds for each in failovers]
    served = [each.seconds - each.without_server for each in failovers]
    return (
        f"{len(failovers)}, median {statistics.median(took):.1f} s, longest {max(took):.1f} s, "
        f"of which with an API server to ask median {statistics.median(served):.1f} s, longest {max(served):.1f} s"
    )


def _counts(counter: Counter[str]) -> str:
    parts = ", ".join(f"{count} × {name}" for name, count in sorted(counter.items()))
    return f"{counter.total()}: {parts}" if parts else ""


class Campaign:
    """All of it, in one folder and one cluster."""

    def __init__(
        self, folder: Path, cluster: Cluster, postgres: Postgres, seed: int, *, commits: int, seconds: float
    ) -> None:
        self._random = Random(seed)
        self._cluster, self._commits, self._seconds = cluster, commits, seconds
        self.found = Found(seed)
        self._fleet = KubeFleet(folder, cluster)
        self._fleet.environment |= {
            "GITOPS_AGENT_ELECTION": "kubernetes",
            "GITOPS_AGENT_DRIVERS__KUBERNETES__ELECTION_NAMESPACE": "default",
            "GITOPS_AGENT_JOURNAL_URL": postgres.url(),
            "GITOPS_AGENT_POLL_INTERVAL": "1s",
            "GITOPS_AGENT_RESYNC_INTERVAL": "10s",
            "GITOPS_AGENT_LOG_FORMAT": "json",
            "CHAOS_TOKEN": SECRET,
            **HERE,
        }
        self._tenants = [f"{self._fleet.tenant}{letter}" for letter in "xyz"]
        self._lease = f"gitops-agent-{self._fleet.instance}"
        self._author = Author(self._fleet, self._tenants, AGENTS, self._random)

    def play(self) -> Found:
        """Everything from the first commit to the judgement."""
        mark = self._cluster.mark()
        with ExitStack() as stack:
            self._grant(stack)
            machines = [self._machine(stack, user, name) for user, name in USERS.items()]
            harm = Harm(self._random, self._cluster, machines, self._author, self._lease)
            first = self._author.first()
            for each in machines:
                each.start()
            self._settle(first)
            self._storm(harm)
            self._calm(machines)
            last = self._author.last()
            self._settle(last)
            self._end(machines, last)
        self.found.commits, self.found.harm = self._author.kinds, harm.done
        self._judge(read_trail(self._cluster.audit_log, mark), harm)
        return self.found

    # -- the acts

    def _grant(self, stack: ExitStack) -> None:
        for user in USERS:
            name = f"{self._fleet.instance}-{user}"
            binding = ("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--user={user}")
            self._cluster.kubectl(*binding)
            stack.callback(self._cluster.kubectl, "delete", "clusterrolebinding", name, check=False)
        words = ("delete", "namespace", *self._tenants, "--wait=false", "--ignore-not-found")
        stack.callback(self._cluster.kubectl, *words, check=False)

    def _machine(self, stack: ExitStack, user: str, name: str) -> Machine:
        proxy = stack.enter_context(FaultProxy(self._cluster.url, self._cluster.ca))
        machine = Machine(self._fleet, name, user, proxy)
        stack.callback(machine.end)
        return machine

    def _storm(self, harm: Harm) -> None:
        kinds = {
            "the API server": (harm.api_server, (15.0, 35.0)),
            "the watches": (harm.watches, (2.0, 6.0)),
            "the requests": (harm.requests, (1.0, 5.0)),
            "the leader": (harm.leader, (2.0, 12.0)),
            "the standby": (harm.standby, (20.0, 60.0)),
            "the hands": (harm.hands, (0.3, 2.0)),
            "the operator": (self._operate, (2.0, 4.0)),
        }
        shorter = min(1.0, self._seconds / 60.0)
        gremlins = [
            Gremlin(name, do, Random(self._random.random()), (first * shorter, last * shorter))
            for name, (do, (first, last)) in kinds.items()
        ]
        for each in gremlins:
            each.start()
        until = time.monotonic() + self._seconds
        plan = self._author.plan(self._commits)
        for number, kind in enumerate(plan):
            sha = self._author.push(kind)
            if kind == "failing":
                self._await_held(sha, until)
                self._author.push("reverted")
            left, waiting = until - time.monotonic(), len(plan) - number
            time.sleep(max(0.0, self._random.uniform(0.0, 2.0) * left / waiting))
        time.sleep(max(0.0, until - time.monotonic()))
        for each in gremlins:
            each.stop()
            if each.problem:
                self.found.add("broken", each.problem)

    def _await_held(self, sha: str, until: float) -> None:
        """Wait until a commit that cannot succeed is held, for as long as its author would."""
        until = min(until, time.monotonic() + HELD_SECONDS)
        while time.monotonic() < until:
            status = self._fleet.status()
            if (status["commit"], status["phase"]) == (sha, "Degraded"):
                self.found.operator["rollouts seen held"] += 1
                return
            time.sleep(0.5)

    def _calm(self, machines: list[Machine]) -> None:
        """End all harm; who was killed is started again, as a service manager would. So are the simulated
        kubelets: they give up on a pod that was on its way while the API server was killed or hung."""
        for each in machines:
            each.proxy.heal()
            each.send(signal.SIGCONT)
            each.start()
        self._cluster.restart_nodes()

    def _delete_broken_pods(self) -> None:
        """What people have to do for a StatefulSet: it never replaces a pod that cannot come up by itself, also
        after the revert."""
        for namespace in self._tenants:
            for pod in self._cluster.get("pods", namespace=namespace)["items"]:
                if any(NO_IMAGE in each["image"] for each in pod["spec"]["containers"]):
                    words = ("delete", "pod", pod["metadata"]["name"], "-n", namespace, "--wait=false")
                    self._cluster.kubectl(*words, check=False)
                    self.found.operator["broken pods deleted"] += 1

    def _operate(self) -> None:
        """What the operator does who is asked: approve what a guard holds, lift a freeze."""
        codes = {each["code"] for each in self._fleet.status()["findings"]}
        if "MassDelete" in codes:
            plan = self._fleet.call("plan", "-o", "json")
            digest = plan.json["digest"] if plan.code == 4 else ""
            if digest and self._fleet.call("approve", digest, "--reason", "asked for").code == 0:
                self.found.operator["approvals"] += 1
        if codes & {"Frozen", "MassDrift"}:
            self._fleet.call("unfreeze", "--scope", "*", "--reason", "chaos")
            self.found.operator["freezes lifted"] += 1

    def _settle(self, sha: str) -> None:
        """Wait until a commit has converged by its note, and live is as it says by kubectl."""
        since, seen, wrong = time.monotonic(), "", ["not looked at yet"]
        while time.monotonic() < since + SETTLED_SECONDS:
            status = self._fleet.status()
            seen = f"{str(status['commit'])[:10]} is {status['phase']}, {str(status['findings'])[:1000]}"
            if (status["commit"], status["phase"]) == (sha, "Converged"):
                wrong = self._wrong()
                if not wrong and self._phase(sha) == "Converged":
                    self.found.settled = time.monotonic() - since
                    return
            self._operate()
            if status["phase"] == "Degraded":
                self._delete_broken_pods()
            time.sleep(0.5)
        self.found.add("not as Git", f"{sha[:10]} did not converge in {SETTLED_SECONDS:g} s: {seen}; {wrong[:5]}")

    def _wrong(self) -> list[str]:
        documents = list(self._author.documents().values())
        return not_as_git(self._cluster, self._fleet.instance, self._tenants, documents, SECRET)

    def _phase(self, sha: str) -> str:
        """What the note on a commit says of it now."""
        note = parse_note(self._fleet.note(sha)) or {}
        return str((note.get("now") or note).get("phase"))

    def _end(self, machines: list[Machine], last: str) -> None:
        for each in machines:
            if (code := each.end()) != 0:
                self.found.add("broken", f"{each.name} ended with {code} when it was asked to end")
            for code in each.exits.keys() - {0, -signal.SIGKILL}:
                self.found.add("broken", f"{each.name} ended by itself with {code}")
            for match in _TRACEBACK.finditer(each.log()):
                self.found.add("broken", f"{each.name}: {each.log()[match.start() : match.start() + 1500]}")
        for what in self._wrong():
            self.found.add("not as Git", what)
        self.found.objects = len(self._author.history[-1].objects)
        for sha in self._fleet.git("rev-list", self._fleet.branch, where=self._fleet.bare).split():
            if self._phase(sha) == "None" or (sha == last and self._phase(sha) != "Converged"):
                self.found.add("unreported", f"the note on {sha[:10]} says {self._phase(sha)}")

    # -- the judgement

    def _judge(self, trail: list[Entry], harm: Harm) -> None:
        found = self.found
        found.requests = Counter(entry.verb for entry in trail if entry.user in USERS)
        for what in created_twice(trail):
            found.add("twice", what)
        for what in wrongly_deleted(trail, list(USERS), self._author.history, LAG_SECONDS):
            found.add("wrongly deleted", what)
        for what in stale_writes(trail, USERS, self._lease):
            found.add("stale", what)
        changes = changes_of_leader(trail, self._lease)
        found.leaders = len(changes) - 1
        for lost in harm.lost:
            took = failover(lost, changes, harm)
            found.failovers.append(took)
            if took.seconds - took.without_server > FAILOVER_SECONDS:
                found.add("failover", f"{lost.victim} was {lost.how}, and nobody led for {took.seconds:.1f} s")


def failover(lost: Lost, changes: list[Change], harm: Harm) -> Failover:
    """How long it took until another one led."""
    after = (each for each in changes if each.at > lost.at and each.holder != lost.victim)
    change = next(after, None)
    if change is None:
        return Failover(lost.how, float("inf"), 0.0)
    span = Span(lost.at, change.at)
    return Failover(lost.how, change.at - lost.at, overlap(span, [*harm.outages, *harm.disturbed[change.holder]]))
