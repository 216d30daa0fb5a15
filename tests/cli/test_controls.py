"""What operators say is checked, written once, and answered in words: freeze, unfreeze, approve, retry."""

from __future__ import annotations

import json
import os
import pwd
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gitops_agent.cli.app import app
from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.errors import UsageError
from gitops_agent.journal.control_watch import ControlWatcher
from gitops_agent.journal.lock import holder, state_lock
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb, freezes
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.plan import Decision, Plan
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import RolloutState
from gitops_agent.model.status import Phase
from gitops_agent.testing.clock import FrozenClock
from tests.journal.values import a_commit, a_plan, a_status, an_action, with_head, with_records, with_statuses
from tests.support.fast_disk import fast_disk

__all__ = ["fast_disk"]
OLD, NEW = "0a" * 20, "0b" * 20
WAITS, OTHER, GONE = "f00dfeed" * 4, "f00dcafe" * 4, "deadbeef" * 4


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def journal(tmp_path: Path, clock: FrozenClock) -> Iterator[SqlJournal]:
    """Something in force, and a newer commit whose plan waits."""
    now = clock.now()
    with open_journal(tmp_path) as journal:
        records = (a_commit(OLD, 1, finished_at=now - 60), a_commit(NEW, 2, Phase.BLOCKED))
        state = with_records(journal.state(), *records, head=NEW)
        state = with_statuses(state, a_status(AgentKey("acme", "bot")), a_status(AgentKey("acme", "crm")))
        journal.commit(replace(state, rollout=RolloutState(enforced=OLD)))
        key = ResourceKey(AgentKey("acme", "bot"), "runtime", "main")
        record(journal, a_plan(an_action(key), digest=WAITS, commit=NEW, held=frozenset({key})), now - 30)
        record(journal, a_plan(an_action(key), digest=OTHER, commit=NEW), now - 20)
        record(journal, a_plan(an_action(key), digest=GONE, commit="0c" * 20), now - 90)
        yield journal


def record(journal: SqlJournal, plan: Plan, at: float) -> None:
    journal.commit(journal.state(), plans=[plan], at=at)


def steering(journal: SqlJournal, clock: FrozenClock, *approvers: str) -> OperatorCommands:
    return OperatorCommands(journal, clock, Operator("ada", "host", approvers))


@pytest.fixture
def ada(journal: SqlJournal, clock: FrozenClock) -> OperatorCommands:
    return steering(journal, clock)


# ----- freeze and unfreeze


def test_a_freeze_is_written_once_with_who_and_why(
    ada: OperatorCommands, journal: SqlJournal, clock: FrozenClock
) -> None:
    said = ada.freeze("acme", "  looking\n into it ", "2h")
    (control,) = journal.state().control.controls
    assert said.controls == (
        Control(ControlVerb.FREEZE, "acme", "ada@host", clock.now(), "looking into it", clock.now() + 7200),
    )
    assert (control.verb, control.actor, control.reason) == (ControlVerb.FREEZE, "ada@host", "looking into it")
    assert "tenant acme" in said.meaning
    assert said.warning == ""


def test_a_freeze_of_nobody_says_so(ada: OperatorCommands) -> None:
    assert "no agent known now" in ada.freeze("umbrella", "why", None).warning
    assert ada.freeze("acme/bot", "why", None).warning == ""


@pytest.mark.parametrize("scope", ["", "a/b/c", "Acme", "acme/", "-x", "a b", "acme/*"])
def test_a_wrong_scope_is_refused(ada: OperatorCommands, journal: SqlJournal, scope: str) -> None:
    with pytest.raises(UsageError, match="is not a scope"):
        ada.freeze(scope, "why", None)
    assert journal.state().control.controls == ()


