"""A candidacy: one term for each time that this process acts, and what becomes of one that cannot act."""

from __future__ import annotations

from threading import Event

import pytest

from gitops_agent.daemon import standby
from gitops_agent.daemon.standby import Answers, Candidacy
from gitops_agent.errors import JournalError

pytestmark = pytest.mark.unit
AWAY = JournalError("the server of the journal does not answer", hint="check that it runs")
ANSWERS = Answers(lambda: b"", lambda: (True, "ok"), lambda: (True, "ready"))


class Alone:
    """An election in which nobody else stands."""

    def __init__(self) -> None:
        self.term = 0
        self.leads = False

    def wait(self, stop: Event, *, patient: bool = True) -> bool:
        assert not self.leads, "who leads gives the lease back before it stands again"
        del stop, patient
        self.term, self.leads = self.term + 1, True
        return True

    def leading(self) -> bool:
        return self.leads

    def holder(self) -> str:
        return "me"

    def problem(self) -> str:
        return ""

    def resign(self) -> None:
        self.leads = False


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "FIRST_REST_SECONDS", 0.0)
    monkeypatch.setattr(standby, "MAX_REST_SECONDS", 0.0)


def test_whatever_begins_anew_does_so_in_another_term() -> None:
    candidacy = Candidacy(Alone())
    assert candidacy.wait()
    with candidacy.leadership():
        hung = candidacy.fence
        assert hung is not None
        assert hung.holds()
    assert not hung.holds()
    assert candidacy.wait()
    assert candidacy.fence is not None
    assert candidacy.fence.holds()
    assert not hung.holds(), "what hung in the earlier one stays fenced"


def test_who_cannot_open_the_journal_lets_others_lead_and_stands_again() -> None:
    election = Alone()
    candidacy = Candidacy(election)
    assert candidacy.wait()
    assert candidacy.answers.ready() == (False, "not ready: this process leads and has not begun yet")
    with candidacy.leadership():
        raise AWAY
    assert not election.leading(), "another one may have more luck"
    assert candidacy.answers.live() == (True, "ok")
    assert candidacy.answers.ready() == (False, f"not ready: {AWAY.message}")
    assert candidacy.wait()
    with candidacy.leadership(), candidacy.answering(ANSWERS):
        assert candidacy.answers.ready() == (True, "ready")
    assert candidacy.answers.ready() == (True, "standby: me leads")


def test_it_rests_longer_with_every_failure_and_not_when_it_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "FIRST_REST_SECONDS", 1.0)
    monkeypatch.setattr(standby, "MAX_REST_SECONDS", 3.0)
    candidacy, rested = Candidacy(Alone()), list[float | None]()
    monkeypatch.setattr(candidacy.stop, "wait", lambda seconds=None: rested.append(seconds))
    for _ in range(4):
        assert candidacy.wait()
        with candidacy.leadership():
            raise AWAY
    assert rested == [1.0, 2.0, 3.0]
    candidacy.stop.set()
    assert not candidacy.wait()


def test_without_an_election_a_journal_that_cannot_be_opened_ends_it() -> None:
    candidacy = Candidacy()
    assert candidacy.wait()
    with pytest.raises(JournalError), candidacy.leadership():
        raise AWAY
