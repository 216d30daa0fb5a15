"""What goes wrong: the API server, the watches, the requests, the leader, and people with ``kubectl``.

Each harm is done and taken back: what is left at the end is only what gitops-agent made of it. When it lasted is
written down, so that a failover is not blamed for an API server that was not there.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from tests.kubernetes.chaos.author import Author
from tests.kubernetes.chaos.machines import Machine
from tests.kubernetes.chaos.trail import Key, Span, process_of
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, Seen

FOLLOWED_SECONDS = 45.0
"""How long a leader stays away at most, when nobody follows it."""

LONGEST_DELAY = 2.0
"""Less than the 4 s between the moment when a leader stops by itself and that when another one may begin."""

WAYS = ("killed", "paused", "killed", "paused", "ended")
"""How leaders are lost, in one round."""


@dataclass(frozen=True)
class Lost:
    """A leader that was killed, paused or ended, and when."""

    how: str
    victim: str
    at: float


def is_write(seen: Seen) -> bool:
    return seen.method in ("POST", "PATCH", "PUT", "DELETE")


class Harm:
    """The kinds of harm, each a call that returns when it is over."""

    def __init__(
        self, random: Random, cluster: Cluster, machines: Sequence[Machine], author: Author, lease: str
    ) -> None:
        self._random, self._cluster, self._machines = random, cluster, machines
        self._author, self._lease = author, lease
        self._ways: list[str] = []
        self._one_at_a_time = threading.Lock()
        self.done: Counter[str] = Counter()
        self.outages: list[Span] = []
        self.disturbed: defaultdict[str, list[Span]] = defaultdict(list)
        self.lost: list[Lost] = []

    # -- the API server, and the way to it

    def api_server(self) -> None:
        """Kill the API server and start it again after a while, or let it hang for a moment."""
        with _lasting(self.outages):
            if self._random.random() < 0.3:
                self._cluster.pause_apiserver()
                time.sleep(self._random.uniform(0.5, 1.5))
                self._cluster.resume_apiserver()
                self.done["API server paused"] += 1
            else:
                self._cluster.restart_apiserver(down=self._random.uniform(0.0, 3.0))
                self._cluster.restart_nodes()
                self.done["API server killed"] += 1

    def watches(self) -> None:
        """End the watches of one process without a word, with a word (410), or let them hear nothing more."""
        proxy = self._random.choice(self._machines).proxy
        kind = self._random.choice(("cut", "cut", "expired", "silent"))
        how = {"cut": proxy.cut_watches, "expired": proxy.expire_watches, "silent": proxy.silence_watches}[kind]
        how()
        self.done[f"watches {kind}"] += 1

    def requests(self) -> None:
        """Let requests of one process fail for a while."""
        machine, delay = self._random.choice(self._machines), self._random.uniform(0.2, LONGEST_DELAY)
        faults = {
            "429": Fault(status=429, retry_after=1),
            "500": Fault(status=500),
            "503": Fault(status=503),
            "delayed": Fault(delay=delay),
            "refused": Fault(refuse=True),
            "answers lost": Fault(is_write, lose_answer=True, times=self._random.randint(1, 6)),
        }
        kind = self._random.choice(list(faults))
        with _lasting(self.disturbed[machine.name]):
            machine.proxy.inject(faults[kind])
            time.sleep(self._random.uniform(0.5, 3.0))
            machine.proxy.heal()
        self.done[f"requests {kind}"] += 1

    # -- the leader

    def leader(self) -> None:
        """Kill the leader, pause it for longer than its Lease lasts, or end it in order; then let it come back."""
        with self._one_at_a_time:
            leader = self._leader()
            if leader is not None:
                self._lose(leader)

    def _lose(self, leader: Machine) -> None:
        if not self._ways:
            self._ways = self._random.sample(WAYS, len(WAYS))
        how = self._ways.pop()
        self.lost.append(Lost(how, leader.name, time.time()))
        if how == "paused":
            leader.send(signal.SIGSTOP)
            self._until_followed(leader)
            time.sleep(self._random.uniform(0.0, 3.0))
            leader.send(signal.SIGCONT)
        else:
            leader.kill() if how == "killed" else leader.end()
            self._until_followed(leader)
            leader.start()
        self.done[f"leader {how}"] += 1

    def standby(self) -> None:
        """Kill one that does not lead, and start it again; not while it is the only one left."""
        with self._one_at_a_time:
            leader = self._leader()
            others = [each for each in self._machines if leader is not None and each is not leader and each.runs]
            if others:
                chosen = self._random.choice(others)
                chosen.kill()
                chosen.start()
                self.done["standby killed"] += 1

    def _leader(self) -> Machine | None:
        holder = self.holder()
        return next((each for each in self._machines if each.name == holder and each.runs), None)

    def holder(self) -> str:
        """Whom the Lease names; "" when it cannot be read."""
        try:
            found = self._kubectl(
                "get", "lease", self._lease, "-n", "default", "-o", "jsonpath={.spec.holderIdentity}"
            )
            return process_of(found) or ""
        except AssertionError:
            return ""

    def _until_followed(self, leader: Machine) -> None:
        until = time.monotonic() + FOLLOWED_SECONDS
        while self.holder() in ("", leader.name) and time.monotonic() < until:
            time.sleep(0.5)

    # -- people

    def hands(self) -> None:
        """Delete, scale or edit something that Git has, as people do who have ``kubectl``."""
        key = self._random.choice(sorted(self._author.history[-1].objects))
        harms: dict[str, tuple[str, Callable[[Key], None]]] = {"deleted": ("deleted by hand", self._delete)}
        if key.resource in ("deployments", "statefulsets"):
            harms |= {
                "scaled": ("scaled by hand", self._scale),
                "edited": ("edited by hand", self._set_image),
                "pods": ("pods deleted", self._delete_pods),
            }
        elif key.resource == "configmaps":
            harms["edited"] = ("edited by hand", self._edit_bundle)
        name, do = harms[self._random.choice(list(harms))]
        try:
            do(key)
        except AssertionError:
            return  # the API server is down, or it is gone already
        self.done[name] += 1

    def _delete(self, key: Key) -> None:
        self._kubectl("delete", key.resource, key.name, "-n", key.namespace, "--wait=false")

    def _delete_pods(self, key: Key) -> None:
        agent = f"gitops-agent.dev/agent={key.name}"
        self._kubectl("delete", "pods", "-l", agent, "-n", key.namespace, "--wait=false")

    def _scale(self, key: Key) -> None:
        replicas = f"--replicas={self._random.choice((0, 4, 5))}"
        self._kubectl("scale", f"{key.resource}/{key.name}", replicas, "-n", key.namespace)

    def _set_image(self, key: Key) -> None:
        self._kubectl(
            "set", "image", f"{key.resource}/{key.name}", "agent=registry.example/mine:1", "-n", key.namespace
        )

    def _edit_bundle(self, key: Key) -> None:
        patch = json.dumps({"data": {"bundle.json": "{}"}})
        words = ("patch", "configmap", key.name, "-n", key.namespace, "--type=merge", "-p", patch)
        self._kubectl(*words, "--field-manager=kubectl-edit")

    def _kubectl(self, *words: str) -> str:
        return self._cluster.kubectl(*words, "--request-timeout=5s")


@contextmanager
def _lasting(spans: list[Span]) -> Iterator[None]:
    since = time.time()
    try:
        yield
    finally:
        spans.append(Span(since, time.time()))
