"""What all verbs share: the common options, the call they make up, errors turned into exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gitops_agent.errors import GitopsAgentError
    from gitops_agent.report.render import Style
    from gitops_agent.settings import Settings
    from gitops_agent.support.secrets import Redactor


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


_PANEL = "Common options (each also as GITOPS_AGENT_…)"


_REPO = "The desired repository: a path, or a file, http(s) or ssh URL."
_COMMON: dict[str, tuple[Any, str, str, str]] = {
    "config": (Path | None, "Settings file (YAML).", "--config", "FILE"),
    "repo": (str | None, _REPO, "--repo", "URL-or-PATH"),
    "branch": (str | None, "The branch to follow (default: main).", "--branch", "NAME"),
    "path": (str | None, "The folder of the repository to read (default: all).", "--path", "DIR"),
    "instance": (str | None, "The name of this gitops-agent (default: default).", "--instance", "NAME"),
    "state_dir": (str | None, "Where mirror, journal and logs live.", "--state-dir", "DIR"),
    "journal_url": (str | None, "PostgreSQL database of the journal.", "--journal-url", "URL"),
    "lease_dir": (str | None, "Where all gitops-agents of this host meet.", "--lease-dir", "DIR"),
    "output": (Output, "text for people or json for programs (default: text).", "-o --output", "text|json"),
}

ALL = frozenset(_COMMON)
READING = frozenset({"config", "instance", "state_dir", "journal_url", "output"})
"""What verbs need that only read the journal. The others are accepted (a line can be reused) but not listed."""

FLAG = ""
"""The metavar of an option that takes no value."""


def option(names: str, metavar: str, text: str, **more: Any) -> Any:
    """An option of one verb: its names (apart by blanks), what its value is called, and its help."""
    return typer.Option(*names.split(), metavar=metavar, help=text, **more)


def flag(names: str, text: str) -> Any:
    """An option of one verb that takes no value."""
    return option(names, FLAG, text)


AGENT = typer.Argument(metavar="AGENT", help="tenant/name, or the name alone if only one tenant has it.")


def _option(name: str, listed: frozenset[str]) -> inspect.Parameter:
    """One common option as a parameter of a command, listed in its help or not."""
    kind, text, names, metavar = _COMMON[name]
    panel, default = (None, Output.TEXT) if name == "output" else (_PANEL, None)
    hidden = name not in listed
    annotation = option(names, metavar, text, rich_help_panel=panel, show_default=False, hidden=hidden)
    only = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, only, default=default, annotation=Annotated[kind, annotation])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb: its common options, and the environment it was made in."""

    options: Mapping[str, Any]
    environment: Mapping[str, str]

    @property
    def is_json(self) -> bool:
        """Whether stdout must carry exactly one JSON document."""
        return self.options["output"] is Output.JSON

    def settings(self, **more: Any) -> Settings:
        """The settings in force: file, environment, then these options."""
        from gitops_agent.cli.settings_file import read_settings_file
        from gitops_agent.settings import build_settings

        given = {name: value for name, value in self.options.items() if name not in ("config", "output")}
        path = self.options["config"] or self.environment.get("GITOPS_AGENT_CONFIG")
        file = read_settings_file(Path(path)) if path else {}
        return build_settings(file, self.environment, {**given, **more}, file_name=str(path or ""))

    def source_settings(self, **more: Any) -> Settings:
        """The same, for verbs that cannot work without a repository."""
        from gitops_agent.errors import UsageError

        settings = self.settings(**more)
        if not settings.repo:
            hint = "give --repo PATH-or-URL, or set GITOPS_AGENT_REPO, or `repo:` in a file named by --config"
            raise UsageError("no repository to follow", hint=hint)
        return settings


Verb = Callable[..., int | None]


def verb(function: Verb, listed: frozenset[str] = ALL) -> Callable[..., None]:
    """Make a typer command of ``function(call, …) -> exit code``: adds the common options, maps errors."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    taken = {parameter.name for parameter in own}
    common = [_option(name, listed) for name in _COMMON if name not in taken]

    @wraps(function)
    def command(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in _COMMON if name not in taken}
        raise typer.Exit(_guarded(function, Call(options, dict(os.environ)), arguments))

    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    command.__signature__ = inspect.Signature(keyword_only + common)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in keyword_only + common}
    return command


def _guarded(function: Verb, call: Call, arguments: Mapping[str, Any]) -> int:
    from gitops_agent.errors import GitopsAgentError

    try:
        return function(call, **arguments) or 0
    except GitopsAgentError as problem:
        print_error(problem)
        return problem.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def print_error(problem: GitopsAgentError) -> None:
    """One error for people, on stderr: what is wrong, the findings if there are any, the way out."""
    sys.stderr.write(f"error: {problem.message}\n")
    if findings := getattr(problem, "findings", ()):
        from gitops_agent.report.json_shapes import findings_shape
        from gitops_agent.report.words import findings_text

        sys.stderr.write(findings_text(findings_shape(findings)) + "\n")
    if problem.hint:
        sys.stderr.write(f"hint: {problem.hint}\n")


def show(call: Call, shape: dict[str, Any], text: Callable[[dict[str, Any], Style], str]) -> None:
    """Print an answer on stdout: its shape (masked before) as JSON, or the text for people made of it."""
    if call.is_json:
        print_json(shape)
        return
    from gitops_agent.report.render import style_for

    print_text(text(shape, style_for(sys.stdout, call.environment)))


def show_fleet(call: Call, shape: dict[str, Any], redactor: Redactor, now: float, *, wide: bool = False) -> None:
    """Print the state of the fleet on stdout, masked here; ``wide``: with every column."""
    from gitops_agent.report.status_text import status_text
    from gitops_agent.support.gc import gc_paused

    with gc_paused():
        # As text only what is shown is masked.
        given = redactor.tree(shape) if call.is_json else shape
        show(call, given, partial(status_text, now=now, redactor=redactor, wide=wide))


def print_text(text: str) -> None:
    """A text on stdout, ending in one newline."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def print_json(shape: object) -> None:
    """Exactly one JSON document on stdout."""
    from gitops_agent.report.json_text import dump_json

    sys.stdout.write(dump_json(shape) + "\n")
