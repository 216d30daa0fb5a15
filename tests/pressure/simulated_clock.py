"""gitops-agent under a simulated wall clock that jumps, as a machine without a battery has before NTP answers.

    python -m tests.pressure.simulated_clock OFFSET_FILE run --repo …

Only the wall clock is simulated, by the seconds that the file holds at each moment: monotonic time, files and the
kernel's start times stay real, as they do when a clock is set.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo
from importlib import import_module
from pathlib import Path
from types import ModuleType


class Offset:
    """The seconds in a file, read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> float:
        try:
            return float(self._path.read_text() or 0.0)
        except (OSError, ValueError):
            return 0.0


def jumping_datetime(offset: Offset) -> type[datetime]:
    """A ``datetime`` whose ``now`` is off by so much."""

    class Same(type):
        """The scheduler asks of a moment whether it is a ``datetime``, and takes what is none for a day."""

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Jumping(datetime, metaclass=Same):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=offset())

    return Jumping


def install(offset: Offset) -> None:
    """Let everything that this process asks for the time be off: ours, and the scheduler's."""
    real = time.time
    time.time = lambda: real() + offset()
    for name in ("executors.base", "job", "schedulers.background", "triggers.date", "triggers.interval"):
        import_module(f"apscheduler.{name}")
    jumping = jumping_datetime(offset)
    for module in [*sys.modules.values()]:
        is_scheduler = isinstance(module, ModuleType) and module.__name__.startswith("apscheduler.")
        if is_scheduler and getattr(module, "datetime", None) is datetime:
            module.datetime = jumping  # type: ignore[attr-defined]


def main() -> None:
    install(Offset(Path(sys.argv[1])))
    from gitops_agent.cli import main as gitops_agent

    sys.argv[:2] = ["gitops-agent"]
    gitops_agent()


if __name__ == "__main__":
    main()
