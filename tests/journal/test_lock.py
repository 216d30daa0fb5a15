"""One once or run per state directory, and never longer than it lives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from gitops_agent.errors import LockHeld, UsageError
from gitops_agent.journal.lock import state_lock

HOLDER = """
import subprocess, sys
from pathlib import Path
from gitops_agent.journal.lock import state_lock
with state_lock(Path(sys.argv[1])):
    agent = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], close_fds=False)
    print(agent.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def hold(state: Path) -> tuple[subprocess.Popen[str], int]:
    """Another process that holds the lock and has started an agent."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def test_a_second_process_is_told_who_holds_it(state: Path) -> None:
    holder, _ = hold(state)
    with holder:
        with pytest.raises(LockHeld) as caught, state_lock(state):
            pass
        assert f"pid {holder.pid} on {socket.gethostname()}, since 2" in caught.value.message
        assert str(state) in caught.value.message
        assert "--state-dir" in caught.value.hint
        assert caught.value.exit_code == 2
        holder.communicate("\n")
    with state_lock(state):
        pass


def test_a_killed_holder_holds_nothing_even_while_its_agents_live(state: Path) -> None:
    holder, agent = hold(state)
    with holder:
        holder.kill()
        holder.wait()
        # The agent lives on: it reads from the pipe that we hold open, which it has inherited.
        assert psutil.Process(agent).status() != psutil.STATUS_ZOMBIE
        with state_lock(state):
            pass


@pytest.mark.unit
def test_within_one_process_too(state: Path) -> None:
    with state_lock(state):
        with pytest.raises(LockHeld, match=f"pid {os.getpid()} on"), state_lock(state):
            pass
        with pytest.raises(LockHeld), state_lock(state):
            pass
    with state_lock(state):
        pass


@pytest.mark.unit
def test_an_error_inside_releases_it(state: Path) -> None:
    with pytest.raises(RuntimeError), state_lock(state):
        raise RuntimeError
    with state_lock(state):
        pass


@pytest.mark.unit
def test_a_directory_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be used") as caught, state_lock(tmp_path / "state"):
        pass
    assert "--state-dir" in caught.value.hint


@pytest.mark.unit
def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(UsageError, match="cannot be locked"), state_lock(tmp_path):
        pass
    assert victim.read_text() == "precious"


KILLED_WHILE_STARTING = """
import os, signal, sys
from pathlib import Path
from gitops_agent.journal.lock import state_lock
with state_lock(Path(sys.argv[1])):
    if os.fork() == 0:  # as far as a start has got: not yet the program
        os.write(1, b"started\\n")
        sys.stdin.read()
        os._exit(0)
    signal.pause()
"""


def test_what_a_killed_holder_was_starting_is_waited_for(state: Path) -> None:
    words = [sys.executable, "-c", KILLED_WHILE_STARTING, str(state)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "started\n"
        with pytest.raises(LockHeld), state_lock(state):
            pass
        holder.kill()
        os.waitpid(holder.pid, 0)
        soon = threading.Timer(0.2, holder.stdin.close)
        soon.start()
        with state_lock(state):
            pass
        soon.join()
