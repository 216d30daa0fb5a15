"""The mark on a Secret by which its values are known again, also when people wrote something else there."""

from __future__ import annotations

import pytest

from gitops_agent.drivers.kubernetes.secrets import fits, marked

VALUES = {"TOKEN": "caf\u00e9"}


def test_a_mark_fits_its_values_and_no_others() -> None:
    mark = marked(VALUES)
    assert fits(mark, VALUES)
    assert not fits(mark, {"TOKEN": "tea"})
    assert mark != marked(VALUES), "salted"


@pytest.mark.parametrize("mark", ["", "\u00e9", "\u00e9.\u00e9", ".", "salt.digest"])
def test_a_mark_that_people_wrote_fits_nothing(mark: str) -> None:
    assert not fits(mark, VALUES)
