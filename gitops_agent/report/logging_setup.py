"""Logs on stderr: JSON lines for machines, one readable line each on a terminal. Redacted before either."""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import Processor

from gitops_agent.report.json_text import dump_line
from gitops_agent.report.render import wants_colour
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import escape_control

LogFormat = Literal["auto", "json", "text"]


def setup_logs(
    form: LogFormat,
    stream: TextIO,
    redactor: Redactor,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Send our logs, and those of the libraries, to one stream. ``auto``: text on a terminal, else JSON."""
    is_terminal = stream.isatty()
    as_text = form == "text" or (form == "auto" and is_terminal)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Pretty tracebacks would show local variables, and with them whatever secret a frame holds.
    plain, colour = structlog.dev.plain_traceback, wants_colour(is_terminal, environment or {})
    console = structlog.dev.ConsoleRenderer(colors=colour, exception_formatter=plain)
    ending: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        lambda _, __, event: redactor.tree(_plain(event)),
        *([_harmless, console] if as_text else [lambda _, __, event: dump_line(event)]),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=ending)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries say at INFO what is our business to say (every job run, every request).
    root.setLevel(logging.WARNING)
    logging.getLogger("gitops_agent").setLevel(logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _plain(value: Any) -> Any:
    """Only JSON values: an object's repr is made here, where it is still redacted, not in the renderer."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _harmless(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {
        key: escape_control(value, lines=key == "exception") if isinstance(value, str) else value
        for key, value in event.items()
    }
