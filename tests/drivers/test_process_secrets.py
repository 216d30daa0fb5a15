"""A secret file that does not answer, as on a dead mount, concerns its own agent alone.

No mount that hangs can be had in a test, so the one function that opens such a file is made to wait.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.local import secret_files
from gitops_agent.drivers.local.secret_files import MAX_HANGING_LOOKS, MAX_READS, SecretFiles
from gitops_agent.errors import ApplyError
from gitops_agent.model.fields import Fields
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, SLEEP, Fleet, alive, kill, until

OTHER = BOT._replace(name="other")
OBSERVE_SECONDS = 10.0  # then a driver counts as unreachable


class DeadMount:
    """Files below a folder whose reads hang from ``die`` to ``revive``."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.reads = 0
        self._alive = threading.Event()
        self._alive.set()
        self._real = secret_files.read_regular
        self.die, self.revive = self._alive.clear, self._alive.set
        patch.setattr(secret_files, "read_regular", self._read)

    def _read(self, name: str, cap: int, **flags: Any) -> Any:
        if name.startswith(f"{self.root}/"):
            self.reads += 1
            self._alive.wait()
        return self._real(name, cap, **flags)

    def secret(self, name: str, value: str = "first") -> str:
        self.root.mkdir(exist_ok=True)
        (self.root / name).write_text(value)
        return str(self.root / name)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadMount]:
    mount = DeadMount(tmp_path / "mount", monkeypatch)
    yield mount
    mount.revive()


def given(path: str) -> list[dict[str, Any]]:
    return [{"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "file", "name": path}}}]


def quickly(work: Callable[[], Any]) -> Any:
    began = time.monotonic()
    done = work()
    assert time.monotonic() - began < OBSERVE_SECONDS
    return done


def test_the_others_are_observed_and_repaired(fleet: Fleet, mount: DeadMount) -> None:
    path = mount.secret("token")
    fleet.run(*SLEEP, env=given(path))
    other = fleet.run(*SLEEP, agent=OTHER)
    (pid,) = fleet.pids(OTHER)
    mount.secret("token", "second")
    mount.die()
    kill(pid)
    until(lambda: not alive(pid))
    seen = quickly(lambda: {one.key.agent: one for one in fleet.driver.observe(fleet.request(BOT, OTHER))})
    assert seen[BOT].reason is None, "what cannot be read is not taken to be rotated"
    assert seen[OTHER].fields is None
    fleet.apply(other, Verb.CREATE, OTHER)
    assert len(fleet.pids(OTHER)) == 1

    asked = mount.reads
    fleet.look()
    assert mount.reads == asked, "it is not asked again until it answers"
    mount.revive()
    until(lambda: fleet.look().reason == "SecretRotated")


def test_a_start_says_what_does_not_answer_and_stops_nothing(
    fleet: Fleet, mount: DeadMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "START_SECONDS", 0.1)
    path = mount.secret("token")
    fields = fleet.run(*SLEEP, env=given(path))
    before = fleet.pids()
    mount.die()
    with pytest.raises(
        ApplyError, match=rf"the secret file:{path} cannot be used: it has not answered for \d s"
    ) as told:
        fleet.apply(fields, Verb.RESTART)
    assert not told.value.permanent
    assert fleet.pids() == before
    mount.revive()
    until(lambda: _restarts(fleet, fields))
    assert fleet.pids() != before


def _restarts(fleet: Fleet, fields: Fields) -> bool:
    try:
        fleet.apply(fields, Verb.RESTART)
    except ApplyError:
        return False  # the read that hung has not ended yet
    return True


def test_a_mount_with_many_secrets_keeps_no_observation_from_ending(mount: DeadMount, tmp_path: Path) -> None:
    files = SecretFiles()
    mount.die()

    def look_at_all() -> None:
        for number in range(1000):
            with pytest.raises(OSError, match="answer"):
                files.look(mount.secret(str(number)))

    quickly(look_at_all)
    assert mount.reads == MAX_HANGING_LOOKS < MAX_READS
    healthy = tmp_path / "healthy"
    healthy.write_text("value")
    assert files.read(str(healthy)) == b"value", "others can still be started"


def test_a_start_can_read_its_secrets_however_many_others_hang(
    fleet: Fleet, mount: DeadMount, tmp_path: Path
) -> None:
    files, healthy = fleet.driver._context.environment._files, tmp_path / "healthy"
    healthy.write_text("value")
    mount.die()
    with ThreadPoolExecutor(100) as starts:
        failing = [starts.submit(files.read, mount.secret(str(number))) for number in range(100)]
        assert all(isinstance(each.exception(), OSError) for each in failing)
    assert mount.reads == 100, "each was asked"
    fleet.run(*SLEEP, env=given(str(healthy)))
    assert len(fleet.pids()) == 1


def test_a_late_answer_is_not_taken_for_the_value_of_now(mount: DeadMount) -> None:
    files, path = SecretFiles(), mount.secret("token")
    mount.die()
    with pytest.raises(OSError, match="has not answered"):
        files.look(path)
    mount.revive()
    until(lambda: files._reads[path].data.done())
    mount.secret("token", "second")
    assert files.look(path) == b"second"


@pytest.mark.unit
def test_a_pipe_is_refused_and_hangs_no_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        SecretFiles().look(str(tmp_path / "pipe"))
