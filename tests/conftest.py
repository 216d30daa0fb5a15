"""How deep property tests look, and in which order tests run.

``make test`` looks at few examples of each law, ``make campaign`` (``HYPOTHESIS_PROFILE=campaign``) at many. So no
test names a number of its own.
"""

from __future__ import annotations

import os

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what Hypothesis drives, and put the longest first; a stable sort keeps the rest as it was."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("law")
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((n for n, start in enumerate(LONG_FIRST) if item.nodeid.startswith(start)), len(LONG_FIRST))
