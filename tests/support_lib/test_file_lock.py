"""Locks on files: one holder at a time, seen by others, gone with the open file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitops_agent.support.file_lock import (
    is_at,
    is_file_locked,
    lock,
    locked,
    open_lock_file,
    try_lock,
)


def test_a_lock_has_one_holder_and_ends_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_file_locked(path)
    with locked(path) as handle:
        other = open_lock_file(path)
        assert is_file_locked(path)
        assert not try_lock(other)
        with pytest.raises(TimeoutError, match=r"held the lock for 0\.05 s"):
            lock(other, 0.05)
        assert is_at(handle, path)
    assert not is_file_locked(path)
    assert try_lock(other)
    os.close(other)
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_replaced_is_locked_where_others_look(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    old = open_lock_file(path)
    path.unlink()
    with locked(path, 1.0) as handle:
        assert is_at(handle, path)
        assert not is_at(old, path)
    os.close(old)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock_file(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_a_new_file_is_not_one_that_is_there(tmp_path: Path) -> None:
    os.close(open_lock_file(tmp_path / "lock", new=True))
    with pytest.raises(FileExistsError):
        open_lock_file(tmp_path / "lock", new=True)
