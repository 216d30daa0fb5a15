"""A newer version refuses what is in force: agents are repaired by it all the same, and the way out is said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import gitops_agent
from tests.support.fleet import CALL, Fleet, Json

BOUND = 'Bounds("24h")'
TOO_LONG = {"healthTimeout": "48h"}


def once_with_an_earlier_version(fleet: Fleet, folder: Path) -> None:
    """``once`` by a copy of this package that takes longer durations."""
    package = folder / "gitops_agent"
    shutil.copytree(Path(gitops_agent.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    scalars = package / "model" / "scalars.py"
    text = scalars.read_text(encoding="utf-8")
    assert BOUND in text
    scalars.write_text(text.replace(BOUND, 'Bounds("480h")'), encoding="utf-8")
    world = {**fleet.environment, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        fleet.command("once"), env=world, cwd=folder, capture_output=True, text=True, timeout=CALL, check=False
    )
    assert done.returncode == 0, done.stderr


def stricter(answer: Json) -> list[str]:
    return [each["address"] for each in answer["findings"] if each["code"] == "StricterRules"]


def test_what_a_newer_version_refuses_stays_in_force_and_the_next_good_commit_goes_on(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet_of_three = fleet.agents("a", "b", "c")
    good = fleet.commit({**fleet_of_three, "b.yaml": fleet.agent("b", rollout=TOO_LONG)})
    once_with_an_earlier_version(fleet, tmp_path / "earlier")
    pids = {name: fleet.pid(name) for name in "abc"}
    killed = fleet.kill("b")

    answer = fleet.once()
    assert (answer["commit"], answer["enforced"], answer["phase"]) == (good, good, "Converged")
    assert [place.rpartition(":")[0].split(":")[0] for place in stricter(answer)][1:] == ["b.yaml"]
    assert fleet.pid("b") != killed, "it is repaired"
    assert [fleet.pid(name) for name in "ac"] == [pids["a"], pids["c"]], "nothing is restarted"
    assert "StricterRules" in fleet.note(good)

    pids = {name: fleet.pid(name) for name in "abc"}
    untouched = fleet.commit({"d.yaml": fleet.agent("d")})
    answer = fleet.once(code=3)
    assert (answer["commit"], answer["enforced"], answer["phase"]) == (untouched, good, "Invalid")
    assert "OutOfRange" in {each["code"] for each in answer["findings"]}
    assert {name: fleet.pid(name) for name in "abc"} == pids

    fixed = fleet.commit({"b.yaml": fleet.agent("b")})
    answer = fleet.once()
    assert (answer["enforced"], answer["phase"], stricter(answer)) == (fixed, "Converged", [])
    assert {name: fleet.pid(name) for name in "abc"} == pids, "a time limit restarts nothing"
    assert fleet.pids("d")
