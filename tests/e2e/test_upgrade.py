"""A newer version refuses what is in force: agents are repaired by it all the same, and the way out is said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import gitops_agent
from tests.support.fleet import CALL, Fleet, Json

EARLIER = {
    "scalars.py": ('Bounds("24h")', 'Bounds("480h")'),
    "document.py": ("    actions_per_minute:", "    actions_per_pass: int = 5\n    actions_per_minute:"),
}
"""What the models of an earlier version said instead: longer durations, and a field of the policy that left."""


def once_with_an_earlier_version(fleet: Fleet, folder: Path) -> None:
    """``once`` by a copy of this package with other rules."""
    package = folder / "gitops_agent"
    shutil.copytree(Path(gitops_agent.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (now, then) in EARLIER.items():
        path = package / "model" / name
        text = path.read_text(encoding="utf-8")
        assert now in text
        path.write_text(text.replace(now, then), encoding="utf-8")
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
    policy = fleet.policy(actionsPerPass=7, actionsPerMinute=70)
    too_long = fleet.agent("b", rollout={"healthTimeout": "48h"})
    good = fleet.commit({**fleet_of_three, "b.yaml": too_long, "policy.yaml": policy})
    once_with_an_earlier_version(fleet, tmp_path / "earlier")
    pids = {name: fleet.pid(name) for name in "abc"}
    killed = fleet.kill("b")

    answer = fleet.once()
    assert (answer["commit"], answer["enforced"], answer["phase"]) == (good, good, "Converged")
    assert [place.split(":")[0] for place in stricter(answer)] == [good[:10], "b.yaml", "policy.yaml"]
    assert fleet.pid("b") != killed, "it is repaired"
    assert [fleet.pid(name) for name in "ac"] == [pids["a"], pids["c"]], "nothing is restarted"
    assert "StricterRules" in fleet.note(good)

    pids = {name: fleet.pid(name) for name in "abc"}
    untouched = fleet.commit({"d.yaml": fleet.agent("d")})
    answer = fleet.once(code=3)
    assert (answer["commit"], answer["enforced"], answer["phase"]) == (untouched, good, "Invalid")
    assert {"OutOfRange", "UnknownField"} <= {each["code"] for each in answer["findings"]}
    assert {name: fleet.pid(name) for name in "abc"} == pids

    fixed = fleet.commit({"b.yaml": fleet.agent("b"), "policy.yaml": fleet.policy(actionsPerMinute=70)})
    answer = fleet.once()
    assert (answer["enforced"], answer["phase"], stricter(answer)) == (fixed, "Converged", [])
    assert {name: fleet.pid(name) for name in "abc"} == pids, "a time limit restarts nothing"
    assert fleet.pids("d")
