"""A real agent moves from process to tmux and back: never a moment without it, never twice where that is asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.drivers.test_tmux_story import TmuxFleet
from tests.support.fleet import Fleet, alive, signal_pid, until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
NEVER_READY: dict[str, Any] = {
    "probes": {"readiness": {"exec": {"command": ["false"]}, "period": "1s"}},
    "rollout": {"healthTimeout": "3s"},
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[TmuxFleet]:
    fleet = TmuxFleet(tmp_path)
    yield fleet
    fleet.end()


def at(fleet: Fleet) -> dict[str, int]:
    """Where the agent runs, each with its pid. What is in one answer ran at one moment: a process is listed first,
    and found alive later."""
    return {marks.get("MANAGED_AGENT_DRIVER", "process"): pid for pid, marks in fleet.marked("a").items()}


@contextmanager
def watched(fleet: Fleet) -> Iterator[list[set[str]]]:
    """Where the agent ran, looked at without a pause while the block runs; looked at once at its end."""
    seen: list[set[str]] = []
    over = Event()

    def look() -> None:
        while not over.is_set():
            seen.append(set(at(fleet)))
        seen.append(set(at(fleet)))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def place(fleet: Fleet, driver: str, *, exclusive: bool = False, **spec: Any) -> str:
    runtime = {"driver": driver, **({"exclusive": True} if exclusive else {})}
    return fleet.commit({"a.yaml": fleet.agent("a", "sh", "-c", "exec sleep 600", runtime=runtime, **spec)})


def waits(fleet: Fleet) -> bool:
    """Whether it is Ready in the new place and the old one waits."""
    status = fleet.status()
    ready, moving = (fleet.condition(status, "a", kind) or {} for kind in ("Ready", "Reconciling"))
    return bool(ready.get("status")) and moving.get("reason") == "HandoverWaits"


def test_there_and_back_without_a_moment_without_it(fleet: TmuxFleet) -> None:
    place(fleet, "process")
    fleet.once()
    with watched(fleet) as seen:
        place(fleet, "tmux")
        plan = fleet.ask("plan")
        assert [each["verb"] for each in plan["actions"]] == ["create", "delete"]
        assert "runs on process until the one on tmux is ready" in fleet.call("plan").out
        fleet.once()
        assert set(at(fleet)) == {"tmux"}, "once ends when the old one is gone"
        place(fleet, "process")
        fleet.once()
    assert all(seen), "there was a moment without it"
    assert {"process", "tmux"} in seen, "the watch is too slow to prove anything"
    assert seen[-1] == {"process"}
    assert fleet.tmux("list-panes", "-a") == []
    assert fleet.ask("plan")["actions"] == []


def test_an_exclusive_one_never_runs_twice(fleet: TmuxFleet) -> None:
    place(fleet, "process", exclusive=True)
    fleet.once()
    with watched(fleet) as seen:
        place(fleet, "tmux", exclusive=True)
        fleet.once()
        assert set(at(fleet)) == {"tmux"}
        place(fleet, "process", exclusive=True)
        fleet.once()
    assert all(len(each) <= 1 for each in seen)
    assert seen[-1] == {"process"}


def test_a_move_that_fails_leaves_the_old_one_and_a_revert_ends_the_new_one(fleet: TmuxFleet) -> None:
    place(fleet, "process")
    fleet.once()
    before = at(fleet)
    place(fleet, "tmux", **NEVER_READY)
    with watched(fleet) as seen:
        answer = fleet.once(code=5)
        assert answer["phase"] == "Degraded"
        assert at(fleet).keys() == {"process", "tmux"}
        assert "Runs on process until the one on tmux is ready." in fleet.call("explain", "a").out
        fleet.revert("HEAD")
        fleet.once()
    assert at(fleet) == before, "the same process, which was never touched"
    assert all("process" in each for each in seen)


def test_killed_in_the_middle_it_goes_on_and_nothing_runs_twice(fleet: TmuxFleet) -> None:
    rollout = {"rollout": {"bake": "2s"}}
    fleet.commit({"policy.yaml": fleet.policy(**rollout), "a.yaml": fleet.agent("a")})
    fleet.once()
    with watched(fleet) as seen:
        with fleet.running() as daemon:
            sha = fleet.commit({"a.yaml": fleet.agent("a", runtime={"driver": "tmux"})})
            until(lambda: len(at(fleet)) == 2, "both run")
            daemon.kill()
            daemon.wait()
        both = at(fleet)
        assert both.keys() == {"process", "tmux"}, "agents outlive us"
        with fleet.running():
            fleet.await_phase(sha, "Converged")
    assert all(seen)
    assert at(fleet) == {"tmux": both["tmux"]}, "what was begun is gone on with"
    assert not alive(both["process"])


def test_what_an_agent_has_of_one_driver_is_not_that_of_the_other(fleet: TmuxFleet) -> None:
    beat = 'echo "{\\"at\\": $(date +%s)}" > "$MANAGED_AGENT_HEARTBEAT"; exec sleep 600'
    slow = {"rollout": {"bake": "1h"}}
    document = {"heartbeat": {"staleAfter": "1h"}}
    policy = {"policy.yaml": fleet.policy(**slow)}
    fleet.commit({**policy, "a.yaml": fleet.agent("a", "sh", "-c", beat, **document)})
    fleet.once()
    runtime = {"driver": "tmux", "replicas": 2}
    fleet.commit({"a.yaml": fleet.agent("a", "sh", "-c", beat, runtime=runtime, **document)})
    with fleet.running():
        until(lambda: len(fleet.pids("a")) == 3, "one here, two there")
        until(lambda: waits(fleet), "it is Ready there, and waits for the bake")
        files = sorted(each.name for each in fleet.folder("a").glob("heartbeat-*"))
        assert files == ["heartbeat-0.json", "heartbeat-tmux-0.json", "heartbeat-tmux-1.json"]
        # Its own death is noticed in each place, and is no business of the other.
        kept, gone = at(fleet)["process"], at(fleet)["tmux"]
        (sibling,) = set(fleet.pids("a")) - {kept, gone}
        signal_pid(gone)
        until(lambda: len(fleet.pids("a")) == 3 and not alive(gone), "started again")
        assert {kept, sibling} <= set(fleet.pids("a"))