@pytest.mark.parametrize("until", ["soon", "2001-01-01T00:00:00Z", "0s", "2030-13-01T00:00:00Z", "-1h", ""])
def test_a_wrong_end_is_refused(ada: OperatorCommands, journal: SqlJournal, until: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        ada.freeze("*", "why", until)
    assert journal.state().control.controls == ()


@pytest.mark.parametrize("verb", ["freeze", "unfreeze"])
def test_a_reason_must_say_something(ada: OperatorCommands, verb: str) -> None:
    with pytest.raises(UsageError, match="--reason is empty"):
        ada.freeze("*", " ", None) if verb == "freeze" else ada.unfreeze("*", " \n")


def test_unfreeze_lifts_one_scope_and_names_what_is_left(
    ada: OperatorCommands, journal: SqlJournal, clock: FrozenClock
) -> None:
    ada.freeze("*", "night", None)
    ada.freeze("acme", "look", None)
    said = ada.unfreeze("acme", "seen")
    assert "still frozen: * since" in said.warning
    assert [each.target for each in freezes(journal.state().control.controls, clock.now())] == ["*"]


def test_unfreeze_all_lifts_every_scope(ada: OperatorCommands, journal: SqlJournal, clock: FrozenClock) -> None:
    for scope in ("*", "acme", "acme/bot"):
        ada.freeze(scope, "night", None)
    assert len(ada.unfreeze("*", "day", everything=True).controls) == 3
    assert freezes(journal.state().control.controls, clock.now()) == ()


def test_unfreeze_of_what_is_not_frozen_lists_what_is(ada: OperatorCommands, journal: SqlJournal) -> None:
    with pytest.raises(UsageError, match="nothing is frozen") as wrong:
        ada.unfreeze("*", "day")
    assert "lifted by a commit" in wrong.value.hint
    ada.freeze("acme", "look", "1h")
    with pytest.raises(UsageError, match=r"the scope \* is not frozen") as wrong:
        ada.unfreeze("*", "day")
    assert "acme since" in wrong.value.hint
    assert "ada@host: look (until" in wrong.value.hint
    assert len(journal.state().control.controls) == 1


def test_a_freeze_at_its_end_needs_no_lifting(ada: OperatorCommands, clock: FrozenClock) -> None:
    ada.freeze("*", "look", "1h")
    clock.advance(3601)
    with pytest.raises(UsageError, match="nothing is frozen"):
        ada.unfreeze("*", "day")


def test_only_approvers_lift_what_a_guard_froze(
    ada: OperatorCommands, journal: SqlJournal, clock: FrozenClock
) -> None:
    journal.control(Control(ControlVerb.FREEZE, "*", "guard mass_drift", clock.now(), "40 of 50", plan=WAITS))
    with pytest.raises(UsageError, match="may not approve"):
        steering(journal, clock, "bob").unfreeze("*", "day")
    assert "approved" in steering(journal, clock, "ada").unfreeze("*", "day").meaning


# ----- approve


@pytest.mark.parametrize("text", [WAITS, WAITS[:8], f" {WAITS.upper()} "])
def test_a_plan_that_waits_is_approved_by_its_digest(
    ada: OperatorCommands, journal: SqlJournal, text: str
) -> None:
    said = ada.approve(text, "")
    (control,) = journal.state().control.controls
    assert (control.verb, control.target) == (ControlVerb.APPROVE, WAITS)
    assert f"1 action on 1 agent of commit {NEW[:10]}" in said.meaning


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("f00d", "too short"),
        ("f00df00d", "no plan on record"),
        ("not-a-digest", "no plan on record"),
        (WAITS[:-1] + "0", "no plan on record"),
        (GONE, "would approve nothing"),
        ("%" * 8, "no plan on record"),
    ],
)
def test_anything_else_approves_nothing_and_lists_what_waits(
    ada: OperatorCommands, journal: SqlJournal, text: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem) as wrong:
        ada.approve(text, "")
    assert f"{WAITS} (commit {NEW[:10]}, 1 action, 30 s ago)" in wrong.value.hint
    assert OTHER not in wrong.value.hint, "it does not wait"
    assert journal.state().control.controls == ()


@pytest.mark.parametrize("known", ["valid", "rollout"])
def test_a_plan_below_an_invalid_head_can_be_approved(
    ada: OperatorCommands, journal: SqlJournal, known: str
) -> None:
    state = with_head(journal.state(), "0d" * 20)
    if known == "valid":
        state = replace(state, source=replace(state.source, valid=NEW))
    else:
        state = replace(state, rollout=replace(state.rollout, rollout=Rollout(NEW, "7e", ())))
    journal.commit(state)
    assert ada.approve(WAITS, "").controls[0].target == WAITS


def test_an_ambiguous_digest_names_all_it_could_be(
    ada: OperatorCommands, journal: SqlJournal, clock: FrozenClock
) -> None:
    twin = WAITS[:-1] + "0"
    record(journal, a_plan(an_action(decision=Decision.ASK), digest=twin, commit=NEW), clock.now())
    with pytest.raises(UsageError, match="more than one plan") as wrong:
        ada.approve(WAITS[:12], "")
    assert twin in wrong.value.message
    assert WAITS in wrong.value.message
    assert journal.state().control.controls == ()


