"""What people read: it answers the question, lines up, and colours only where asked."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.finding import Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Evidence
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Class, Confidence, Decision, Effect, Verb, Verdict, Where
from gitops_agent.model.quantity import ago, span
from gitops_agent.model.status import AgentStatus, ConditionType, Phase, ResourceStatus
from gitops_agent.plan.guards import GUARDS
from gitops_agent.report.progress_view import ProgressView
from gitops_agent.report.render import PLAIN, Style, style_for
from gitops_agent.report.words import is_about, sentence

from .texts import (
    agent_text,
    explain_text,
    findings_text,
    history_text,
    plan_text,
    status_text,
    validate_text,
)
from .values import (
    BOT,
    NOW,
    OTHER,
    SHA,
    Explanation,
    FleetStatus,
    a_condition,
    a_finding,
    a_known_state,
    a_plan,
    a_record,
    a_status,
    an_action,
    an_entry,
    runtime_key,
)

pytestmark = pytest.mark.unit

COLOUR = Style(colour=True)
SICK = a_status(AgentKey("acme", "crm-bot"), ready=False)


def uncoloured(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_findings_read_like_a_compiler() -> None:
    assert findings_text([a_finding()]).split("\n") == [
        "agents/acme/support-bot.yaml:7:3: error[UnknownField]: unknown field replcas",
        "    found: replcas",
        "    expected: replicas",
    ]


def test_validate_ends_with_a_verdict() -> None:
    assert validate_text([]) == "valid"
    text = validate_text([a_finding(), a_finding(severity="warning"), a_finding()])
    assert text.split("\n")[-1] == "invalid: 2 errors, 1 warning"


def test_status_says_who_why_since_when_and_at_which_commit() -> None:
    fleet = FleetStatus("prod-eu", SHA, OTHER, Phase.DEGRADED, [a_status(), SICK], [a_finding()], 5.0, NOW)
    head, _, headers, first, second, *rest = status_text(fleet).split("\n")
    words = "1 of 2 ready"
    assert head == f"prod-eu: a1a1a1a1a1 Degraded, enforcing b2b2b2b2b2; {words} (as of 5.0 s ago)"
    assert headers.split() == ["AGENT", "READY", "STATE", "PID", "REASON", "SINCE", "COMMIT", "MESSAGE"]
    assert first.split("  ")[0] == "acme/crm-bot"
    assert "no" in first.split()
    assert "CrashLoop" in first
    assert "1 min ago" in first
    assert first.endswith("exited with code 1")
    assert second.rstrip().endswith("a1a1a1a1a1")
    assert headers.index("PID") == second.index("4242")
    assert headers.index("REASON") == first.index("CrashLoop") == second.index("Healthy")
    assert any("UnknownField" in line for line in rest)


def test_status_without_a_moment_shows_times_of_the_clock() -> None:
    assert "2023-11-14T22:11:50Z" in status_text(FleetStatus("x", SHA, SHA, Phase.CONVERGED, [a_status()]))


def test_what_holds_an_agent_up_is_shown_before_what_it_lacks() -> None:
    conditions = (a_condition(status=False), a_condition(ConditionType.STALLED, True, reason="Backoff"))
    fleet = FleetStatus("x", SHA, SHA, Phase.DEGRADED, [a_status(ready=False, conditions=conditions)])
    assert "Backoff" in status_text(fleet)


def test_an_agent_that_is_well_again_is_shown_as_well_and_what_was_tried_beside_it() -> None:
    tried = a_condition(ConditionType.STALLED, True, reason="Backoff", message="tried 3 times; last: it ended")
    status = a_status(conditions=(a_condition(), tried), next_try_at=None)
    row = status_text(FleetStatus("x", SHA, SHA, Phase.CONVERGED, [status], at=NOW)).split("\n")[3]
    assert f" {a_condition().reason}, Backoff " in row
    assert row.endswith("tried 3 times; last: it ended")
    due = replace(status, next_try_at=NOW + 30)
    assert ", Backoff" not in status_text(FleetStatus("x", SHA, SHA, Phase.CONVERGED, [due], at=NOW))


def test_status_before_the_first_commit() -> None:
    assert "no commit" in status_text(FleetStatus("prod-eu", None, None, None, []))


def test_colour_changes_nothing_but_colour() -> None:
    fleet = FleetStatus("prod-eu", SHA, OTHER, Phase.DEGRADED, [a_status(), SICK], [a_finding()], 5.0, NOW)
    assert "\x1b[" in status_text(fleet, COLOUR)
    assert uncoloured(status_text(fleet, COLOUR)) == status_text(fleet)
    plan = a_plan(an_action(), findings=(a_finding(),))
    assert uncoloured(plan_text(plan, COLOUR)) == plan_text(plan)


def test_a_pipe_gets_no_colour_and_no_width() -> None:
    assert style_for(io.StringIO(), {}) == PLAIN


def test_an_empty_plan_says_so() -> None:
    assert "nothing to do" in plan_text(a_plan())


def test_a_plan_shows_before_after_why_and_the_total() -> None:
    create = an_action(key=runtime_key(AgentKey("acme", "new-bot")), verb=Verb.CREATE, patch=(), live=None)
    text = plan_text(a_plan(an_action(), create))
    assert "acme/support-bot\n  ~ update runtime/main: replicas 1 to 2 [SpecChanged, Change]" in text
    assert "      - /replicas: 1\n      + /replicas: 2" in text
    assert "  + create runtime/main" in text
    assert text.endswith("1 to create, 1 to update")


def test_a_plan_masks_values_by_their_names() -> None:
    patch = ({"op": "replace", "path": "/env/API_TOKEN", "value": "hunter23"},)
    text = plan_text(a_plan(an_action(patch=patch)))
    assert "hunter" not in text
    assert "/env/API_TOKEN" in text


def test_a_long_difference_is_cut() -> None:
    patch = tuple({"op": "add", "path": f"/field{index}", "value": "x" * 1000} for index in range(100))
    text = plan_text(a_plan(an_action(patch=patch)))
    assert "… and 88 more lines" in text
    assert max(map(len, text.split("\n"))) < 220
    assert "--output json shows all of it" in text
    assert "--output json" not in plan_text(a_plan(an_action())), "nothing of it is cut"


def test_a_plan_says_which_system_and_namespace_it_would_change() -> None:
    here, there = an_action(driver="kubernetes@eu"), an_action(key=runtime_key(SICK.agent))
    text = plan_text(replace(a_plan(here, there), where={here.key: Where("https://10.0.0.1:6443", "acme")}))
    assert f"digest {a_plan(here, there).digest}\nkubernetes@eu: https://10.0.0.1:6443\n" in text
    assert f"{BOT} in kubernetes@eu/acme\n  ~ update" in text
    assert f"{SICK.agent}\n  ~ update" in text, "a driver that does not say"


def test_a_guard_says_how_to_release_it() -> None:
    finding = a_finding(code="MassDelete", detail="6 of 10 agents would go; split the commit to go on")
    verdict = Verdict("mass_delete", Effect.BLOCK, frozenset({runtime_key()}), (finding,))
    plan = a_plan(an_action(), verdicts=(verdict,), held=frozenset({runtime_key()}), findings=(finding,))
    text = plan_text(plan)
    assert "The guard against mass deletion blocks the commit" in text
    assert text.count("split the commit to go on") == 1, "each finding once"
    assert text.index("split the commit") < text.index("update runtime/main"), "before what it would do"
    assert "[SpecChanged, Change, held]" in text


@pytest.mark.parametrize(
    ("guard", "said"), [("observe_mode", "Observe mode"), ("their_own", "The guard their_own")]
)
def test_guards_go_by_words(guard: str, said: str) -> None:
    verdict = Verdict(guard, Effect.TRIM, frozenset({runtime_key()}))
    assert f"{said} holds 1 action\n" in plan_text(a_plan(an_action(), verdicts=(verdict,)))


@pytest.mark.parametrize("guard", [guard.__name__ for guard in GUARDS] + ["lease"])
def test_every_guard_of_ours_has_words(guard: str) -> None:
    verdict = Verdict(guard, Effect.TRIM, frozenset({runtime_key()}))
    assert f"The guard {guard}" not in plan_text(a_plan(an_action(), verdicts=(verdict,)))


def test_a_plan_leaves_out_what_says_nothing_to_people() -> None:
    steps = [("replace", "/config", "0a"), ("replace", "/spec", "0b"), ("add", "/workdir", None), ("add", "/x", 1)]
    patch = tuple({"op": op, "path": path, "value": value} for op, path, value in steps)
    lines = plan_text(a_plan(an_action(patch=patch))).split("\n")
    assert [line.strip() for line in lines if line.startswith("      ")] == ["+ /x: 1"]
    gone = an_action(verb=Verb.DELETE, patch=({"op": "remove", "path": "/replicas"},))
    assert "/replicas" not in plan_text(a_plan(gone)), "what is deleted needs no list of its fields"


def test_the_same_said_of_several_resources_is_said_once() -> None:
    same = [
        a_finding(address=f"acme/support-bot:{part}", code="ObserveMode") for part in ("config/b", "runtime/m")
    ]
    text = findings_text([*same, *same, a_finding(address="acme/other:runtime/m", code="ObserveMode")])
    heads = [line for line in text.split("\n") if "ObserveMode" in line]
    assert [head.partition(": error")[0] for head in heads] == [
        "acme/support-bot:config/b, runtime/m",
        "acme/other:runtime/m",
    ]


def test_doubt_is_shown() -> None:
    action = an_action(
        drift_class=Class.UNSAFE_AMBIGUITY, decision=Decision.ASK, confidence=Confidence.MEDIUM, message=""
    )
    assert "spec changed [SpecChanged, UnsafeAmbiguity, medium confidence: ask]" in plan_text(a_plan(action))


def test_history_tells_rollbacks_on_both_sides() -> None:
    lines = history_text([a_record(rolls_back_to=OTHER), a_record(OTHER, rolled_back_by=SHA)]).split("\n")
    assert lines[0].split() == ["COMMIT", "PHASE", "SEEN", "TOOK", "SUBJECT", "SUMMARY"]
    assert lines[1].endswith("3 changed; back to the state of b2b2b2b2b2")
    assert lines[2].endswith("undone by a1a1a1a1a1")


def test_a_commit_that_restores_an_earlier_state_is_not_called_a_revert() -> None:
    by_hand, revert = a_record(reverts=(SHA,), rolls_back_to=OTHER), a_record(reverts=(OTHER,))
    _, first, second = history_text([by_hand, revert]).split("\n")
    assert first.endswith("3 changed; back to the state of b2b2b2b2b2; undoes a1a1a1a1a1")
    assert second.endswith("3 changed; reverts b2b2b2b2b2"), "its message says so, and no earlier state is back"
    assert history_text([]) == "no commit has been seen yet"


def test_explain_answers_the_six_questions() -> None:
    conditions = (
        a_condition(status=False),
        a_condition(ConditionType.STALLED, True, reason="Backoff", message="away"),
    )
    known = Explanation(
        BOT,
        NOW,
        a_status(ready=False, conditions=conditions),
        a_record(),
        a_record(OTHER, Phase.INVALID, summary="agents/x.yaml:1:1: unknown field"),
        [an_entry(at=NOW - index) for index in range(20)],
        {runtime_key(): Attempt(3, NOW + 30, "No such file: ./bot")},
        journal_age=2.0,
    )
    text = explain_text(known)
    assert explain_text(known, everything=True).count("ProcessGone") == 20
    for words in (
        "It should be Running at agents/acme/support-bot.yaml:1, as of commit a1a1a1a1a1.",
        'That commit is "Give support-bot a second replica" by Ada <ada@example.com>',
        "The newest commit b2b2b2b2b2 is Invalid and is not enforced here.",
        "It is not Ready since 2023-11-14T22:11:50Z (1 min ago): exited with code 1 [CrashLoop].",
        "runtime/main (process): Running, health Healthy, pid 4242.",
        "restart runtime/main because the process is gone [ProcessGone]",
        "… and 12 earlier actions: gitops-agent explain acme/support-bot --all",
        "Stalled since",
        "runtime/main failed 3 times in a row [Backoff]: No such file: ./bot.",
        "It is tried again in 30 s (2023-11-14T22:13:50Z).",
    ):
        assert words in text


def test_a_failure_that_will_repeat_is_told_once_and_truly() -> None:
    error = f"{runtime_key()}: command not found"
    conditions = (
        a_condition(status=False),
        a_condition(ConditionType.STALLED, reason="CannotApply", message=error),
    )
    attempts = {runtime_key(): Attempt(1, NOW + 250, error, permanent=True)}
    status = a_status(ready=False, next_try_at=NOW + 250, conditions=conditions)
    text = explain_text(Explanation(BOT, NOW, status, attempts=attempts))
    assert "In the way\n  runtime/main failed once [CannotApply]: command not found.\n" in text
    again = "It is tried again in 4 min (2023-11-14T22:17:30Z), and regularly after that, but will fail until"
    assert again in text
    assert text.count("command not found") == 1
    assert "CannotApply" in status_text(FleetStatus("x", SHA, SHA, Phase.DEGRADED, [status], at=NOW))


def test_explain_says_which_source_said_what() -> None:
    heard = (
        Evidence("heartbeat", "none within 60 s", NOW - 9),
        Evidence("liveness probe", "fails (503)", NOW - 8),
    )
    text = explain_text(Explanation(BOT, NOW, a_status(), entries=[an_entry(evidence=heard), an_entry()]))
    assert "Evidence at 2023-11-14T22:13:12Z: heartbeat: none within 60 s; liveness probe: fails (503).\n" in text
    assert text.count("Evidence") == 1, "one source alone says no more than the reason"


def test_a_repair_that_worked_is_not_in_the_way() -> None:
    attempts = {runtime_key(): Attempt(1, NOW - 1, "ProcessGone: The process ended.")}
    entry = an_entry(message="The process ended or was killed (pid 7).", outcome="started replica 0.")
    text = explain_text(Explanation(BOT, NOW, a_status(), entries=[entry], attempts=attempts))
    assert "In the way\n  Nothing." in text
    assert "because the process ended or was killed (pid 7) [ProcessGone]" in text
    assert "Nothing is due" in text
    assert ".." not in text


@pytest.mark.parametrize(
    ("ready", "reason", "coming"),
    [
        (
            False,
            "HealthTimeout",
            "It is Ready as soon as its checks pass; otherwise it waits for a fix or a revert.",
        ),
        (False, "NotMarked", "It waits for people: what they can do is said above."),
        (True, "HookFailed", "It waits for people: what they can do is said above."),
        (True, "Backoff", "It runs again, and is held to fail until it has stayed Ready for a minute."),
        (
            False,
            "",
            "It is Ready as soon as what is said above is mended: where it runs, or by a fix or a revert in Git.",
        ),
    ],
)
def test_what_comes_next_where_nothing_is_tried(ready: bool, reason: str, coming: str) -> None:
    stalled = (a_condition(ConditionType.STALLED, True, reason=reason),) if reason else ()
    status = a_status(ready=ready, conditions=(a_condition(status=ready), *stalled), next_try_at=None)
    assert explain_text(Explanation(BOT, NOW, status)).endswith(f"Next\n  {coming}")


def test_what_is_not_known_yet_is_looked_at_again() -> None:
    unknown = a_condition(status=False, reason="Unknown", message="health is not known yet")
    status = a_status(ready=False, conditions=(unknown,), next_try_at=None)
    assert explain_text(Explanation(BOT, NOW, status)).endswith("Next\n  It is looked at again soon.")
    unasked = replace(status, conditions=(replace(unknown, reason="ObserveFailed"),))
    assert "as soon as its live system answers" in explain_text(Explanation(BOT, NOW, unasked))


def test_a_lease_of_another_is_waited_for() -> None:
    held = a_finding(code="LeaseHeld", address=str(BOT))
    text = explain_text(Explanation(BOT, NOW, a_status(ready=False, next_try_at=None), findings=[held]))
    assert text.endswith("Next\n  It goes on as soon as the other gitops-agent lets go of it.")


def test_explain_does_not_send_people_to_itself() -> None:
    detail = f"End its claim (gitops-agent explain {BOT})."
    taken = a_finding(code="TakenOver", address=str(BOT), summary="not done", detail=detail)
    text = explain_text(Explanation(BOT, NOW, a_status(), findings=[taken]))
    assert "Not done. End its claim. [TakenOver]" in text
    assert detail in findings_text([taken])


@pytest.mark.parametrize("code", ["ObserveMode", "Paused", "WaitingForDependency", "Frozen"])
def test_what_holds_an_agent_is_in_the_way_and_in_the_table(code: str) -> None:
    hold = a_finding(code=code, severity=Severity.INFO, address=str(BOT), summary="not now", detail="Go on by X.")
    status = a_status(ready=False, next_try_at=None)
    text = explain_text(Explanation(BOT, NOW, status, findings=[hold, hold]))
    assert f"In the way\n  Not now. Go on by X. [{code}]\n\nNext" in text
    fleet = FleetStatus("x", SHA, SHA, Phase.RECONCILING, [status, a_status(SICK.agent)], [hold], at=NOW)
    other, mine = status_text(fleet).split("\n")[3:5]
    assert f"CrashLoop, {code}" in mine
    assert mine.endswith("exited with code 1; not now")
    assert code not in other


def test_a_commit_that_is_turned_down_is_in_the_way_with_its_errors() -> None:
    head = a_record(OTHER, Phase.INVALID, findings=tuple(a_finding(code=f"E{n}") for n in range(7)))
    text = explain_text(Explanation(BOT, NOW, a_status(), a_record(), head))
    way = text.partition("In the way\n")[2].partition("\nNext")[0]
    assert way.startswith("  The newest commit b2b2b2b2b2 is Invalid: nothing it asks for is done, and a1a1a1a1a1")
    assert "error[E4]" in way
    assert "expected: replicas" in way
    assert "error[E5]" not in way
    assert "… and 2 more: gitops-agent status" in way


@pytest.mark.parametrize(("verb", "said"), [("delete", "deleted by commit"), ("release", "left in place")])
def test_an_agent_that_is_gone_is_remembered(verb: str, said: str) -> None:
    text = explain_text(Explanation(BOT, NOW, None, entries=[an_entry(verb=verb), an_entry()]))
    assert said in text
    assert "commit a1a1a1a1a1 at 2023-11-14T22:13:12Z." in text
    assert "Done\n" in text


def test_what_rests_as_desired_counts_as_ready_and_is_named() -> None:
    parked = a_status(SICK.agent, lifecycle=Lifecycle.STOPPED, resources=())
    text = status_text(FleetStatus("x", SHA, SHA, Phase.CONVERGED, [a_status(), parked], at=NOW))
    assert "2 of 2 ready; 1 stopped" in text
    assert re.search(r"acme/crm-bot +- +Stopped", text)


def test_one_agent_in_full() -> None:
    live = {"replicas": [{"pid": 4242}], "log": "/state/agents/acme/support-bot/logs/0.log"}
    resource = ResourceStatus(runtime_key(), "process", "Running", "Healthy", live)
    status = a_status(resources=(resource,), next_try_at=NOW + 30)
    text = agent_text(FleetStatus("x", SHA, SHA, Phase.CONVERGED, [status], [a_finding()], at=NOW))
    for words in ("4242", live["log"], "in 30 s (2023-11-14T22:13:50Z)", "Ready      yes", "expected: replicas"):
        assert str(words) in text
    two = replace(resource, live={**live, "replicas": [{"pid": 1}, {"pid": 2}]})
    several = replace(status, resources=(two,))
    assert "support-bot/logs/*.log" in agent_text(FleetStatus("x", SHA, SHA, Phase.CONVERGED, [several]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("did you mean command?", "did you mean command?"), ("it ended.", "it ended."), ("it ended", "it ended.")],
)
def test_sentences_end_once(text: str, expected: str) -> None:
    assert sentence(text) == expected


def test_findings_are_about_the_agent_they_name_and_no_other() -> None:
    finding = a_finding(address="acme/support-bot-2:runtime/main")
    assert not is_about(finding, BOT)
    assert is_about(finding, AgentKey("acme", "support-bot-2"))
    assert is_about(a_finding(address="acme/support-bot:runtime/main"), BOT)


def test_explain_of_a_healthy_agent_is_calm() -> None:
    text = explain_text(Explanation(BOT, NOW, a_status(), a_record(), a_record()))
    assert "In the way\n  Nothing." in text
    assert "Nothing has been done to it yet." in text
    assert "not enforced" not in text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0.0 s"), (4.25, "4.2 s"), (42.9, "42 s"), (90, "1 min"), (7200, "2 h"), (200_000, "2 d"), (-5, "0.0 s")],
)
def test_spans(seconds: float, expected: str) -> None:
    assert span(seconds) == expected
    assert ago(NOW + 100, NOW) == "just now"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_view_shows_the_last_picture_and_obeys_nobody() -> None:
    stream = Terminal()
    evil = a_condition(status=False, message="[bold red]owned[/] \x1b[2J [link=http://evil.example]x[/link]")
    with ProgressView("prod-eu", stream, colour=False) as view:
        view.update(a_known_state(None, None, [a_status()]))
        sick = a_status(SICK.agent, ready=False, conditions=(evil,))
        head = a_record(phase=Phase.RECONCILING)
        view.update(a_known_state(head, OTHER, [a_status(), sick]), "waiting for 1 of 2 agents")
    text = stream.getvalue()
    assert "prod-eu: a1a1a1a1a1 Reconciling, enforcing b2b2b2b2b2; 1 of 2 ready" in text
    assert "acme/crm-bot" in text
    assert "waiting for 1 of 2 agents" in text
    assert "[bold red]owned" in text
    assert "\x1b[2J" not in text
    assert "evil.example\x1b" not in text


def test_the_live_view_turns_while_something_is_on_its_way_and_rests_after() -> None:
    stream = Terminal()
    with ProgressView("x", stream, colour=False) as view:
        head = a_record(phase=Phase.RECONCILING)
        view.update(a_known_state(head, SHA, [a_status(ready=False)]), "starting")
        frames = {_frame(view, second) for second in (0.0, 0.1, 0.2)}
        view.update(a_known_state(a_record(), SHA, [a_status()]), "1 changed")
        still = {_frame(view, second) for second in (0.3, 0.4)}
    assert len(frames) > 1, "it moves"
    assert len(still) == 1
    assert "1 changed" in still.pop()


def _frame(view: ProgressView, second: float) -> str:
    console = Console(file=io.StringIO(), width=100, get_time=lambda: second)
    console.print(view._render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_live_view_of_a_large_fleet_shows_the_sick() -> None:
    stream = Terminal()
    well = [a_status(AgentKey("acme", f"bot-{index}")) for index in range(500)]
    sick = a_status(AgentKey("zeta", "last"), ready=False)
    with ProgressView("prod-eu", stream, colour=False) as view:
        view.update(a_known_state(a_record(phase=Phase.RECONCILING), SHA, [*well, sick]))
    assert "zeta/last" in stream.getvalue()
    assert "more" in stream.getvalue()


def test_rich_is_imported_only_for_a_live_view() -> None:
    code = (
        "import sys\n"
        "import gitops_agent.cli.progress, gitops_agent.report.status_text\n"
        "assert not any(name.split('.')[0] in ('rich', 'sentry_sdk', 'ruamel') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def a_large_fleet() -> FleetStatus:
    """Names, reasons and messages as long as they get in practice."""
    sick = a_condition(status=False, reason="ReadinessProbeFailed", message="GET /readyz answered 503 " * 6)
    keys = [AgentKey("customer-success-emea", f"conversation-summariser-{number}") for number in range(3)]
    statuses = [a_status(key, conditions=(sick,), ready=False) for key in keys] + [a_status()]
    hold = a_finding(address=str(BOT), code="WaitingForDependency", summary="waits for acme/crm-bot " * 5)
    return FleetStatus("prod-eu", SHA, OTHER, Phase.DEGRADED, statuses, [a_finding(), hold], 5.0, NOW)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("colour", [False, True])
def test_every_text_fits_the_terminal(width: int, colour: bool) -> None:
    fleet, style = a_large_fleet(), Style(colour, width)
    record = a_record(subject="A subject as long as people write them, and then some", summary="3 changed " * 12)
    known = Explanation(
        BOT, NOW, SICK, record, a_record(OTHER, Phase.INVALID, findings=(a_finding(),)), [an_entry()]
    )
    one = replace(fleet, statuses=fleet.statuses[:1])
    patch = ({"op": "replace", "path": "/instructions", "value": "be kind " * 60},)
    texts = [
        status_text(fleet, style),
        agent_text(one, style),
        history_text([record, a_record(OTHER, rolled_back_by=SHA)], style),
        explain_text(known, style),
        plan_text(a_plan(an_action(patch=patch, message="why " * 60)), style),
        validate_text([a_finding(summary="x " * 90)], style),
    ]
    for text in texts:
        assert max(map(len, uncoloured(text).split("\n"))) <= width, text
        assert ("\x1b[" in text) is colour


def test_what_matters_least_is_dropped_first() -> None:
    fleet = a_large_fleet()
    heads = {
        width: next(line for line in status_text(fleet, Style(width=width)).split("\n") if "AGENT" in line).split()
        for width in (80, 120, 400)
    }
    assert heads[400] == ["AGENT", "READY", "STATE", "PID", "REASON", "SINCE", "COMMIT", "MESSAGE"]
    assert heads[120] == ["AGENT", "READY", "STATE", "PID", "REASON", "SINCE", "MESSAGE"]
    assert heads[80] == ["AGENT", "READY", "REASON", "MESSAGE"]
    assert set(heads[400]) == set(status_text(fleet).split("\n")[2].split()), "a pipe gets all of it"


def test_a_quiet_fleet_fits_80_columns_on_one_line_each() -> None:
    fleet = FleetStatus("prod-eu", SHA, SHA, Phase.CONVERGED, [a_status(), a_status(SICK.agent)], at=NOW)
    assert len(status_text(fleet, Style(width=80)).split("\n")) == 5
    records = [a_record(subject="Give it a second replica", summary="1 changed") for _ in range(3)]
    assert len(history_text(records, Style(width=80)).split("\n")) == 4


def test_without_a_terminal_each_row_is_one_line() -> None:
    fleet = a_large_fleet()
    assert len([line for line in status_text(fleet).split("\n") if line.startswith("customer-success")]) == 3


def in_cluster(key: AgentKey, driver: str, namespace: str) -> AgentStatus:
    live = {"namespace": namespace}
    return a_status(key, resources=(ResourceStatus(runtime_key(key), driver, "Running", "", live),))


def test_where_agents_run_is_said_where_there_is_more_than_one_place() -> None:
    def header(*statuses: AgentStatus, wide: bool = False) -> list[str]:
        fleet = FleetStatus("x", SHA, SHA, Phase.CONVERGED, list(statuses), at=NOW)
        return status_text(fleet, Style(width=80), wide=wide).split("\n")[2].split()

    here, there = in_cluster(BOT, "kubernetes", "acme"), in_cluster(SICK.agent, "kubernetes@eu", "acme")
    assert "WHERE" not in header(here)
    assert "WHERE" in header(here, there)
    elsewhere = in_cluster(SICK.agent, "kubernetes", "payments")
    assert "WHERE" not in header(elsewhere), "all of its tenant is there"
    assert "WHERE" in header(here, elsewhere)
    assert {"WHERE", "COMMIT", "SINCE"} <= set(header(here, wide=True)), "every column"


def test_where_an_agent_runs_is_its_driver_and_its_namespace() -> None:
    status = in_cluster(BOT, "kubernetes@eu", "acme")
    fleet = FleetStatus("x", SHA, SHA, Phase.CONVERGED, [status, a_status(SICK.agent)], at=NOW)
    assert " kubernetes@eu/acme " in status_text(fleet)
    assert "(kubernetes@eu/acme): Running." in explain_text(Explanation(BOT, NOW, status))
    assert " kubernetes@eu/acme " in agent_text(replace(fleet, statuses=[status]))


def test_instances_go_by_the_name_their_driver_gives_them() -> None:
    def shown(*replicas: dict[str, object], **live: object) -> ResourceStatus:
        return ResourceStatus(runtime_key(), "pods", "Running", "", {"replicas": list(replicas), **live})

    pods = shown({"index": 0, "pod": "bot-0"}, {"index": 1, "pod": "bot-1"}, attach="kubectl exec -it bot-0 -- sh")
    fleet = FleetStatus("x", SHA, SHA, Phase.CONVERGED, [a_status(resources=(pods,))], at=NOW)
    assert "POD" in status_text(fleet).split("\n")[2].split()
    assert "bot-0, bot-1" in status_text(fleet)
    assert "  attach:   kubectl exec -it bot-0 -- sh" in agent_text(fleet)
    text = explain_text(Explanation(BOT, NOW, fleet.statuses[0]))
    assert "runtime/main (pods): Running, pod bot-0, bot-1.\n  attach: kubectl exec -it bot-0 -- sh\n" in text
    mixed = replace(fleet, statuses=[*fleet.statuses, a_status(SICK.agent)])
    assert "INSTANCES" in status_text(mixed).split("\n")[2].split()
