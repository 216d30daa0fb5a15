"""Verbs about the desired repository itself: init, validate, schema. None of them touches anything live."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gitops_agent.cli.common import Call, print_json, show

if TYPE_CHECKING:
    from gitops_agent.drivers.plugins import Plugins
    from gitops_agent.model.snapshot import Snapshot
    from gitops_agent.settings import Settings
    from gitops_agent.source.work_tree import CommitReader


def init(
    call: Call,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet, or is empty.")
    ],
) -> None:
    """Write a desired repository to start from: a policy, one agent, and comments that teach."""
    from gitops_agent.cli.starter_files import write_starter

    written = write_starter(directory)
    if call.is_json:
        print_json({"directory": str(directory), "files": written})
        return
    sys.stdout.write("".join(f"  {directory / name}\n" for name in written))
    sys.stdout.write(
        f"\nNext:\n  cd {shlex.quote(str(directory))}\n"
        "  git init -b main && git add . && git commit -m 'My first agent'\n"
        "  gitops-agent once --repo .\n"
        "  gitops-agent status\n"
        "\nTo leave --repo out, set GITOPS_AGENT_REPO to the path or URL of the repository.\n"
    )


def validate(
    call: Call,
    folder: Annotated[Path, typer.Argument(metavar="PATH", help="The folder to check.")] = Path(),
) -> int:
    """Check a folder of documents, offline, and report every error at once as file:line:col.

    In a git work tree it is compared with the upstream of the branch as last fetched, or else with HEAD: a file
    that lost its agent is an error, as after a push.
    """
    from gitops_agent.drivers.plugins import load_plugins
    from gitops_agent.model.finding import errors
    from gitops_agent.report.json_shapes import validate_shape
    from gitops_agent.report.status_text import validate_text
    from gitops_agent.snapshot.folder import validate_folder

    plugins, settings = load_plugins(), call.settings()
    before, reader, compared_with = _before(folder, plugins, settings, call.environment)
    findings = validate_folder(folder, plugins, settings, before, reader)
    show(call, validate_shape(findings, compared_with), validate_text)
    return 3 if errors(findings) else 0


def _before(
    folder: Path, plugins: "Plugins", settings: "Settings", environment: Mapping[str, str]
) -> tuple["Snapshot | None", "CommitReader | None", str | None]:
    """The desired state of the commit that a folder follows, its reader, and its name; None for what does not
    exist."""
    from gitops_agent.errors import SourceError
    from gitops_agent.snapshot.folder import snapshot_of
    from gitops_agent.source.work_tree import commit_before

    try:
        reader = commit_before(folder, environment, settings.git_timeout)
    except SourceError as problem:
        return None, None, f"nothing: {problem.message}"
    if reader is None:
        return None, None, None
    before = snapshot_of(reader, plugins, settings)
    is_known = before is not None
    return before, reader, reader.name if is_known else f"nothing: {reader.name} is not valid, or not all here"


def schema(call: Call) -> None:
    """Print the JSON Schema of the documents, for editors and CI."""
    from gitops_agent.drivers.plugins import load_plugins
    from gitops_agent.snapshot.schema import json_schema

    del call
    print_json(json_schema(load_plugins().documents))
