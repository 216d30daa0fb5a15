"""What ``run`` says of itself over HTTP, with the real command line, real agents, and loops that really die."""

from __future__ import annotations

import http.client
import json
import mmap
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.fleet import Fleet, until
from tests.support.launcher import Launched, Step

HERE = {"GITOPS_AGENT_LISTEN": "127.0.0.1:0"}
RESTLESS = {"GITOPS_AGENT_POLL_INTERVAL": "200ms", "GITOPS_AGENT_RESYNC_INTERVAL": "300ms"}

FAULTS = """
import threading
from pathlib import Path
from gitops_agent.pipeline import Pipeline
from gitops_agent.source.tracker import SourceTracker

fetch, run = SourceTracker.fetch, Pipeline.run

def dying(self):
    if Path({die!r}).exists():
        raise SystemExit  # not caught anywhere: the thread ends in silence
    return fetch(self)

def hanging(self, *arguments, **more):
    if Path({hang!r}).exists():
        threading.Event().wait()
    return run(self, *arguments, **more)

SourceTracker.fetch, Pipeline.run = dying, hanging
"""


class Voice:
    """One daemon, as it answers."""

    def __init__(self, fleet: Fleet, daemon: Launched) -> None:
        self.daemon = daemon
        self.where = until(lambda: _address(fleet), "an address is logged")

    def ask(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.where, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Every sample, by its name and labels as they are written."""
        _, text = self.ask("/metrics")
        return {
            sample.name + (f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str) -> float:
        return self.metrics()[name]

    def is_ready(self) -> bool:
        try:
            return self.ask("/readyz")[0] == 200
        except ConnectionRefusedError:
            return False

    def await_ready(self) -> None:
        until(self.is_ready, "ready")


def _address(fleet: Fleet) -> str | None:
    for line in reversed(fleet.daemon_log().splitlines()):
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "listening":
            return str(event["address"])
    return None


@contextmanager
def speaking(fleet: Fleet, first: Sequence[Step] = (), **environment: str) -> Iterator[Voice]:
    with fleet.running(first=first, **HERE, **environment) as daemon:
        yield Voice(fleet, daemon)


def faulty(fleet: Fleet) -> dict[str, Any]:
    """A world in which a poller dies once the file ``die`` exists, and a pass hangs once ``hang`` does."""
    folder = fleet.state.parent / "faults"
    folder.mkdir()
    text = FAULTS.format(die=str(folder / "die"), hang=str(folder / "hang"))
    (folder / "faults.py").write_text(text, encoding="utf-8")
    return {"first": [("runpy", "run_path", str(folder / "faults.py"))], "GITOPS_AGENT_LIVEZ_GRACE": "1s"}


def fault(fleet: Fleet, name: str) -> Path:
    return fleet.state.parent / "faults" / name


def test_a_killed_agent_is_counted_once_and_so_is_its_repair(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    with speaking(fleet) as voice:
        fleet.await_phase(fleet.head(), "Converged")
        until(lambda: voice.value("gitops_agent_commit_phase{Converged}") == 1, "the phase")
        before = voice.metrics()
        assert before["drift_detected_total{MissingExternal}"] == 0
        assert (before["gitops_agent_fleet_size"], before["gitops_agent_agents{Ready}"]) == (2, 2)
        assert before["mean_time_to_converge"] > 0
        assert before["gitops_agent_time_to_converge_seconds_count"] == 1
        assert before["gitops_agent_breaker_open{process}"] == 0

        fleet.kill("a")
        until(lambda: voice.value("drift_repaired_total{automatic}") == 1, "the repair is counted")
        until(lambda: fleet.row(fleet.status(), "a")["ready"], "a is back")
        after = voice.metrics()
        assert after["drift_detected_total{MissingExternal}"] == 1
        assert sum(value for name, value in after.items() if name.startswith("drift_detected_total{")) == 1
        assert after["repair_confidence_distribution_sum"] == 1, "one, and we were sure of it"
        assert after["gitops_agent_drift_standing{MissingExternal}"] == 0
        assert after["manual_patch_without_event_count"] == 0
        assert voice.ask("/livez") == (200, "ok\n")

        elsewhere = ("--instance", f"{fleet.instance}-2", "--state-dir", str(fleet.state) + "-2")
        again = fleet.call("run", *elsewhere, GITOPS_AGENT_LISTEN=voice.where)
        assert again.code == 2
        assert f"cannot listen on {voice.where}: something else listens there" in again.err
        assert "hint: give every run on a machine an address of its own" in again.err

        fleet.kill("b")
        until(lambda: voice.value("drift_repaired_total{automatic}") == 2, "the second repair is counted")
        voice.daemon.send_signal(signal.SIGTERM)
        assert voice.daemon.wait(20) == 0
    assert fleet.pids(), "agents outlive us"
    with fleet.running(GITOPS_AGENT_LISTEN=voice.where):
        # The same port at once, though agents live that we started while we listened on it.
        voice.await_ready()
        restarted = until(lambda: m if (m := voice.metrics())["gitops_agent_fleet_size"] else None)
        assert restarted["mean_time_to_converge"] == before["mean_time_to_converge"], "gauges survive a restart"
        assert restarted["drift_detected_total{MissingExternal}"] == 0


def test_detection_goes_on_while_frozen(fleet: Fleet) -> None:
    frozen = fleet.policy(freeze={"reason": "an audit of canary-7713"})
    fleet.commit(fleet.agents("a"))
    with speaking(fleet) as voice:
        fleet.await_phase(fleet.head(), "Converged")
        assert voice.value("gitops_agent_frozen{fleet}") == 0
        fleet.commit({"gitops-agent.yaml": frozen})
        until(lambda: voice.value("gitops_agent_frozen{fleet}") == 1, "frozen")
        assert "frozen: fleet\n" in voice.ask("/readyz")[1]
        fleet.kill("a")
        until(lambda: voice.value("drift_detected_total{MissingExternal}") == 1, "detected")
        values = voice.metrics()
        assert values["gitops_agent_drift_standing{MissingExternal}"] == 1
        assert values["drift_repaired_total{automatic}"] == 0
        assert values["gitops_agent_frozen{tenant}"] == 0
        assert voice.ask("/livez")[0] == 200
        assert "canary-7713" not in "".join(voice.ask(path)[1] for path in ("/metrics", "/readyz", "/livez"))
        assert fleet.tenant not in voice.ask("/metrics")[1], "no names in labels"

        fleet.commit({"gitops-agent.yaml": None})
        until(lambda: voice.value("drift_repaired_total{automatic}") == 1, "repaired")
        values = voice.metrics()
        assert values["gitops_agent_frozen{fleet}"] == 0
        assert values["drift_detected_total{MissingExternal}"] == 1, "it stood all the while"


def test_a_change_that_no_event_announced(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", instructions="Answer."))
    with speaking(fleet, **RESTLESS) as voice:
        fleet.await_phase(fleet.head(), "Converged")
        bundle = next(fleet.folder("a").glob("config*"))
        bundle = bundle if bundle.is_file() else next(path for path in bundle.rglob("*") if path.is_file())
        good = bundle.read_bytes()
        # Through memory: the kernel gives no event for that.
        with bundle.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[:] = good.replace(b"Answer.", b"Answar.")
        until(lambda: bundle.read_bytes() == good, "the bundle is put right")
        until(lambda: voice.value("manual_patch_without_event_count") == 1, "it is counted")
        assert voice.value("drift_detected_total{Conflicting}") == 1


def test_a_source_that_does_not_answer_leaves_us_alive_and_a_poller_that_died_does_not(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    away = fleet.bare.with_name("away.git")
    fleet.bare.rename(away)
    with speaking(fleet, **RESTLESS, **faulty(fleet)) as voice:
        until(lambda: "no valid commit" in voice.ask("/readyz")[1], "passes without a commit")
        assert voice.ask("/readyz")[0] == 503
        assert voice.ask("/livez")[0] == 200
        away.rename(fleet.bare)
        voice.await_ready()
        fleet.await_phase(fleet.head(), "Converged")
        fleet.bare.rename(away)
        until(lambda: "source: does not answer" in voice.ask("/readyz")[1], "the silence is said")
        assert (voice.ask("/livez")[0], voice.ask("/readyz")[0]) == (200, 200)
        away.rename(fleet.bare)
        until(lambda: "source: answers" in voice.ask("/readyz")[1], "the silence is over")

        fault(fleet, "die").touch()
        _, said = until(lambda: a if (a := voice.ask("/livez"))[0] == 503 else None, "red by itself")
        assert said == "polls: the thread that does it ended while asking the source\n"
        assert voice.ask("/readyz")[0] == 200, "what is known is still enforced"
        fleet.kill("a")
        until(lambda: voice.value("drift_repaired_total{automatic}") == 1, "and repaired")
        age = voice.value("gitops_agent_last_fetch_age_seconds")
        until(lambda: voice.value("gitops_agent_last_fetch_age_seconds") > age, "the age grows by itself")


def test_a_pass_that_hangs_turns_livez_red(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    with speaking(fleet, **RESTLESS, **faulty(fleet)) as voice:
        voice.await_ready()
        fault(fleet, "hang").touch()
        _, said = until(lambda: a if (a := voice.ask("/livez"))[0] == 503 else None, "red by itself")
        assert said.startswith("passes: running a pass for "), said
        age = voice.value("gitops_agent_last_pass_age_seconds")
        until(lambda: voice.value("gitops_agent_last_pass_age_seconds") > age, "the age grows by itself")
        voice.daemon.kill()
