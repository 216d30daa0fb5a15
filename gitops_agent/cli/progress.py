"""What a person sees while passes run: a live table on a terminal, structured log lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops_agent.cli.common import Call
    from gitops_agent.settings import Settings
    from gitops_agent.status.proceedings import PassResult


@contextmanager
def watching(settings: Settings, call: Call, *, transient: bool = False) -> Iterator[Callable[[PassResult], None]]:
    """A callable to be told of every pass. ``transient``: the caller prints the end result itself."""
    if _is_watched(settings, call):
        with _live(settings, call, transient) as tell:
            yield tell
    else:
        yield _logging()


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
def _live(settings: Settings, call: Call, transient: bool) -> Iterator[Callable[[PassResult], None]]:
    from gitops_agent.report.json_shapes import rollout_shape
    from gitops_agent.report.progress_view import ProgressView
    from gitops_agent.report.render import wants_colour
    from gitops_agent.report.status_text import rollout_line
    from gitops_agent.support.secrets import Redactor

    colour = wants_colour(sys.stderr.isatty(), call.environment)
    note, clean = "", Redactor()
    with ProgressView(settings.instance, sys.stderr, colour=colour, transient=transient) as view:

        def tell(result: PassResult) -> None:
            nonlocal note
            note = _last_action(result) or note or (result.record.summary if result.record else "")
            if (rollout := rollout_shape(result.rollout, result.commit)) is not None:
                note = rollout_line(rollout)
            view.update(result.statuses, result.phase, (result.commit, result.enforced), clean(note))

        yield tell


def _last_action(result: PassResult) -> str:
    """What the pass did last, in one line; nothing when it did nothing to a live system."""
    done = [(action, outcome) for action, outcome in result.executed if action.verb.touches_live]
    if not done:
        return ""
    action, outcome = done[-1]
    more = f" (and {len(done) - 1} more)" if len(done) > 1 else ""
    return f"{action.verb} {action.key} [{action.reason}]: {outcome.result}, {outcome.message}{more}"


def _logging() -> Callable[[PassResult], None]:
    """One line when a pass did or found something new; silence when nothing changed."""
    import structlog

    log = structlog.get_logger("gitops_agent")
    last: list[object] = [None]

    def tell(result: PassResult) -> None:
        for action, outcome in result.executed:
            log.info(
                "action",
                resource=str(action.key),
                verb=str(action.verb),
                reason=action.reason,
                result=str(outcome.result),
                message=outcome.message,
                seconds=round(outcome.duration, 3),
            )
        ready = sum(status.ready for status in result.statuses.values())
        summary = result.record.summary if result.record else ""
        said = (result.commit, result.phase, ready, len(result.statuses), result.findings, summary)
        if said != last[0]:
            last[0] = said
            log.info(
                "pass",
                commit=result.commit,
                phase=str(result.phase) if result.phase else None,
                ready=ready,
                agents=len(result.statuses),
                summary=summary,
                findings=[f"{f.address}: {f.summary}" for f in result.findings[:10]],
            )

    return tell
