"""What is shown on stderr while a verb works: a live table or a bar on a terminal, log lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gitops_agent.cli.common import Call
    from gitops_agent.model.passes import PassResult
    from gitops_agent.settings import Settings
    from gitops_agent.source.bounded_process import OnProgress


@dataclass(frozen=True, slots=True)
class Watch:
    """``passed`` is called with the result of every pass, ``fetching`` while the source is fetched; any thread."""

    passed: Callable[[PassResult], None]
    fetching: OnProgress


@contextmanager
def watching(settings: Settings, call: Call, *, transient: bool = False) -> Iterator[Watch]:
    """Shows passes and fetches of ``once`` and ``run``. ``transient``: the caller prints the end result itself."""
    if _is_watched(settings, call):
        with _live(settings, call, transient) as watch:
            yield watch
    else:
        import structlog

        log = structlog.get_logger("gitops_agent")
        yield Watch(_log_passes(log), _once_each(lambda phase: log.info("fetch", phase=phase)))


@contextmanager
def fetch_bar(call: Call) -> Iterator[OnProgress]:
    """Shows the fetches of a verb that reads: a bar that leaves nothing behind, or one line for each phase."""
    if not sys.stderr.isatty() or call.is_json:
        yield _once_each(lambda phase: sys.stderr.write(f"fetching: {phase}\n"))
        return
    from rich.console import Console
    from rich.progress import Progress

    from gitops_agent.report.render import wants_colour

    console = Console(stderr=True, no_color=not wants_colour(True, call.environment))
    tasks: dict[str, int] = {}
    with Progress(console=console, transient=True) as progress:

        def report(phase: str, done: int, total: int | None) -> None:
            if phase not in tasks:
                tasks[phase] = progress.add_task(phase, total=total)
            progress.update(tasks[phase], completed=done, total=total)  # type: ignore[arg-type]

        yield report


def print_end(settings: Settings, call: Call) -> None:
    """``run`` has ended, and nothing else has."""
    if _is_watched(settings, call):
        sys.stderr.write("\ngitops-agent has ended; agents keep running. gitops-agent status shows them\n")
    else:
        import structlog

        structlog.get_logger("gitops_agent").info("ended; agents keep running")


def _is_watched(settings: Settings, call: Call) -> bool:
    return sys.stderr.isatty() and settings.log_format == "auto" and not call.is_json


@contextmanager
def _live(settings: Settings, call: Call, transient: bool) -> Iterator[Watch]:
    from gitops_agent.report.json_shapes import rollout_shape
    from gitops_agent.report.progress_view import ProgressView
    from gitops_agent.report.render import wants_colour
    from gitops_agent.report.status_text import rollout_line
    from gitops_agent.support.secrets import Redactor

    colour = wants_colour(sys.stderr.isatty(), call.environment)
    note, summary, clean = "", "", Redactor()
    with ProgressView(settings.instance, sys.stderr, colour=colour, transient=transient) as view:

        def passed(result: PassResult) -> None:
            nonlocal note, summary
            note = _last_action(result) or (note if _summary(result) == summary else "") or _summary(result)
            summary = _summary(result)
            if (rollout := rollout_shape(result.state)) is not None:
                note = rollout_line(rollout)
            view.update(result.state, clean(note), now=result.state.status.last_pass)

        yield Watch(passed, view.fetching)


def _last_action(result: PassResult) -> str:
    """What the pass did last, in one line; nothing when it did nothing to a live system."""
    done = [(action, outcome) for action, outcome in result.executed if action.verb.touches_live]
    if not done:
        return ""
    action, outcome = done[-1]
    more = f" (and {len(done) - 1} more)" if len(done) > 1 else ""
    return f"{action.verb} {action.key} [{action.reason}]: {outcome.result}, {outcome.message}{more}"


def _log_passes(log: Any) -> Callable[[PassResult], None]:
    """One log line when a pass did or found something new; none when nothing changed."""
    from gitops_agent.model.outcome import Result

    last: object = None
    silent: set[str] = set()  # the live systems that were said not to answer, until they do

    def passed(result: PassResult) -> None:
        nonlocal last
        unreachable = result.record.live.observed.unreachable if result.record is not None else {}
        for driver in sorted(unreachable.keys() - silent):
            log.warning("a live system could not be asked", driver=driver, reason=unreachable[driver])
        silent.update(unreachable)
        if result.record is not None and result.record.live.scope is None:  # others are not asked about everything
            silent.intersection_update(unreachable)
        for action, outcome in result.executed:
            (log.warning if outcome.result is Result.FAILED else log.info)(
                "action",
                resource=str(action.key),
                verb=str(action.verb),
                reason=action.reason,
                result=str(outcome.result),
                message=outcome.message,
                seconds=round(outcome.duration, 3),
            )
        state, agents = result.state, result.state.status.agents
        phase, summary = result.standing, _summary(result)
        shown = (state.source.head, phase, agents.ready, len(agents), result.findings, summary)
        if shown != last:
            last = shown
            getattr(log, _level(result))(
                "pass",
                commit=state.source.head,
                phase=str(phase) if phase else None,
                ready=agents.ready,
                agents=len(agents),
                summary=summary,
                findings=[f"{f.address}: {f.summary}" for f in result.findings[:10]],
            )

    return passed


def _summary(result: PassResult) -> str:
    """What holds now, in words: what is in the way, or else what became of the newest commit."""
    head = result.state.head
    if head is None:
        return ""
    return (head.now.cause if head.now is not None else "") or head.summary


def _level(result: PassResult) -> str:
    """How loud it is: an error when a commit is not valid, a warning when something is held or down."""
    from gitops_agent.model.status import Phase

    if result.phase in (Phase.INVALID, Phase.REFUSED):
        return "error"
    head = result.state.head
    frozen = result.frozen or (head is not None and head.now is not None and bool(head.now.frozen))
    return "warning" if frozen or result.standing in (Phase.BLOCKED, Phase.DEGRADED) else "info"


def _once_each(write: Callable[[str], object]) -> OnProgress:
    """Writes each phase the first time: later fetches are small, and their lines would only repeat."""
    seen: set[str] = set()

    def report(phase: str, done: int, total: int | None) -> None:
        del done, total
        if phase not in seen:
            seen.add(phase)
            write(phase)

    return report
