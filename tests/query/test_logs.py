"""Logs come from the driver of the runtime, also those of an agent that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import LogLine
from gitops_agent.drivers.local.log_files import read_logs
from gitops_agent.errors import UsageError
from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import ResourceStatus
from gitops_agent.query.fleet import agent_logs, instances
from tests.report.values import BOT, NOW, Explanation, a_status, an_entry, explanation_shape, runtime_key

pytestmark = pytest.mark.unit


class MemoryLogs:
    """The logs of one driver, in memory."""

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        yield from [LogLine("0", f"{agent} {number}") for number in range(lines)]


class MemoryDrivers:
    """Connections to one driver, ``process``."""

    def logging(self, name: str) -> MemoryLogs | None:
        return MemoryLogs() if name == "process" else None


def ask(known: Explanation) -> list[str]:
    drivers: Any = MemoryDrivers()
    return [line.text for line in agent_logs(known.agent, explanation_shape(known), drivers, 2, follow=False)]


def test_the_driver_of_the_runtime_has_the_logs() -> None:
    assert ask(Explanation(BOT, NOW, a_status())) == [f"{BOT} 0", f"{BOT} 1"]
    assert ask(Explanation(BOT, NOW, None, entries=[an_entry()])) == [f"{BOT} 0", f"{BOT} 1"], "it is gone"


def test_no_logs_is_said_with_the_reason() -> None:
    with pytest.raises(UsageError, match="nothing of it was ever started"):
        ask(Explanation(BOT, NOW, a_status(resources=())))
    with pytest.raises(UsageError, match="the driver billing keeps none"):
        ask(Explanation(BOT, NOW, a_status(resources=(ResourceStatus(runtime_key(), "billing", "Running", ""),))))


def test_instances_go_by_their_index() -> None:
    live = {"replicas": [{"index": 0, "pod": "a"}, {"index": 2, "pod": "b"}]}
    status = a_status(resources=(ResourceStatus(runtime_key(), "pods", "Running", "", live),))
    assert instances(explanation_shape(Explanation(BOT, NOW, status))) == ["0", "2"]
    assert instances(explanation_shape(Explanation(BOT, NOW, None))) == []


def test_a_log_that_was_rotated_just_now_is_read_from_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "0.log.1").write_text("one\ntwo\nthree\n")
    (tmp_path / "0.log").write_text("")
    assert [line.text for line in read_logs(tmp_path, 2, follow=False)] == ["two", "three"]
    (tmp_path / "0.log").write_text("four\n")
    assert [line.text for line in read_logs(tmp_path, 2, follow=False)] == ["three", "four"]
