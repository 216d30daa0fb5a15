"""``validate`` of a working copy finds a slip before the push: it compares with the upstream of the branch as it
is known here, without one with HEAD, and asks no remote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.fleet import Fleet


@pytest.fixture
def committed(fleet: Fleet) -> Fleet:
    """A work tree whose agents are in HEAD and were never pushed; the remote is gone."""
    fleet.commit({f"fleet/{name}.yaml": fleet.agent(name) for name in "ab"}, push=False)
    shutil.rmtree(fleet.bare)
    return fleet


def slips(fleet: Fleet, *where: str, code: int) -> list[str]:
    answer = fleet.ask("validate", *where, code=code)
    assert answer["comparedWith"] == f"HEAD {fleet.head()[:10]}"
    return [each["address"] for each in answer["findings"] if each["code"] == "VanishedDocument"]


def test_a_file_that_lost_its_agent_is_an_error_and_a_deleted_one_is_not(committed: Fleet) -> None:
    path = committed.work / "fleet" / "a.yaml"
    whole = path.read_text(encoding="utf-8")
    assert slips(committed, code=0) == []
    path.write_text("# later\n", encoding="utf-8")
    assert slips(committed, code=3) == ["fleet/a.yaml:1:1"]
    assert slips(committed, "fleet", code=3) == ["a.yaml:1:1"], "a folder below the root"
    committed.git("add", "-A")
    assert slips(committed, code=3) == ["fleet/a.yaml:1:1"], "what is staged is not in HEAD yet"
    text = committed.call("validate")
    assert text.out.splitlines()[-1].startswith(f"invalid (compared with HEAD {committed.head()[:10]}): 1 error")
    path.unlink()
    assert slips(committed, code=0) == []
    path.with_suffix(".yaml.bak").write_text(whole, encoding="utf-8")
    assert slips(committed, code=3) == ["fleet/a.yaml.bak:1:1"], "moved to where it is not read"
    path.with_suffix(".yaml.bak").rename(path.with_name("c.yaml"))
    assert slips(committed, code=0) == []
    path.with_name("c.yaml").unlink()
    path.write_text(whole, encoding="utf-8")
    assert slips(committed, code=0) == []


def test_a_copy_that_is_not_read_and_was_there_before_is_not_where_a_file_was_moved(committed: Fleet) -> None:
    path = committed.work / "fleet" / "a.yaml"
    committed.commit({"templates/a.yaml.example": path.read_text(encoding="utf-8")}, push=False)
    path.unlink()
    assert slips(committed, code=0) == []


def test_a_slip_that_is_committed_and_not_pushed_is_found_by_the_upstream(fleet: Fleet) -> None:
    pushed = fleet.commit({f"fleet/{name}.yaml": fleet.agent(name) for name in "ab"}, push=False)
    fleet.git("push", "-q", "-u", "origin", "main")
    shutil.rmtree(fleet.bare)
    fleet.commit({"fleet/a.yaml": "# later\n"}, push=False)
    answer = fleet.ask("validate", code=3)
    assert answer["comparedWith"] == f"origin/main {pushed[:10]}"
    assert "fleet/a.yaml:1:1" in [each["address"] for each in answer["findings"]]
    fleet.git("checkout", "-q", "--detach")
    assert slips(fleet, code=0) == [], "no branch, so no upstream"


def test_a_linked_work_tree_has_a_head_of_its_own(committed: Fleet, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    committed.git("worktree", "add", "-q", "--detach", str(linked))
    (linked / "fleet" / "b.yaml").write_text("", encoding="utf-8")
    assert slips(committed, str(linked), code=3) == ["fleet/b.yaml:1:1"]


def test_a_head_that_is_not_valid_is_said_and_keeps_no_fix_from_being_valid(committed: Fleet) -> None:
    broken = committed.commit({"fleet/a.yaml": committed.agent("a", lifecycle=1)}, push=False)
    (committed.work / "fleet" / "a.yaml").write_text(committed.agent("a"), encoding="utf-8")
    answer = committed.ask("validate")
    assert answer["comparedWith"] == f"nothing: HEAD {broken[:10]} is not valid, or not all here"


def test_without_a_commit_or_a_work_tree_nothing_is_compared(fleet: Fleet, tmp_path: Path) -> None:
    (fleet.work / "a.yaml").write_text(fleet.agent("a"), encoding="utf-8")
    assert fleet.ask("validate")["comparedWith"] is None
    plain = tmp_path / "plain"
    plain.mkdir()
    shutil.copy(fleet.work / "a.yaml", plain)
    assert fleet.ask("validate", str(plain))["comparedWith"] is None
    assert fleet.call("validate", str(plain)).out == "valid\n"


def test_nothing_that_the_repository_or_the_environment_names_is_run_or_asked(
    committed: Fleet, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.alternateRefsCommand", "diff.external"):
        committed.git("config", name, str(program))
    index = (committed.work / ".git" / "index").read_bytes()
    elsewhere = {"GIT_DIR": str(tmp_path), "GIT_EXTERNAL_DIFF": str(program), "GIT_PAGER": str(program)}
    (committed.work / "fleet" / "a.yaml").write_text("", encoding="utf-8")
    answer = committed.ask("validate", code=3, **elsewhere)
    assert [each["code"] for each in answer["findings"] if each["severity"] == "error"] == ["VanishedDocument"]
    assert not ran.exists()
    assert (committed.work / ".git" / "index").read_bytes() == index
