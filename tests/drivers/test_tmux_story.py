"""An agent in tmux through the command line: from its commit to its end, with what people need to attach."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet, Json


class TmuxFleet(Fleet):
    def tmux(self, *command: str) -> list[str]:
        name = f"gitops-agent-{self.instance}"
        done = subprocess.run(["tmux", "-L", name, *command], capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    def end(self) -> None:
        super().end()
        self.tmux("kill-server")
        Path(f"/tmp/tmux-{os.geteuid()}/gitops-agent-{self.instance}").unlink(missing_ok=True)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[TmuxFleet]:
    fleet = TmuxFleet(tmp_path)
    yield fleet
    fleet.end()


def live(fleet: Fleet, answer: Json) -> Json:
    resources: list[Json] = fleet.row(answer, "a")["resources"]
    return next(each["live"] for each in resources if "attach" in each.get("live", {}))


def test_the_life_of_an_agent_in_tmux(fleet: TmuxFleet) -> None:
    script = 'head -c 20 "$MANAGED_AGENT_CONFIG"; echo; exec sleep 600'
    spec: dict[str, Any] = {"instructions": "Be kind.", "probes": {"liveness": {"exec": {"command": ["true"]}}}}
    runtime = {"driver": "tmux", "replicas": 2}
    fleet.commit(
        {"a.yaml": fleet.agent("a", "sh", "-c", script, runtime=runtime, **spec), "b.yaml": fleet.agent("b")}
    )
    answer = fleet.once()
    assert (fleet.condition(answer, "a") or {})["status"] is True
    attach = shlex.split(live(fleet, answer)["attach"])
    assert attach[3:] == ["attach", "-t", fleet.key("a")]
    assert Path(attach[2]).is_socket()
    assert "{" in fleet.call("logs", fleet.key("a")).out

    before = fleet.pids("a")
    shutil.rmtree(fleet.state)
    fleet.once()
    assert fleet.pids("a") == before, "found by its marks, and started by none"

    fleet.tmux("kill-server")
    fleet.once()
    assert len(fleet.pids("a")) == 2
    assert not set(fleet.pids("a")) & set(before)

    changed = json.loads(fleet.agent("a", "sleep", "601", runtime={"driver": "tmux"}))
    fleet.commit({"a.yaml": json.dumps(changed)})
    fleet.once()
    (runner,) = fleet.marked("a", runners=True).keys() - fleet.marked("a").keys()
    assert fleet.tmux("list-panes", "-a", "-F", "#{pane_pid}") == [str(runner)]

    fleet.commit({"a.yaml": None})
    fleet.once()
    assert fleet.pids("a") == []
    assert fleet.tmux("list-panes", "-a") == []
    assert len(fleet.pids("b")) == 1
