"""A program that dies within the bake time takes down the canary alone, whatever else its commit says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fleet import Fleet

NAMES = ("a", "b", "c", "d")
PROBE = {"exec": {"command": ["sh", "-c", 'test "$MODE" = good']}, "period": "200ms"}
GOOD: dict[str, Any] = {
    "runtime": {"command": ["sleep", "600"], "minUptime": "1s", "env": [{"name": "MODE", "value": "good"}]},
    "probes": {"readiness": PROBE},
    "rollout": {"healthTimeout": "3s"},
}


def changed(**runtime: Any) -> dict[str, Any]:
    return {**GOOD, "runtime": {**GOOD["runtime"], **runtime}}


SHORT_LIFE = ["sh", "-c", "sleep 1.6; exit 3"]
# Dies once, then stays: it is Ready whenever anyone looks for the rest of the bake time.
DIES_ONCE = ["sh", "-c", "test -e died && exec sleep 600; touch died; sleep 0.5; exit 3"]
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "it dies after a moment": (changed(command=SHORT_LIFE), None),
    "no uptime is asked for": (changed(command=SHORT_LIFE, minUptime="0s"), None),
    "its probes go": ({**changed(command=SHORT_LIFE), "probes": {}}, None),
    "the bake is shortened": (changed(command=SHORT_LIFE, minUptime="0s"), {"rollout": {"bake": "0s"}}),
    "it is started again and stays": ({**changed(command=DIES_ONCE, minUptime="0s"), "probes": {}}, None),
    "it lives, and only the probe that goes would tell": (
        {**changed(env=[{"name": "MODE", "value": "bad"}]), "probes": {}},
        None,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_agent_beyond_the_canary_is_touched(fleet: Fleet, form: str) -> None:
    spec, policy = FORMS[form]
    # The default of 10 s; nothing in this test takes as long.
    fleet.commit(fleet.agents(*NAMES, **GOOD) | {"p.yaml": fleet.policy(rollout={"bake": "10s"})})
    fleet.once()
    before = {name: fleet.pid(name) for name in NAMES}
    news = {} if policy is None else {"p.yaml": fleet.policy(**policy)}
    bad = fleet.commit(fleet.agents(*NAMES, **spec) | news)
    answer = fleet.once(code=5)
    assert (answer["commit"], answer["phase"]) == (bad, "Degraded")
    assert {name: fleet.pid(name) for name in NAMES[1:]} == {name: before[name] for name in NAMES[1:]}
    assert fleet.note(bad).splitlines()[0].startswith(f"{fleet.instance}: Degraded")
    held = [each for each in answer["findings"] if each["code"] == "RolloutHeld"]
    assert fleet.key("a") in held[0]["summary"]
    word = "earlier readiness probe" if "would tell" in form else "did not stay up since its release"
    assert word in held[0]["summary"]


def test_a_fleet_of_one_is_taken_back_too(fleet: Fleet) -> None:
    policy = fleet.policy(rollout={"bake": "3s", "onFailure": "Revert"})
    fleet.commit(fleet.agents("a", **GOOD) | {"p.yaml": policy})
    fleet.once()
    bad = fleet.commit(fleet.agents("a", **changed(command=SHORT_LIFE)))
    answer = fleet.once()
    assert answer["commit"] != bad
    assert answer["phase"] == "Converged"
    assert fleet.note(bad).splitlines()[0].startswith(f"{fleet.instance}: Degraded")


def test_new_instructions_for_one_prove_nothing_about_a_new_program_for_others(fleet: Fleet) -> None:
    policy = fleet.policy(rollout={"bake": "3s"})
    fleet.commit(fleet.agents(*NAMES, **GOOD) | {"p.yaml": policy})
    fleet.once()
    before = {name: fleet.pid(name) for name in NAMES}
    words = fleet.agents("a", **{**GOOD, "instructions": "Be brief."})
    bad = fleet.commit(words | fleet.agents("b", "c", "d", **changed(command=SHORT_LIFE)))
    answer = fleet.once(code=5)
    assert (answer["commit"], answer["phase"]) == (bad, "Degraded")
    assert fleet.pid("a") != before["a"]
    assert {name: fleet.pid(name) for name in ("c", "d")} == {name: before[name] for name in ("c", "d")}
