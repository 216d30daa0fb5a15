"""How demo agents read numbers out of their instructions."""

from __future__ import annotations

import re


def first_number(text: str, *, default: int) -> int:
    """The first whole number in a text."""
    found = re.search(r"[0-9]{1,9}", text)
    return int(found.group()) if found else default
