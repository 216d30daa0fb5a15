"""Each agent of the example fleet really starts, beats, follows its instructions, and ends when asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent_demo.agents.capacity_bot import verdict
from gitops_agent_demo.agents.digest_bot import shorten
from gitops_agent_demo.agents.rules import first_number
from gitops_agent_demo.agents.support_bot import answer
from gitops_agent_demo.agents.triage_bot import queues, triage
from tests.examples.fleet import EXAMPLE, STARTER, agents, free_port, get, started, until

FLEET = agents(EXAMPLE)
LISTENING = {"acme/crm-bot", "acme/support-bot"}


@pytest.mark.parametrize("key", FLEET)
def test_starts_beats_and_ends_on_sigterm(key: str, tmp_path: Path) -> None:
    port = free_port()
    with started(key, tmp_path, PORT=str(port), PACE="0.1") as agent:
        first = until(agent.beat, "a first heartbeat")
        until(lambda: agent.beat() != first, "a second heartbeat")
        if key in LISTENING:
            assert until(lambda: get(port, "/readyz"), "ready") == "ready"
        assert agent.process.poll() is None
        assert agent.stop() == 0
    assert agent.said("leaving")


def test_support_bot_answers_from_its_instructions_and_asks_crm_bot(tmp_path: Path) -> None:
    crm_port, port = free_port(), free_port()
    crm_home, home = tmp_path / "crm", tmp_path / "support"
    crm_home.mkdir()
    home.mkdir()
    where = f"http://127.0.0.1:{crm_port}"
    with (
        started("acme/crm-bot", crm_home, PORT=str(crm_port)),
        started("acme/support-bot", home, PORT=str(port), CRM_URL=where) as support,
    ):
        until(lambda: get(crm_port, "/readyz"), "crm-bot ready")
        reply = until(lambda: get(port, "/ask?q=a+refund+please&name=Ada"), "an answer")
        assert reply == {"answer": "A refund is possible within 30 days of the purchase.", "plan": "gold"}
        support.tell("There is never a refund.")
        assert get(port, "/ask?q=a+refund+please") == {"answer": "There is never a refund."}


def test_an_unreachable_crm_bot_is_not_the_end_of_support_bot(tmp_path: Path) -> None:
    port = free_port()
    with started("acme/support-bot", tmp_path, PORT=str(port), CRM_URL=f"http://127.0.0.1:{free_port()}"):
        reply = until(lambda: get(port, "/ask?q=delivery&name=ada"), "an answer")
    assert reply["plan"] == "unknown"


def test_triage_bot_takes_new_rules_without_a_restart(tmp_path: Path) -> None:
    with started("globex/triage-bot", tmp_path) as agent:
        until(lambda: agent.said("rules read: urgent, billing"), "the first rules")
        agent.tell("typos: typo")
        until(lambda: agent.said("rules changed: typos"), "the new rules")
        assert agent.process.poll() is None


@pytest.mark.parametrize(("heartbeat", "code"), [("fresh", 0), ("old", 1), ("missing", 1)])
def test_the_exec_probe_judges_the_heartbeat(heartbeat: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "heartbeat"
    if heartbeat != "missing":
        file.touch()
    if heartbeat == "old":
        os.utime(file, (1, 1))
    _, document = FLEET["initech/capacity-bot"]
    _, *arguments = document["spec"]["probes"]["liveness"]["exec"]["command"]
    environment = {"PATH": os.environ["PATH"], "MANAGED_AGENT_HEARTBEAT": str(file)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, b"")


def test_the_starter_agent_says_its_instructions(tmp_path: Path) -> None:
    _, document = agents(STARTER)["demo/hello"]
    bundle = tmp_path / "bundle.json"
    bundle.write_text(json.dumps({"instructions": document["spec"]["instructions"]}), encoding="utf-8")
    _, *arguments = document["spec"]["runtime"]["command"]
    environment = {"GREETING": "hello:", "MANAGED_AGENT_CONFIG": str(bundle)}
    with subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        bundle.unlink()
        again = process.stdout.readline()
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM
    assert line == again == b"hello: I was declared in Git.\n"


@pytest.mark.parametrize("key", ["acme/support-bot", "globex/triage-bot"])
def test_an_agent_that_reads_its_bundle_anew_survives_its_loss(key: str, tmp_path: Path) -> None:
    home = tmp_path / "state"
    home.mkdir()

    def beyond(turn: int) -> int:
        now = json.loads(agent.beat() or b'{"turn": 0}')["turn"]
        return int(now) if now > turn else 0

    with started(key, home, PORT=str(free_port()), PACE="0.1") as agent:
        turn = until(lambda: beyond(1), "a first turn")
        home.rename(tmp_path / "lost")
        until(lambda: beyond(turn + 1), "more turns")
        assert agent.process.poll() is None


@pytest.mark.unit
@given(st.text(), st.text())
def test_rules_of_any_form_never_break_an_answer(question: str, rules: str) -> None:
    assert isinstance(answer(question, rules), str)
    assert triage(question, rules) in {*queues(rules), "later"}
    assert first_number(rules, default=7) >= 0


@pytest.mark.unit
@given(st.text(), st.integers(min_value=0, max_value=50))
def test_a_digest_is_never_longer_than_allowed(message: str, limit: int) -> None:
    assert len(shorten(message, limit).removesuffix(" …").split()) <= limit


@pytest.mark.unit
def test_a_full_disk_is_worth_a_warning() -> None:
    assert "WARNING" in verdict(free=5, total=100, limit=10)
    assert "WARNING" not in verdict(free=50, total=100, limit=10)
