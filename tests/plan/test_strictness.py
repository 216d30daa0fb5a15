"""The stricter of two policies: at least as strict as both in every field, whoever is old and who is new."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_agent.model.document import PolicySpec
from gitops_agent.model.policy_merge import is_looser, limits_of, stricter
from gitops_agent.model.strict import Strict

pytestmark = pytest.mark.unit

durations = st.sampled_from(["0s", "500ms", "30s", "1m", "60s", "1h30m", "12h"])
counts = st.integers(1, 20)
thresholds = st.fixed_dictionaries(
    {}, optional={"min": counts, "ratio": st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0])}
)
limits = {
    "rollout": st.fixed_dictionaries(
        {},
        optional={
            "canary": counts,
            "second": st.sampled_from(["0%", "9%", "10%", "100%"]),
            "pause": durations,
            "healthTimeout": durations,
            "onFailure": st.sampled_from(["Hold", "ProposeRevert", "Revert"]),
        },
    ),
    "freezeReminder": durations,
    "massDrift": thresholds,
    "massDelete": thresholds,
    "massChange": st.none() | thresholds,
    "actionsPerMinute": st.integers(1, 1000),
    "oscillation": st.fixed_dictionaries({}, optional={"repairs": counts, "window": durations}),
    "backoff": st.fixed_dictionaries(
        {}, optional={"first": st.sampled_from(["100ms", "2s"]), "longest": st.sampled_from(["2s", "1h"])}
    ),
    "breaker": st.fixed_dictionaries({}, optional={"failures": counts, "pause": durations}),
    "hostRestart": st.fixed_dictionaries({}, optional={"atOnce": counts}),
    "provisioning": st.fixed_dictionaries(
        {}, optional={"deadline": durations, "onTimeout": st.sampled_from(["Keep", "Compensate"])}
    ),
    "forcePush": st.sampled_from(["refuse", "follow"]),
    "freeze": st.none() | st.just({"reason": "audit"}),
}
tenants = st.dictionaries(
    st.sampled_from(["acme", "umbrella"]), st.fixed_dictionaries({}, optional=limits), max_size=2
)
policies = st.fixed_dictionaries({}, optional={**limits, "tenants": tenants}).map(PolicySpec.model_validate)
thorough = settings(suppress_health_check=list(HealthCheck))


def check_strict(strict: Any, other: Any, path: str = "") -> None:
    """No field of the first gives more room than the same field of the other."""
    if other is None:
        return
    assert strict is not None, f"{path} was switched off"
    for name in type(other).model_fields:
        if name in ("freeze", "tenants"):
            continue
        mine, theirs = getattr(strict, name), getattr(other, name)
        if isinstance(theirs, Strict):
            check_strict(mine, theirs, f"{path}.{name}")
        elif theirs is not None:
            assert mine is not None, f"{path}.{name} was switched off"
            assert not is_looser(name, mine, theirs), f"{path}.{name}: {mine} is looser than {theirs}"


@thorough
@given(policies, policies)
def test_the_stricter_is_at_least_as_strict_as_both(new: PolicySpec, old: PolicySpec) -> None:
    both = stricter(new, old)
    for tenant in (None, "acme", "umbrella", "other"):
        for each in (new, old):
            check_strict(limits_of(both, tenant), limits_of(each, tenant), str(tenant))


def measured(policy: PolicySpec) -> Any:
    """A policy without its freezes; 1m and 60s are the same."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if name != "freeze"}
        return "1m" if value == "60s" else value

    return plain(policy.model_dump())


@thorough
@given(policies, policies, policies)
def test_it_does_not_matter_which_is_old_but_for_the_freeze(a: PolicySpec, b: PolicySpec, c: PolicySpec) -> None:
    assert measured(stricter(a, b)) == measured(stricter(b, a))
    assert measured(stricter(stricter(a, b), c)) == measured(stricter(a, stricter(b, c)))
    assert measured(stricter(a, a)) == measured(a)
    assert stricter(a, None) is a
    assert stricter(a, b).freeze == a.freeze, "a freeze comes from the newest policy alone"


@thorough
@given(policies)
def test_a_tenant_is_never_looser_than_the_fleet(policy: PolicySpec) -> None:
    for tenant in ("acme", "umbrella"):
        check_strict(limits_of(policy, tenant), limits_of(policy, None), tenant)
        check_strict(limits_of(policy, tenant), _set_only(policy, tenant), tenant)


def _set_only(policy: PolicySpec, tenant: str) -> Any:
    """What a tenant says of itself, for the sections it says anything of."""
    own = policy.tenants.get(tenant)
    if own is None:
        return None
    # A section the tenant leaves out is that of the fleet, not the default.
    given_ = own.model_fields_set - {"freeze"}
    return policy.model_copy(update={name: getattr(own, name) for name in given_})


def test_a_policy_loosened_in_the_same_commit_changes_nothing() -> None:
    old = PolicySpec()
    new = PolicySpec.model_validate(
        {"massDelete": {"min": 100, "ratio": 1.0}, "actionsPerMinute": 100_000, "forcePush": "follow"}
    )
    assert measured(stricter(new, old)) == measured(old)


def test_a_tenant_that_only_one_policy_names_keeps_its_numbers() -> None:
    own = PolicySpec.model_validate({"tenants": {"acme": {"massDelete": {"min": 1}}}})
    for both in (stricter(PolicySpec(), own), stricter(own, PolicySpec())):
        assert limits_of(both, "acme").mass_delete.min == 1


def leaves(section: Any) -> dict[str, Any]:
    """Every field of a section that is no section itself, by its path."""
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Strict):
            found.update({f"{name}.{path}": leaf for path, leaf in leaves(value).items()})
        elif name not in ("freeze", "tenants"):
            found[name] = value
    return found


@thorough
@given(policies, policies)
def test_the_stricter_is_no_stricter_than_somebody_asked_for(new: PolicySpec, old: PolicySpec) -> None:
    both = stricter(new, old)
    for tenant in (None, "acme", "umbrella", "other"):
        asked = [leaves(limits_of(each, tenant)) for each in (new, old)]
        for path, value in leaves(limits_of(both, tenant)).items():
            assert value in [each[path] for each in asked if path in each], (tenant, path)
