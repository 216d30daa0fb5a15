"""Verbs about the desired repository itself: init, validate, schema. None of them touches anything live."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gitops_agent.cli.common import Call, print_json, show


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
    """Check a folder of documents, offline, and report every error at once as file:line:col."""
    from gitops_agent.drivers.plugins import load_plugins
    from gitops_agent.model.finding import errors
    from gitops_agent.report.json_shapes import validate_shape
    from gitops_agent.report.status_text import validate_text
    from gitops_agent.snapshot.folder import validate_folder

    findings = validate_folder(folder, load_plugins(), call.settings())
    show(call, validate_shape(findings), validate_text)
    return 3 if errors(findings) else 0


def schema(call: Call) -> None:
    """Print the JSON Schema of the documents, for editors and CI."""
    from gitops_agent.drivers.plugins import load_plugins
    from gitops_agent.snapshot.schema import json_schema

    del call
    print_json(json_schema(load_plugins().documents))
