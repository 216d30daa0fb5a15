"""Several gitops-agents of one instance, as if each were on a machine of its own."""

from __future__ import annotations

import copy
import http.client
import os
import re
from pathlib import Path

from tests.support.fleet import Fleet, until

HERE = {"GITOPS_AGENT_LISTEN": "127.0.0.1:0"}


def install_simulated(folder: Path) -> str:
    """Write what an installer would of the simulated election; the search path on which it is found."""
    info = folder / "simulated_election-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated-election\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[gitops_agent.drivers]\nsimulated = gitops_agent.testing.simulated_election:PLUGIN\n"
    )
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def on_another_machine(fleet: Fleet, name: str) -> Fleet:
    """The same fleet for a gitops-agent with nothing but the repository and the election in common."""
    other = copy.copy(fleet)
    place = fleet.state.parent / name
    place.mkdir()
    other.state = place / "state"
    other.environment = {
        **fleet.environment,
        "GITOPS_AGENT_IDENTITY": name,
        "GITOPS_AGENT_LEASE_DIR": str(place / "leases"),
    }
    return other


def answer(fleet: Fleet, path: str) -> tuple[int, str]:
    """What the endpoint of the one that runs here answers."""
    where = until(lambda: re.findall(r'"address": ?"([^"]+)"', fleet.daemon_log()), "an address is logged")[-1]
    connection = http.client.HTTPConnection(where, timeout=20)
    try:
        connection.request("GET", path)
        got = connection.getresponse()
        return got.status, got.read().decode()
    finally:
        connection.close()


def leads(fleet: Fleet) -> bool:
    """Whether the one that runs here says that it is the one that acts."""
    return "\ngitops_agent_leader 1.0" in answer(fleet, "/metrics")[1]


def stands_by(fleet: Fleet, leader: str) -> bool:
    """Whether the one that runs here stands by for another, whose name has a part of chance at its end."""
    status, said = answer(fleet, "/readyz")
    return status == 200 and re.fullmatch(rf"standby: {leader}_[0-9a-f]{{8}} leads\n", said) is not None
