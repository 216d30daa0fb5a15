"""How help is written: plain usage lines, and no value shown for what takes none."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from gitops_agent.cli.common import FLAG


class VerbCommand(TyperCommand):
    """A verb with the usage line people know: ``DIR`` is needed, ``[PATH]`` is not, ``[COMMIT]...`` repeats."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the name of the verb."""
        del ctx
        return ["[OPTIONS]", *(_usage(param) for param in self.params if param.param_type_name == "argument")]

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, which takes no value."""
        return _flag(super().get_help_option(ctx))


class VerbGroup(TyperGroup):
    """The program itself."""

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, which takes no value."""
        return _flag(super().get_help_option(ctx))


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")


def _flag(option: Any) -> Any:
    if option is not None:
        option.metavar = FLAG
    return option
