"""What would spoil the demo, looked for before it begins: its agents run already, or its ports are taken."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

_PORT = re.compile(r"\bport:\s*(\d+)")


def obstacles(example: Path) -> list[str]:
    """One sentence with a way out for each thing that is in the way; nothing when the stage is free."""
    documents = sorted(example.glob("agents/*/*.yaml"))
    agents = {f"{path.parent.name}/{path.stem}" for path in documents}
    ports = {int(port) for path in documents for port in _PORT.findall(path.read_text(encoding="utf-8"))}
    running = list(_running(agents))
    # A port that one of these agents holds is reported by naming the agent.
    return running or [_taken(port) for port in sorted(ports) if _is_taken(port)]


def _running(agents: set[str]) -> Iterator[str]:
    import psutil

    for process in psutil.process_iter():
        try:
            instance, _, agent = process.environ().get("MANAGED_AGENT_OWNER", "").partition("/")
        except psutil.Error:
            continue
        if agent in agents:
            yield (
                f"{agent} runs already, under the instance {instance} (pid {process.pid}), and a machine runs an"
                " agent once: stop it (lifecycle: Stopped, or remove it from the repository that instance follows;"
                f" if that instance is gone, kill {process.pid}), then start the demo again."
            )


def _taken(port: int) -> str:
    return (
        f"port {port} of this machine is taken, and the demo needs it: end what listens there, then start again."
    )


def _is_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: what lingers of a connection that ended is not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
