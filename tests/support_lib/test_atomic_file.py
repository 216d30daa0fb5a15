"""Files replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitops_agent.support.atomic_file import remove_at, write_atomic, write_atomic_at


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for data in (b"one", b"two"):
        write_atomic(path, data, mode=0o644)
        assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    write_atomic(path, b"old")

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    (tmp_path / "link").symlink_to(target)
    folder = os.open(tmp_path, os.O_RDONLY)
    write_atomic_at(folder, "link", b"new")
    assert target.read_bytes() == b"untouched"
    assert not (tmp_path / "link").is_symlink()
    remove_at(folder, "link")
    remove_at(folder, "link")
    os.close(folder)
    assert list(tmp_path.iterdir()) == [target]
