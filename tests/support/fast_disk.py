"""Journals that do not wait for the disk.

A kill does not empty the page cache, so nothing but a power cut could tell the difference, and waiting for the
disk is most of what such tests cost. What the product sets is asserted by ``tests/journal/test_store.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event


def hurry(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF").close()


@pytest.fixture(autouse=True)
def fast_disk() -> Iterator[None]:
    event.listen(Engine, "connect", hurry)
    yield
    event.remove(Engine, "connect", hurry)
