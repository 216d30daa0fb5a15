"""The one table of confidence, cell by cell, and how signals are read from an observation and a cross-check."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.model.observation import Evidence, Owner
from gitops_agent.model.plan import Confidence, Verb
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.confidence import FRESH_SECONDS, Signals, confidence_of, read_signals
from tests.plan import make

pytestmark = pytest.mark.unit

LINES = (Path(__file__).parent / "tables" / "confidence.txt").read_text(encoding="utf-8").splitlines()
ROWS = [tuple(line.split()) for line in LINES if line and not line.startswith("#")]
RISING = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def signals(owner: str, evidence: str, action: str, repairs: str, authority: str, sources: str) -> Signals:
    return Signals(
        owner_clear=owner == "clear",
        sources=int(sources),
        authoritative=authority == "yes",
        fresh=evidence == "fresh",
        destructive=action == "destroys",
        repeated=repairs == "often",
    )


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_cell(row: tuple[str, ...]) -> None:
    *words, expected = row
    assert confidence_of(signals(*words)) == expected


def test_the_table_has_every_cell_once() -> None:
    columns = zip(*(row[:-1] for row in ROWS), strict=True)
    every = set(product(*(set(column) for column in columns)))
    assert {row[:-1] for row in ROWS} == every
    assert len(ROWS) == len(every) == 96


def expected(*words: str) -> int:
    return RISING.index(Confidence(next(row[-1] for row in ROWS if row[:-1] == words)))


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_better_evidence_never_makes_us_less_sure(row: tuple[str, ...]) -> None:
    """In the data itself: each signal on its own, everything else being equal."""
    owner, evidence, action, repairs, authority, sources = row[:-1]
    here = expected(*row[:-1])
    assert expected("clear", evidence, action, repairs, authority, sources) >= here
    assert expected(owner, "fresh", action, repairs, authority, sources) >= here
    assert expected(owner, evidence, "mends", repairs, authority, sources) >= here
    assert expected(owner, evidence, action, "seldom", authority, sources) >= here
    assert expected(owner, evidence, action, repairs, "yes", sources) >= here
    assert expected(owner, evidence, action, repairs, authority, "2") >= here


def test_more_than_two_sources_are_as_good_as_two() -> None:
    for row in ROWS:
        if row[5] == "2":
            assert confidence_of(signals(*row[:5], "7")) == row[-1]


# -- reading


def read(
    owner: Owner = Owner.OURS, *, adopted: bool = False, age: float = 0.0, sources: Any = (), **more: Any
) -> Signals:
    evidence = tuple(Evidence(source, "gone", make.NOW) for source in sources)
    seen = make.live(make.key("t/a"), {"a": 1}, owner, observed_at=make.NOW - age, evidence=evidence, **more)
    return read_signals(seen, Verb.UPDATE, adopted=adopted, repeated=False, now=make.NOW)


def test_owners() -> None:
    assert read().owner_clear
    assert not read(Owner.NONE).owner_clear
    assert read(Owner.NONE, adopted=True).owner_clear
    assert not read(Owner.OTHER, adopted=True).owner_clear
    absent = make.live(make.key("t/a"), None, Owner.NONE)
    assert read_signals(absent, Verb.CREATE, adopted=False, repeated=False, now=make.NOW).owner_clear


def test_freshness_at_its_edge_and_when_the_clock_jumped_back() -> None:
    assert read(age=FRESH_SECONDS).fresh
    assert not read(age=FRESH_SECONDS + 1).fresh
    assert read(age=-10_000).fresh


def test_sources_are_counted_once_and_an_authority_is_known() -> None:
    assert (read().sources, read().authoritative) == (1, False)
    assert read(sources=["file", "file", "api"]).sources == 2
    assert read(sources=["kernel"], authoritative=True).authoritative
    assert not read(sources=["kernel"]).authoritative


@pytest.mark.parametrize(
    ("sources", "confidence"), [(["api"], Confidence.MEDIUM), (["api", "file"], Confidence.HIGH)]
)
def test_a_second_source_makes_us_sure_enough_to_delete(sources: list[str], confidence: Confidence) -> None:
    evidence = tuple(Evidence(source, "there", make.NOW) for source in sources)
    seen = make.live(make.key("t/a"), {"a": 1}, evidence=evidence)
    assert (
        confidence_of(read_signals(seen, Verb.DELETE, adopted=False, repeated=False, now=make.NOW)) is confidence
    )


@pytest.mark.parametrize(
    ("agree", "oppose", "sources", "confidence"),
    [
        (1, 0, 1, Confidence.HIGH),
        (2, 1, 2, Confidence.HIGH),
        (1, 1, 0, Confidence.LOW),
        (1, 2, 0, Confidence.LOW),
    ],
)
def test_of_an_agent_that_is_alive_the_cross_check_decides_and_not_the_driver(
    agree: int, oppose: int, sources: int, confidence: Confidence
) -> None:
    seen = make.live(make.key("t/a"), {"a": 1}, authoritative=True)
    health = Health(HealthState.UNHEALTHY, "Suspended", "suspended", agree=agree, oppose=oppose)
    found = read_signals(seen, Verb.UPDATE, health, adopted=False, repeated=False, now=make.NOW)
    assert (found.sources, found.authoritative) == (sources, False)
    assert confidence_of(found) is confidence


def test_an_authority_is_sure_that_an_object_is_gone() -> None:
    gone = make.live(make.key("t/a"), None, authoritative=True)
    found = read_signals(gone, Verb.CREATE, adopted=False, repeated=False, now=make.NOW)
    assert found.authoritative
    assert confidence_of(found) is Confidence.HIGH
