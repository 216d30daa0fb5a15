"""How deep property tests look, and in which order tests run.

``make test`` looks at few examples of each law, ``make campaign`` (``HYPOTHESIS_PROFILE=campaign``) at many. So no
test names a number of its own.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.support.shared_statements import share_statements

share_statements()

FEW, MANY = 20, 200
settings.register_profile("few", max_examples=FEW, deadline=None)
settings.register_profile("campaign", max_examples=MANY, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

LONG_FIRST = (
    "tests/crash/",
    "tests/e2e/test_typo_incident.py",
    "tests/e2e/test_stops.py",
    "tests/remote_driver/",
    "tests/e2e/",
    "tests/pipeline/test_machine.py",
)
"""Where the longest tests are, longest first: one that is begun last keeps one core busy and the other idle."""

SERVERS = ("tests/servers/", "tests/kubernetes/")
"""What runs real servers: left out of ``make test``, all of ``make test-servers``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what Hypothesis drives and what runs servers, and put the longest first; the rest stays as it was."""
    for item in items:
        if item.nodeid.startswith(SERVERS):
            item.add_marker("servers")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("law")
    items.sort(key=_place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what is left out when servers are required: ``make test-servers`` proves all or says what not.

    With a cluster of the user, tests that need control over its servers may be left out; they are listed.
    """
    report = yield
    required = "SERVERS_REQUIRED" in os.environ and not os.environ.get("GITOPS_AGENT_TEST_KUBECONFIG")
    if required and report.skipped and not hasattr(report, "wasxfail") and "servers" in item.keywords:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"left out, but servers are required: {reason}"
    return report


def _place(item: pytest.Item) -> int:
    return next((n for n, start in enumerate(LONG_FIRST) if item.nodeid.startswith(start)), len(LONG_FIRST))
