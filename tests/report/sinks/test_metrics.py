"""Metrics: the list is frozen and documented, deviations are counted once, ages grow by themselves."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Outcome, Result
from gitops_agent.model.passes import PassRecord
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.report.sinks.drift_counter import DriftCounter, RepeatRate, UnannouncedChanges
from gitops_agent.report.sinks.metrics import make_metrics, metrics
from tests.report.passes import a_pass_record

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
FROZEN = {
    "drift_detected_total": ("type",),
    "drift_repaired_total": ("policy",),
    "repair_confidence_distribution": (),
    "orphan_resource_count": (),
    "stuck_workflow_count": (),
    "mean_time_to_converge": (),
    "repeated_drift_rate": (),
    "manual_patch_without_event_count": (),
    "gitops_agent_time_to_converge_seconds": (),
    "gitops_agent_info": ("name", "version"),
    "gitops_agent_last_fetch_age_seconds": (),
    "gitops_agent_last_pass_age_seconds": (),
    "gitops_agent_queue_depth": (),
    "gitops_agent_notes_pending": (),
    "gitops_agent_frozen": ("scope",),
    "gitops_agent_breaker_open": ("driver",),
    "gitops_agent_leader": (),
    "gitops_agent_fleet_size": (),
    "gitops_agent_agents": ("condition",),
    "gitops_agent_drift_standing": ("type",),
    "gitops_agent_commit_phase": ("phase",),
    "gitops_agent_rollout_wave": ("state",),
    "gitops_agent_passes_total": ("result",),
    "gitops_agent_pass_duration_seconds": (),
}
"""Written down a second time on purpose: dashboards of other people depend on it, so a change must hurt."""


def a_key(name: str = "bot") -> ResourceKey:
    return ResourceKey(AgentKey("acme", name), "runtime", "process")


def an_action(name: str = "bot", drift_class: Class = Class.MISSING_EXTERNAL, **more: Any) -> Action:
    values: dict[str, Any] = {
        "driver": "memory",
        "verb": Verb.CREATE,
        "reason": "ProcessGone",
        "message": "",
        "confidence": Confidence.HIGH,
        "decision": Decision.REPAIR,
    }
    return Action(a_key(name), drift_class=drift_class, **{**values, **more})


def done(action: Action, result: Result = Result.DONE) -> tuple[Action, Outcome]:
    return action, Outcome("i", result, "", 0.0, 0.0)


# -- the list


def test_names_and_labels_are_frozen() -> None:
    assert {name: tuple(metric["labels"]) for name, metric in metrics().items()} == FROZEN


def test_the_page_shows_the_list_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    page = runpy.run_path(str(PAGE.with_name("metrics_table.py")))["page"](text)
    assert page == text, "write it again: python docs/metrics_table.py"


def test_alert_rules_of_the_page_ask_for_metrics_that_exist() -> None:
    rules = PAGE.read_text(encoding="utf-8").split("## Alerts", 1)[1]
    asked = set(re.findall(r"\b(?:gitops_agent_\w+|\w+_(?:total|count|rate))\b", rules))
    assert asked
    assert asked <= set(FROZEN)


def served(*, conflicts: int = 0) -> str:
    """What a registry of its own serves."""
    registry = CollectorRegistry()
    make_metrics(registry)["drift_detected_total"].labels(type="Conflicting").inc(conflicts)
    return generate_latest(registry).decode()


def test_nothing_is_served_that_is_not_on_the_list() -> None:
    families = {family.name for family in text_string_to_metric_families(served())}
    assert families == {name.removesuffix("_total") for name in FROZEN}


def test_known_series_are_there_from_the_start() -> None:
    text = served()
    assert 'drift_detected_total{type="MissingExternal"} 0.0' in text
    assert 'drift_repaired_total{policy="approved"} 0.0' in text
    assert 'gitops_agent_commit_phase{phase="Degraded"} 0.0' in text


def test_two_registries_do_not_share_values() -> None:
    assert 'drift_detected_total{type="Conflicting"} 3.0' in served(conflicts=3)
    assert 'drift_detected_total{type="Conflicting"} 0.0' in served()


# -- deviations, counted from pass to pass


def test_a_deviation_counts_when_it_begins_and_not_while_it_is_open() -> None:
    first = DriftCounter().after(a_pass_record(an_action()))
    again = first.after(a_pass_record(an_action()))
    gone = again.after(a_pass_record())
    back = gone.after(a_pass_record(an_action()))
    assert [len(t.began) for t in (first, again, gone, back)] == [1, 0, 0, 1]


def test_a_commit_is_no_drift() -> None:
    change = DriftCounter().after(
        a_pass_record(an_action(drift_class=Class.CHANGE), an_action("other", drift_class=Class.LAG))
    )
    assert (change.began, change.open) == ((), {})


def test_what_dies_again_right_after_its_repair_counts_again() -> None:
    action = an_action()
    first = DriftCounter().after(a_pass_record(action, executed=[done(action)]))
    assert (first.repaired, first.open) == ((action,), {})
    assert len(first.after(a_pass_record(an_action())).began) == 1


def test_a_repair_that_ends_late_is_counted_by_the_pass_that_sees_its_end() -> None:
    slow = an_action()
    begun = DriftCounter().after(a_pass_record(slow, running=(slow,)))
    waiting = begun.after(a_pass_record(running=(slow,)))
    assert waiting.open == begun.open, "of a busy agent nothing is known"
    ended = waiting.after(a_pass_record(an_action(), executed=[done(slow)]))
    assert (len(ended.repaired), len(ended.began)) == (1, 1), "it ended well, and then it happened again"


def test_a_failed_repair_is_none_and_begins_nothing_new() -> None:
    action = an_action()
    first = DriftCounter().after(a_pass_record(action, executed=[done(action, Result.FAILED)]))
    assert (first.repaired, len(first.open)) == ((), 1)
    assert first.after(a_pass_record(an_action())).began == ()


def test_what_was_not_observed_stays_open() -> None:
    counter = DriftCounter().after(a_pass_record(an_action("a"), an_action("b")))
    elsewhere = counter.after(a_pass_record(scope=frozenset({AgentKey("acme", "a")})))
    assert [key.agent.name for key, _ in elsewhere.open] == ["b"]
    unreachable = counter.after(a_pass_record(unreachable={"memory": "no answer"}))
    assert unreachable.open == counter.open


@st.composite
def views(draw: st.DrawFn) -> PassRecord:
    names = st.sampled_from("abcd")
    classes = st.sampled_from(list(Class))
    actions = draw(st.lists(st.builds(an_action, names, classes), max_size=5))
    ended = draw(st.lists(st.sampled_from(actions), max_size=3, unique_by=id)) if actions else []
    late = draw(st.lists(st.builds(an_action, names, classes), max_size=2))
    executed = [done(action, draw(st.sampled_from(list(Result)))) for action in [*late, *ended]]
    some = st.frozensets(st.builds(AgentKey, st.just("acme"), names))
    scope = draw(st.none() | some)
    covered = [a for a in actions if scope is None or a.key.agent in scope]
    running = tuple(an_action(agent.name) for agent in draw(some))
    silent: dict[str, str] = draw(st.sampled_from([{}, {"memory": "no answer"}]))
    return a_pass_record(*covered, executed=executed, scope=scope, unreachable=silent, running=running)


@given(st.lists(views(), max_size=8))
def test_laws_of_counting(passes: list[PassRecord]) -> None:
    counter = DriftCounter()
    began = 0
    for view in passes:
        before, change = counter.open, counter.after(view)
        counter = change
        began += len(change.began)
        assert len(change.began) <= len(
            {(a.key, a.drift_class) for a in view.plan.actions if a.drift_class.is_drift}
        )
        assert all(a.drift_class.is_drift for a in (*change.began, *change.repaired, *counter.open.values()))
        assert len(counter.open) <= began, "nothing is open that did not begin"
        new = {(a.key, a.drift_class) for a in change.began}
        assert set(counter.open) <= set(before) | new
        # The same view again, with nothing done, is no news.
        assert counter.after(replace(view, executed=())).began == tuple(
            a
            for name, a in {(a.key, a.drift_class): a for a in view.plan.actions if a.drift_class.is_drift}.items()
            if name not in counter.open
        )


# -- what comes back


def test_the_rate_is_the_share_of_what_deviated_before() -> None:
    repeats = RepeatRate(window=100)
    assert repeats.rate(0) == 0
    repeats.began([a_key("a"), a_key("b")], 0)
    assert repeats.rate(1) == 0
    repeats.began([a_key("a"), a_key("a")], 50)
    assert repeats.rate(51) == 0.5
    assert repeats.rate(140) == 0.5, "two of one, the first of them no longer new"
    assert repeats.rate(151) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=40))
def test_the_rate_is_a_share_and_memory_is_bounded(events: list[tuple[str, int]]) -> None:
    repeats, now = RepeatRate(window=60, remembered=10), 0
    for name, step in events:
        now += step
        repeats.began([a_key(name)], now)
        assert 0 <= repeats.rate(now) < 1
        assert len(repeats._seen) <= 10
    assert repeats.rate(now + 61) == 0


# -- what no event announced

BOT = AgentKey("acme", "bot")


def test_a_change_that_was_announced_does_not_count() -> None:
    changes = UnannouncedChanges()
    changes.event_seen(BOT, 9)
    changes.change_found([BOT], None, since=10, now=11)
    assert changes.count(100) == 0


def test_a_change_found_by_observing_counts_once_no_event_can_come() -> None:
    changes = UnannouncedChanges()
    changes.change_found([BOT], None, since=10, now=11)
    assert changes.count(12) == 0, "its event may be on its way"
    assert changes.count(17) == 1
    changes.change_found([], None, since=30, now=31)
    changes.event_seen(BOT, 40)
    assert changes.count(41) == 1, "what is settled stays so"


def test_an_event_that_lost_the_race_still_announces() -> None:
    changes = UnannouncedChanges()
    changes.change_found([BOT], None, since=10, now=11)
    changes.event_seen(BOT, 12)
    changes.change_found([], None, since=13, now=14)
    assert changes.count(100) == 0


def test_an_event_explains_one_observation_only() -> None:
    changes = UnannouncedChanges()
    changes.event_seen(BOT, 9)
    changes.change_found([BOT], None, since=10, now=11)
    changes.change_found([BOT], None, since=60, now=61)
    assert changes.count(100) == 1
