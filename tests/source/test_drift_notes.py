"""Drift reports as notes: the newest one on the newest commit, also after our state was lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.settings import Settings
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import DriftNotes
from tests.source.conftest import Desk, git

REF = "refs/notes/gitops-agent-drift/test"


def shown(desk: Desk, sha: str) -> str:
    return git(desk.bare, "notes", f"--ref={REF}", "show", sha)


def test_the_newest_report_stands_on_the_newest_commit(
    desk: Desk, mirror: Mirror, settings: Callable[..., Settings]
) -> None:
    first = mirror.refresh().sha
    notes = DriftNotes(mirror, settings())
    notes.write("nothing drifted\n")
    notes.write("one drifted\n")
    assert shown(desk, first) == "one drifted"
    second = desk.commit({"c.yaml": "c: 1\n"})
    mirror.refresh()
    notes.write("two drifted\n")
    assert (shown(desk, first), shown(desk, second)) == ("one drifted", "two drifted")


def test_a_lost_state_goes_on_where_the_remote_is(
    desk: Desk, mirror_of: Callable[..., Mirror], settings: Callable[..., Settings]
) -> None:
    for place in ("one", "two"):
        state = str(desk.bare.parent / place)
        mirror = mirror_of(state_dir=state)
        mirror.refresh()
        DriftNotes(mirror, settings(state_dir=state)).write(f"seen from {place}\n")
    assert shown(desk, desk.head()) == "seen from two"
    assert git(desk.bare, "rev-list", "--count", REF) == "2", "nothing was forced over what was there"


def test_who_leads_no_more_reports_nothing(
    desk: Desk, mirror_of: Callable[..., Mirror], settings: Callable[..., Settings]
) -> None:
    for place, leads in (("one", True), ("two", False)):
        state = str(desk.bare.parent / place)
        mirror = mirror_of(state_dir=state)
        mirror.refresh()
        mirror.leading = lambda leads=leads: leads
        notes = DriftNotes(mirror, settings(state_dir=state))
        with nullcontext() if leads else pytest.raises(SourceUnavailable, match="no more"):
            notes.write(f"seen from {place}\n")
    assert shown(desk, desk.head()) == "seen from one"


def test_without_pushing_it_stays_here(desk: Desk, mirror: Mirror, settings: Callable[..., Settings]) -> None:
    head = mirror.refresh().sha
    DriftNotes(mirror, settings(push=False)).write("kept\n")
    assert git(desk.bare, "for-each-ref", REF) == ""
    assert mirror.git.local("notes", f"--ref={REF}", "show", head).text == "kept"
