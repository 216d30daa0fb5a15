"""The verb ``logs``: what an agent wrote, from its driver."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from gitops_agent.cli.common import AGENT, Call, flag, option, print_json

if TYPE_CHECKING:
    from gitops_agent.drivers.api import LogLine


def logs(
    call: Call,
    agent: Annotated[str, AGENT],
    lines: Annotated[int, option("--lines -n", "N", "How many lines from the end, of each replica.", min=0)] = 50,
    follow: Annotated[bool, flag("--follow -f", "Go on printing what is written.")] = False,
) -> None:
    """Print what an agent wrote to stdout and stderr, all replicas."""
    from gitops_agent.errors import UsageError
    from gitops_agent.query.fleet import agent_logs, instances, look_at_secrets, open_reader
    from gitops_agent.report.explain_text import gone_text
    from gitops_agent.wiring import connect_drivers

    settings = call.settings()
    with open_reader(settings, call.environment) as reader:
        key = reader.find(agent)
        known = reader.explain(key)
        drivers = connect_drivers(settings, reader.redactor)
        if not look_at_secrets(reader, key, drivers):
            sys.stderr.write("note: not all secrets of this agent are known here, so what it wrote may show one\n")
    running, is_gone = instances(known), known["status"] is None
    follow = follow and not is_gone and not call.is_json
    found: Iterable[LogLine] = agent_logs(key, known, drivers, lines, follow=follow)
    if follow:
        gc.enable()
    else:
        found = list(found)
        running = sorted({*running, *(line.instance for line in found)})
        if is_gone:
            sys.stderr.write(f"{gone_text(known)}{'' if running else ' It has left no log.'}\n")
        elif not running and lines:
            hint = f"gitops-agent status {key} shows whether it was started"
            raise UsageError(f"{key} has written no log yet", hint=hint)
    if call.is_json:
        own = {name: [line.text for line in found if line.instance == name] for name in running}
        shape = [{"instance": name, "lines": written} for name, written in own.items()]
        print_json({"agent": str(key), "logs": shape})
    else:
        _print(found, named=len(running) > 1)


def _print(found: Iterable[LogLine], *, named: bool) -> None:
    from gitops_agent.support.text import escape_control

    for line in found:
        # What an agent prints is shown, never obeyed by the terminal.
        prefix = f"{line.instance} | " if named else ""
        sys.stdout.write(f"{prefix}{escape_control(line.text)}\n")
        sys.stdout.flush()
