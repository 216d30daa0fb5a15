"""How help is written: plain usage lines, one section for each panel, and no value shown for what takes none.

Not by Rich: its part of typer costs more to import than all the rest of ``--help``.
"""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from gitops_agent.cli.common import FLAG

Line = tuple[str, tuple[str, str]]


class _PlainHelp:
    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, which takes no value."""
        found: Any = super().get_help_option(ctx)  # type: ignore[misc]
        if found is not None:
            found.metavar = FLAG
        return found


class VerbCommand(_PlainHelp, TyperCommand):
    """A verb with the usage line people know: ``DIR`` is needed, ``[PATH]`` is not, ``[COMMIT]...`` repeats."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the name of the verb."""
        del ctx
        return ["[OPTIONS]", *(_usage(param) for param in self.params if param.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, own options, common options."""
        _write_sections(formatter, _parameters(self, ctx))


class VerbGroup(_PlainHelp, TyperGroup):
    """The program itself."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The options, then the verbs with the first paragraph of each."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        verbs = (
            (str(getattr(verb, "rich_help_panel", "") or "Verbs"), (name, (verb.help or "").partition("\n\n")[0]))
            for name, verb in found
            if verb is not None
        )
        _write_sections(formatter, [*_parameters(self, ctx), *verbs])


def _parameters(command: Any, ctx: Any) -> Iterable[Line]:
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            yield "Arguments", (param.metavar or param.name.upper(), param.help or "")
        elif (record := param.get_help_record(ctx)) is not None:
            yield str(getattr(param, "rich_help_panel", None) or "Options"), record


def _write_sections(formatter: Any, entries: Iterable[Line]) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for panel, row in entries:
        sections.setdefault(panel, []).append(row)
    for title, rows in ((title, rows) for title, rows in sections.items() if rows):
        with formatter.section(title):
            formatter.write_dl(rows)


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")
