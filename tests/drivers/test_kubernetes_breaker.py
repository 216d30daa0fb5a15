"""Which answers of an API server count for the circuit breaker of its cluster: those that others may meet too."""

from __future__ import annotations

import orjson
import pytest

from gitops_agent.drivers.kubernetes.errors import (
    CUT,
    REFUSED,
    TIMEOUT,
    TLS,
    UNREACHABLE,
    ApiError,
    Rejected,
    apply_error,
    from_status,
)

pytestmark = pytest.mark.unit

OF_A_TENANT = [
    (403, 'User "bot" cannot patch resource "deployments" in API group "apps" in the namespace "acme"'),
    (403, "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"),
    (403, 'violates PodSecurity "baseline:latest": host namespaces'),
    (400, 'admission webhook "rules" denied the request: no'),
    (404, 'namespaces "acme" not found'),
    # Webhooks are often for some namespaces only.
    (500, 'Internal error occurred: failed calling webhook "rules.example": context deadline exceeded'),
    (409, "the object has been modified"),
]


def answer(status: int, message: str) -> ApiError:
    return from_status(status, orjson.dumps({"kind": "Status", "message": message}), {})


@pytest.mark.parametrize(("status", "message"), OF_A_TENANT)
def test_what_is_refused_to_one_tenant_does_not(status: int, message: str) -> None:
    meant = apply_error(answer(status, message), "apply Deployment acme/a")
    assert isinstance(meant, Rejected)
    assert not meant.of_system
    assert not meant.permanent, "it is tried again"


@pytest.mark.parametrize("reason", [REFUSED, CUT, TIMEOUT, TLS, UNREACHABLE])
def test_no_answer_does(reason: str) -> None:
    assert apply_error(ApiError(0, reason, "no answer"), "apply Deployment acme/a").of_system


@pytest.mark.parametrize("status", [401, 500, 502, 503, 504])
def test_a_server_that_fails_or_knows_us_no_more_does(status: int) -> None:
    assert apply_error(answer(status, "went wrong"), "apply Deployment acme/a").of_system


@pytest.mark.parametrize("reason", ["NamespaceNotTheirs", "NamespaceMissing", "Conflicting"])
def test_our_own_refusals_do_not(reason: str) -> None:
    assert not Rejected(reason, "not for this tenant").of_system
