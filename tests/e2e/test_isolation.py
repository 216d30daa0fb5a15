"""What hangs, hangs alone: the rest of the fleet, operators and the end of the daemon do not wait for it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.support.fleet import Fleet, until
from tests.support.git_servers import http_server

HANGS = {"exec": {"command": ["sleep", "3600"]}, "period": "1s", "timeout": "1m"}
BOUNDED_SECONDS = 40
"""How long the end of a daemon may take, on a busy machine; each of the things that hang here takes longer."""


def sleepers(fleet: Fleet) -> list[int]:
    """The probes and hooks of the fleet that hang."""
    return [pid for pid in fleet.pids() if b"3600" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_probe_that_hangs_holds_up_nothing(fleet: Fleet) -> None:
    bad = fleet.agent("bad", probes={"liveness": HANGS, "readiness": HANGS})
    fleet.commit({"bad.yaml": bad, **fleet.agents("a", "b")})
    with fleet.running() as daemon:
        until(lambda: fleet.pids("a") and fleet.pids("b") and len(sleepers(fleet)) == 2, "the probes hang")
        lost = fleet.kill("a")
        until(lambda: fleet.pids("a") not in ([], [lost]), "a is repaired")
        fleet.commit({"c.yaml": fleet.agent("c")})
        until(lambda: fleet.pids("c"), "a commit is followed")
        ready = fleet.condition(fleet.status(), "bad")
        assert ready is not None
        assert (ready["status"], ready["reason"]) == (False, "NotLiveYet")

        fleet.call("freeze", "--reason", "stop")
        fleet.kill("b")
        until(lambda: fleet.condition(fleet.status(), "b", "Frozen"), "what died stays down")
        assert fleet.pids("b") == []

        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(BOUNDED_SECONDS) == 0
    assert sleepers(fleet) == [], "probes end with us"
    assert len(fleet.pids()) == 3, "agents do not"


def test_the_end_does_not_wait_for_a_hook_that_hangs(fleet: Fleet, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    hook = {"command": ["sh", "-c", f"echo called >> {diary}; sleep 3600"], "timeout": "1h"}
    fleet.commit({"bad.yaml": fleet.agent("bad", hooks={"onProvisioned": hook}), **fleet.agents("a")})
    with fleet.running() as daemon:
        until(diary.exists, "the hook is called")
        lost = fleet.kill("a")
        until(lambda: fleet.pids("a") not in ([], [lost]), "a is repaired")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(BOUNDED_SECONDS) == 0
    assert "waiting for what is under way" in fleet.daemon_log()
    assert f"{fleet.key('bad')}:hook/onProvisioned" in fleet.daemon_log()
    assert sleepers(fleet) == [], "a hook that nothing watches any more is ended"
    stalled = fleet.condition(fleet.once(code=5), "bad", "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "HookUnknown"
    assert diary.read_text().splitlines() == ["called"], "never twice"


def test_once_says_what_it_waits_for_and_a_second_signal_waits_for_nothing(fleet: Fleet, tmp_path: Path) -> None:
    called, err = tmp_path / "called", tmp_path / "err"
    hook = {"command": ["sh", "-c", f"touch {called}; sleep 3600"], "timeout": "1h"}
    fleet.commit(fleet.agents("bad", hooks={"onProvisioned": hook}))
    words = fleet.command("once")[3:]
    once = fleet._launcher.start(words, fleet.work, fleet.environment, (tmp_path / "out", err))
    until(called.exists, "the hook is called")
    once.send_signal(signal.SIGTERM)
    until(lambda: "waiting for what is under way" in err.read_text(), "it says what it waits for")
    assert f"{fleet.key('bad')}:hook/onProvisioned" in err.read_text()
    once.send_signal(signal.SIGTERM)
    assert once.wait(BOUNDED_SECONDS) == 130
    assert sleepers(fleet) == []


def slow_forge(fleet: Fleet, tmp_path: Path) -> tuple[Path, Path]:
    """The remote takes what developers push at once, and what comes over http (ours) only when a file is there:
    the refs that wait, and that file."""
    waiting, let_go = tmp_path / "waiting", tmp_path / "let-go"
    hook = fleet.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f'#!/bin/sh\n[ -z "$REMOTE_USER" ] && exit 0\ncat >> {waiting}\n'
        f"while [ ! -e {let_go} ]; do sleep 0.1; done\n"
    )
    hook.chmod(0o755)
    waiting.touch()
    return waiting, let_go


def test_a_remote_that_takes_no_push_for_long_holds_up_nothing(fleet: Fleet, tmp_path: Path) -> None:
    waiting, let_go = slow_forge(fleet, tmp_path)
    policy = fleet.policy(rollout={"onFailure": "Revert"})
    with http_server(fleet.bare.parent) as server:
        fleet.repo = server.url(fleet.bare.name)
        fleet.commit({"policy.yaml": policy, **fleet.agents("a", "b")})
        try:
            with fleet.running(GITOPS_AGENT_POLL_INTERVAL="200ms"):
                until(lambda: "refs/notes/" in waiting.read_text(), "the push of a note hangs")
                good = fleet.commit(fleet.agents("c"), "Followed meanwhile")
                fleet.await_phase(good, "Converged")

                dies = fleet.agent("b", "false", rollout={"healthTimeout": "1s"})
                bad = fleet.commit({"b.yaml": dies}, "Never Ready")
                until(lambda: "refs/heads/main" in waiting.read_text(), "the push of the revert hangs")
                lost = fleet.kill("a")
                until(lambda: fleet.pids("a") not in ([], [lost]), "a is repaired meanwhile")
                assert "refs/heads/main" in waiting.read_text()
                assert fleet.git("ls-remote", "origin", "refs/heads/main").split()[0] == bad

                let_go.touch()
                until(lambda: fleet.status()["commit"] not in (good, bad), "the revert is in force")
                until(lambda: fleet.note(bad).startswith(f"{fleet.instance}: Degraded"), "notes arrive")
        finally:
            let_go.touch()


def test_a_state_directory_that_is_deleted_is_noticed_and_nothing_runs_twice(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        before = fleet.pids()
        gone = fleet.state.rename(fleet.state.with_name("gone"))  # at once, since the daemon writes meanwhile
        shutil.rmtree(gone, ignore_errors=True)
        fleet.await_phase(fleet.head(), "Converged")
        assert "the state directory was deleted or replaced" in fleet.daemon_log()
        assert fleet.pids() == before, "what runs is adopted"

        fleet.call("freeze", "--reason", "reaches the daemon")
        fleet.kill("a")
        until(lambda: fleet.condition(fleet.status(), "a", "Frozen"), "the freeze is obeyed")
        fleet.call("unfreeze", "--reason", "go on")
        until(lambda: fleet.pids("a"), "and repairs go on")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(BOUNDED_SECONDS) == 0
