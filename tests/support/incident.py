"""Fifty agents that answer a health check, and the typo that must not take them down.

The agents are real processes, each with a port of its own, as small as an interpreter gets (``-I -S`` and the raw
socket module: some fifteen milliseconds to start). Each writes one line when it comes up and one for every
question it does not know, so its own log says how often it was started, and what it was asked.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.fleet import Fleet, Json

AGENT = """
import _socket, posix, sys
server = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
server.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen(64)
posix.write(1, b"up as %d\\n" % posix.getpid())
while True:
    handle, _ = server._accept()
    client = _socket.socket(fileno=handle)
    client.settimeout(5)
    try:
        path = client.recv(2048).split(b" ")[1]
        known = path in (b"/readyz", b"/livez")
        known or posix.write(1, b"asked for %s\\n" % path)
        client.sendall(b"HTTP/1.0 %d -\\r\\nContent-Length: 0\\r\\n\\r\\n" % (200 if known else 404))
    except (OSError, IndexError):
        pass
    client.close()
"""
PLACE = "agents.yaml"
PATIENCE = "2s"
"""How long the canary may take to become Ready."""


@dataclass(frozen=True)
class Being:
    """One agent as the kernel and the agent itself know it."""

    pid: int
    born: int
    spec: str
    starts: int


class Incident(Fleet):
    """A fleet of agents that are all alike; the first goes first, and is given little time."""

    def __init__(self, folder: Path, count: int = 50) -> None:
        super().__init__(folder)
        self.names = [f"bot-{number:02}" for number in range(count)]
        self.canary, *self.others = self.names
        self.ports = dict(zip(self.names, free_ports(count), strict=True))
        self._daemon: contextlib.ExitStack | None = None

    # ----- what people push

    def declare(
        self,
        message: str,
        *,
        greeting: str = "hello",
        readiness: str = "/readyz",
        liveness: str = "/livez",
        policy: Mapping[str, Any] | None = None,
        push: bool = True,
    ) -> str:
        """Push the whole fleet in one file, with these paths in its health checks; the sha."""
        files = {PLACE: "---\n".join(self._document(name, greeting, readiness, liveness) for name in self.names)}
        if policy is not None:
            files["gitops-agent.yaml"] = self.policy(**policy)
        return self.commit(files, message, push=push)

    def _document(self, name: str, greeting: str, readiness: str, liveness: str) -> str:
        port, first = self.ports[name], name == self.canary
        return self.agent(
            name,
            *(sys.executable, "-I", "-S", "-c", AGENT, str(port)),
            runtime={"env": [{"name": "GREETING", "value": greeting}]},
            rollout={"canary": True, "healthTimeout": PATIENCE} if first else {},
            probes={
                "readiness": _probe(port, readiness, "1s"),
                # Of the canary often, so that a probe that fails would have ended it many times over.
                "liveness": _probe(port, liveness, "300ms" if first else "1s") | {"failureThreshold": 2},
            },
        )

    # ----- gitops-agent in the background, for as long as tests want it

    def follow(self) -> None:
        """Have ``run`` follow the repository, if it does not already."""
        if self._daemon is None:
            self._daemon = contextlib.ExitStack()
            self._daemon.enter_context(self.running())

    def rest(self) -> None:
        """End ``run``, if it is there."""
        if self._daemon is not None:
            daemon, self._daemon = self._daemon, None
            daemon.close()

    def end(self) -> None:
        self.rest()
        super().end()

    def settle(self, policy: Mapping[str, Any]) -> str:
        """The sound tree under a policy, in force for everybody, whatever a test left; the sha."""
        self.git("fetch", "-q", "origin")
        self.git("reset", "-q", "--hard", f"origin/{self.branch}", check=False)
        sha = self.declare("Sound", policy=policy)
        if self._daemon is None:
            self.once()
        self.await_phase(sha, "Converged")
        return sha

    # ----- what is there

    def beings(self) -> dict[str, Being]:
        """Every agent by name; each must be there exactly once."""
        found: dict[str, Being] = {}
        for pid, marks in self.marked().items():
            name = marks["MANAGED_AGENT_OWNER"].rpartition("/")[2]
            assert name not in found, f"{name} runs twice"
            found[name] = Being(pid, _born(pid), marks["MANAGED_AGENT_SPEC"], self.starts(name))
        assert sorted(found) == self.names
        return found

    def starts(self, name: str) -> int:
        """How often an agent came up, by its own log."""
        return self.said(name).count("up as ")

    def said(self, name: str) -> str:
        """The log of an agent."""
        return (self.folder(name) / "logs" / "0.log").read_text()

    def greetings(self) -> dict[str, str]:
        """What the environment of each running agent says, by the kernel."""
        every = self.marked().values()
        return {marks["MANAGED_AGENT_OWNER"].rpartition("/")[2]: marks["GREETING"] for marks in every}

    def ready_since(self, answer: Json) -> dict[str, str]:
        """Since when each agent is Ready without a break; an agent that is not is missing."""
        rows = ((row["agent"].rpartition("/")[2], row) for row in answer["agents"] if row["ready"])
        return {name: _condition(row, "Ready")["lastTransitionTime"] for name, row in rows}

    def halted(self, answer: Json) -> list[str]:
        rows = ((row["agent"].rpartition("/")[2], row) for row in answer["agents"])
        return sorted(name for name, row in rows if _condition(row, "Halted"))

    def all_answer(self) -> bool:
        """Whether every agent answers its health check, asked by us and not by gitops-agent."""
        return all(ask(port, "/readyz") == 200 for port in self.ports.values())

    def remote(self, branch: str = "main") -> str:
        """Where a branch of the remote is; nothing when there is none."""
        return self.git("ls-remote", "origin", f"refs/heads/{branch}").partition("\t")[0]

    def log_of(self, branch: str = "main") -> list[str]:
        """The commits of a branch of the remote, newest first, by first parent."""
        return self.git("rev-list", "--first-parent", branch, where=self.bare).split()


def _probe(port: int, path: str, period: str) -> Json:
    # A busy machine must not look like an agent that hangs.
    return {"http": {"port": port, "path": path}, "period": period, "timeout": "10s"}


def ask(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the system hands out to clients: ours are clients too."""
    found = list(_free(random.sample(range(20000, 32000), 4 * count), count))
    assert len(found) == count
    return found


def _free(candidates: list[int], count: int) -> Iterator[int]:
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
        count -= 1
        if not count:
            return


def _born(pid: int) -> int:
    """When a process started, in ticks since boot: with the pid it is the same process or it is not."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _condition(row: Json, kind: str) -> Json:
    return next((condition for condition in row["conditions"] if condition["type"] == kind), {})