def test_who_is_not_an_approver_approves_nothing(journal: SqlJournal, clock: FrozenClock) -> None:
    with pytest.raises(UsageError, match="may not approve") as wrong:
        steering(journal, clock, "bob", "eve@host").approve(WAITS, "")
    assert "bob, eve@host" in wrong.value.hint
    assert journal.state().control.controls == ()
    for name in ("ada", "ada@host"):
        assert steering(journal, clock, name).approve(WAITS, "").controls


def test_a_clock_that_was_set_back_does_not_void_an_approval(
    ada: OperatorCommands, journal: SqlJournal, clock: FrozenClock
) -> None:
    converged = clock.now() + 3600
    journal.commit(with_records(journal.state(), a_commit(OLD, 1, finished_at=converged)))
    ada.approve(WAITS, "")
    assert journal.state().control.controls[0].at == converged


# ----- retry


@pytest.mark.parametrize(
    ("text", "target"), [("acme/bot", "acme/bot"), ("bot", "acme/bot"), (NEW, NEW), (NEW[:7], NEW)]
)
def test_retry_of_what_is_known(ada: OperatorCommands, journal: SqlJournal, text: str, target: str) -> None:
    ada.retry(text, "mended")
    assert [(each.verb, each.target, each.reason) for each in journal.state().control.controls] == [
        (ControlVerb.RETRY, target, "mended")
    ]


@pytest.mark.parametrize("text", ["acme/nobody", "0b0b", "ffffffff", "", "*"])
def test_retry_of_what_is_not_known_names_what_is(ada: OperatorCommands, journal: SqlJournal, text: str) -> None:
    with pytest.raises(UsageError, match="no agent and no commit") as wrong:
        ada.retry(text, "")
    assert "acme/bot" in wrong.value.hint
    assert journal.state().control.controls == ()


# ----- the command line


def call(state: Path, *words: str) -> Result:
    result = CliRunner().invoke(app, [*words, "--state-dir", str(state)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_a_fleet_can_be_frozen_before_its_first_run(tmp_path: Path) -> None:
    state = tmp_path / "new"
    result = call(state, "freeze", "--reason", "not yet", "-o", "json")
    assert result.exit_code == 0
    shape = json.loads(result.stdout)
    me = f"{pwd.getpwuid(os.getuid()).pw_name}@{os.uname().nodename}"
    assert [(each["verb"], each["target"], each["actor"]) for each in shape["controls"]] == [("freeze", "*", me)]
    assert shape["running"] is False
    with open_journal(state, read_only=True) as journal:
        assert [each.reason for each in journal.state().control.controls] == ["not yet"]


@pytest.mark.parametrize("words", [("approve", WAITS), ("retry", "acme/bot")])
def test_before_the_first_run_there_is_nothing_to_approve_or_retry(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = call(tmp_path / "new", *words)
    assert result.exit_code == 2
    assert "there is no journal yet" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["freeze", "unfreeze"])
def test_a_reason_is_needed(tmp_path: Path, verb: str) -> None:
    result = call(tmp_path, verb)
    assert result.exit_code == 2
    assert "--reason" in result.output


def test_it_says_which_process_picks_it_up(tmp_path: Path, journal: SqlJournal) -> None:
    assert "the next once or run picks it up" in call(tmp_path, "freeze", "--reason", "night").stdout
    with state_lock(tmp_path):
        assert f"pid {os.getpid()}" in call(tmp_path, "unfreeze", "--reason", "day").stdout
        assert f"pid {os.getpid()}" in (holder(tmp_path) or "")
    assert holder(tmp_path) is None


# ----- the daemon hears


def test_a_control_is_noticed_once(journal: SqlJournal, ada: OperatorCommands) -> None:
    ada.freeze("*", "before the start", None)
    told = threading.Semaphore(0)
    watcher = ControlWatcher(journal, told.release, period=0.01)
    watcher.start(lambda _key, _reason: None)
    try:
        ada.unfreeze("*", "day")
        assert told.acquire(timeout=10)
        ada.freeze("*", "night", None)
        assert told.acquire(timeout=10)
    finally:
        watcher.stop()
    assert not told.acquire(blocking=False)
