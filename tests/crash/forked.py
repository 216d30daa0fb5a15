"""The real command line in a child that was forked from a warm parent: the imports are paid for once.

What is forked has its own pid, environment and arguments, and can be killed like any process.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

import gitops_agent.cli.app
from tests.support.delegated_group import run_in
from tests.support.fleet import Fleet


def begin(fleet: Fleet, verb: str, *words: str, group: Path | None = None, **environment: str) -> int:
    """Start a verb, in a control group if one is given; the pid of the child."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        if group is not None:
            run_in(str(group))
        code = _be(fleet, [verb, *words], environment)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, within: float = 120.0) -> int | None:
    """The exit code of a child, negative when a signal ended it; None when it is not over in time."""
    deadline = time.monotonic() + within
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.005)


def _be(fleet: Fleet, words: list[str], environment: dict[str, str]) -> int:
    log = os.open(fleet.state.parent / "calls.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for handle in (1, 2):
        os.dup2(log, handle)
    os.environ.clear()
    os.environ.update({**fleet.environment, **environment})
    sys.argv = fleet.command(*words)[2:]  # type: ignore[arg-type]
    try:
        gitops_agent.cli.app.app()
    except SystemExit as end:
        return int(end.code or 0)
    return 71
