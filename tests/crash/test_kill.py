"""``kill -9`` of gitops-agent at journal writes and around effects, over real processes.

`make test` takes a point of every kind, `make campaign` (``KILL_POINTS=all``) every point; in memory every
point is taken each time (tests/pipeline/test_crashes.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
EVERY_POINT = os.environ.get("KILL_POINTS") == "all"
PARTS = 4 if EVERY_POINT else 1
KILLED = -9
ALL = ["--all"] if EVERY_POINT else []


def campaign(folder: Path, part: int) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.campaign", str(folder), str(part), str(PARTS), *ALL],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = map(json.loads, done.stdout.splitlines())
    return first["counted"], rest


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_anywhere_is_healed_by_one_call(lair: Path, part: int) -> None:
    points, kills = campaign(lair, part)
    for act, found in points.items():
        assert "journal.begin:after:1" in found, act
        assert "apply:after:1" in found, act
        assert "journal.finish:after:1" in found, act
    least = max(map(len, points.values())) if EVERY_POINT else 4 * len(points)
    assert len(kills) >= least // PARTS
    for told in kills:
        check(told)
    # Lanes of two agents may share a write, so a run may have one write less than the one that was counted.
    ends = Counter(told["ended"] for told in kills if told["point"])
    assert ends[KILLED] >= 0.8 * ends.total(), ends


def check(told: dict[str, Any]) -> None:
    agents = ["one", "two"] if told["act"] == "first" else ["one"]
    about = json.dumps(told, indent=1)
    assert told["ended"] in (KILLED, 0), about
    assert told["code"] == 0, about
    # No agent runs twice and none is lost, also in between.
    assert all(len(pids) <= 1 for pids in told["between"].values()), about
    assert {name: len(pids) for name, pids in told["after"].items()} == {
        "one": 1,
        "two": 1 if "two" in agents else 0,
    }, about
    # The journal opens, is whole, and tells the story to its end.
    assert told["sound"], about
    assert told["open"] == 0, about
    assert (told["phase"], told["followed"]) == ("Converged", True), about
    assert told["ready"] == told["recorded"] == agents, about
    # What was done before the kill is not done again, and nobody else is touched.
    if told["act"] in ("first", "drift"):
        assert not told["between"]["one"] or told["between"]["one"] == told["after"]["one"], about
    if told["act"] == "change" and told["between"]["one"] not in ([], told["before"]["one"]):
        assert told["between"]["one"] == told["after"]["one"], about
    if told["act"] == "delete":
        assert told["before"]["one"] == told["after"]["one"], about
