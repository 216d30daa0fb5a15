"""Before the first start: what already runs the command by somebody else's hand is in the way, not overlooked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import ObserveRequest
from gitops_agent.drivers.process import DRIVER
from gitops_agent.errors import ObserveError
from gitops_agent.model.agent import Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.plan import Class, Verb
from gitops_agent.observe.observer import ask_drivers as observe
from gitops_agent.support.bounded_calls import BoundedCalls
from tests.drivers.conftest import BOT, SLEEP, Fleet, action, alive, kill, process_key, until
from tests.plan import make
from tests.support.plugins import connected

KEY = process_key(BOT)


@contextmanager
def by_hand(*command: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, **{"start_new_session": True, **options}) as child:
        try:
            yield child
        finally:
            kill(child.pid)


def claimed(fleet: Fleet, fields: Fields) -> list[Observation]:
    claims = {KEY: Resource(KEY, DRIVER, fields)}
    seen = fleet.driver.observe(ObserveRequest(frozenset({BOT}), fleet.bases, claims))
    return [one for one in seen if one.key == KEY]


def in_the_way(fleet: Fleet, fields: Fields) -> Observation:
    (seen,) = until(lambda: claimed(fleet, fields))
    assert (seen.owner, seen.reason) == (Owner.NONE, "NotMarked")
    return seen  # type: ignore[no-any-return]


def test_a_claim_with_nothing_in_its_way_says_nothing(fleet: Fleet, tmp_path: Path) -> None:
    assert claimed(fleet, fleet.fields(*SLEEP, workdir=str(tmp_path))) == []
    with by_hand(*SLEEP, cwd=Path(__file__).parent), by_hand("sleep", "299", cwd=tmp_path):
        assert claimed(fleet, fleet.fields(*SLEEP, workdir=str(tmp_path))) == []


def test_a_stopped_agent_claims_nothing(fleet: Fleet, tmp_path: Path) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path), spec={"lifecycle": "Stopped"})
    with by_hand(*SLEEP, cwd=tmp_path):
        assert claimed(fleet, fields) == []


@pytest.mark.parametrize("leads_a_session", [True, False])
def test_an_unmarked_copy_is_seen_before_the_first_create(
    fleet: Fleet, tmp_path: Path, leads_a_session: bool
) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path))
    with by_hand(*SLEEP, cwd=tmp_path, start_new_session=leads_a_session) as foreign:
        seen = in_the_way(fleet, fields)
        assert seen.live["foreign"] == [foreign.pid]
        # A plan from before it was there does not pass the precheck, and nothing starts.
        assert not fleet.driver.unchanged(action(KEY, Verb.CREATE, desired=fields))
        assert fleet.marked() == []
        assert alive(foreign.pid)


@pytest.mark.parametrize("leads_a_session", [True, False])
def test_an_adopted_copy_makes_place_for_one_that_is_marked(
    fleet: Fleet, tmp_path: Path, leads_a_session: bool
) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path))
    with by_hand(*SLEEP, cwd=tmp_path, start_new_session=leads_a_session) as foreign:
        seen = in_the_way(fleet, fields)
        step = action(KEY, Verb.UPDATE, desired=fields, seen=seen)
        assert fleet.driver.unchanged(step)
        fleet.driver.apply(step, "intent")
        assert foreign.wait(10) == -signal.SIGTERM
        assert len(fleet.pids()) == len(fleet.marked()) == 1
        # The same intent again, after a crash before its outcome: still one copy.
        fleet.restart()
        fleet.driver.apply(step, "intent")
        assert len(fleet.marked()) == 1


@pytest.mark.parametrize("adopt", [True, False])
def test_the_plan_touches_it_only_where_git_says_adopt(fleet: Fleet, tmp_path: Path, adopt: bool) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path))
    declared = make.agent(str(BOT), (Resource(KEY, DRIVER, fields, restart_on=("spec",)),), adopt=adopt)
    with by_hand(*SLEEP, cwd=tmp_path) as foreign:
        seen = in_the_way(fleet, fields)
        planned = make.plan(make.snapshot([declared]), [seen], now=seen.observed_at)
        (planned_action,) = planned.actions
        assert planned_action.drift_class is Class.UNSAFE_AMBIGUITY
        for step in planned.allowed:
            assert fleet.driver.unchanged(step)
            fleet.driver.apply(step, "intent")
        assert alive(foreign.pid) is not adopt
        assert len(fleet.marked()) == (1 if adopt else 0)


def test_what_is_no_longer_in_the_way_is_not_ended(fleet: Fleet, tmp_path: Path) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path))
    with by_hand(*SLEEP, cwd=tmp_path) as foreign:
        seen = in_the_way(fleet, fields)
        step = action(KEY, Verb.DELETE, seen=seen)
        innocent = type(step)(**{**{name: getattr(step, name) for name in step.__slots__}, "live": None})
        fleet.driver.apply(innocent, "intent")
        assert alive(foreign.pid)


def test_of_a_foreign_tree_the_top_is_named_and_all_of_it_ends(fleet: Fleet, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import os, signal, time\nif os.fork() == 0:\n    time.sleep(300)\nprint('up', flush=True)\nos.wait()\n"
    )
    command = (sys.executable, str(script))
    fields = fleet.fields(*command, workdir=str(tmp_path))
    with by_hand(*command, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=False) as foreign:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == b"up\n"
        seen = in_the_way(fleet, fields)
        assert seen.live["foreign"] == [foreign.pid]
        (worker,) = _children(foreign.pid)
        fleet.driver.apply(action(KEY, Verb.UPDATE, desired=fields, seen=seen), "intent")
        assert not alive(foreign.pid)
        assert not alive(worker)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_through_a_link_and_in_a_lost_folder_it_is_still_the_same_place(fleet: Fleet, tmp_path: Path) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    place.mkdir()
    link.symlink_to(place)
    with by_hand(*SLEEP, cwd=place) as foreign:
        assert in_the_way(fleet, fleet.fields(*SLEEP, workdir=str(link))).live["foreign"] == [foreign.pid]
        shutil.rmtree(place)
        place.mkdir()
        assert in_the_way(fleet, fleet.fields(*SLEEP, workdir=str(place))).live["foreign"] == [foreign.pid]


def test_our_own_replica_is_never_a_lookalike(fleet: Fleet, tmp_path: Path) -> None:
    """Two agents may share command and folder; one that runs is not in the way of one to come."""
    other = BOT._replace(name="other")
    fleet.run(*SLEEP, workdir=str(tmp_path), agent=other)
    assert claimed(fleet, fleet.fields(*SLEEP, workdir=str(tmp_path))) == []


def test_a_child_that_dropped_its_marks_belongs_to_its_replica(fleet: Fleet, tmp_path: Path) -> None:
    other = BOT._replace(name="other")
    fleet.run("sh", "-c", f"env -i {shutil.which('sleep')} 300 & wait", workdir=str(tmp_path), agent=other)
    (pid,) = fleet.pids(other)
    (child,) = until(lambda: [each for each in _children(pid) if b"env" not in _line(each).split(b"\0")[0]])
    try:
        assert claimed(fleet, fleet.fields(str(shutil.which("sleep")), "300", workdir=str(tmp_path))) == []
    finally:
        kill(child)  # without marks the fleet does not find it


def _line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_claims_of_ours_that_run_are_reported_as_ours(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    fleet.bases.clear()
    (seen,) = claimed(fleet, fields)
    assert (seen.owner, seen.reason) == (Owner.OURS, None)


def test_the_question_to_all_drivers_carries_the_claims(fleet: Fleet, tmp_path: Path) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path))
    claims = {KEY: Resource(KEY, DRIVER, fields)}
    with ThreadPoolExecutor(1) as pool, by_hand(*SLEEP, cwd=tmp_path) as foreign:
        in_the_way(fleet, fields)
        observed = observe(
            connected({"process": fleet.driver}), frozenset({BOT}), {}, BoundedCalls(pool), claims.values()
        )
        assert observed.seen[KEY].live["foreign"] == [foreign.pid]


def test_a_blind_look_at_strangers_is_an_error(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = fleet.fields(*SLEEP, workdir=str(tmp_path))
    real = os.open

    def broken(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("/cmdline"):
            raise OSError(24, "Too many open files")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", broken)
    with pytest.raises(ObserveError, match="Too many open files"):
        claimed(fleet, fields)
