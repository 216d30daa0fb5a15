"""Verbs about the tool itself: doctor and demo."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gitops_agent.cli.common import Call, print_json


def doctor(call: Call) -> int:
    """Check what gitops-agent needs here, print the settings in force, and say what to mend."""
    from gitops_agent.cli.checks import run_checks

    settings = call.settings()
    checks = run_checks(settings, call.environment)
    if call.is_json:
        print_json(
            {
                "ok": all(check.ok for check in checks),
                "checks": [{"name": c.name, "ok": c.ok, "said": c.said, "hint": c.hint} for c in checks],
                "settings": settings.model_dump(mode="json", by_alias=True, exclude={"sentry_dsn"}),
            }
        )
        return 0 if all(check.ok for check in checks) else 1
    for check in checks:
        sys.stdout.write(f"{'ok ' if check.ok else 'BAD'}  {check.name:<18} {check.said}\n")
        if check.hint and not check.ok:
            sys.stdout.write(f"     hint: {check.hint}\n")
    sys.stdout.write("\nsettings in force:\n")
    for name, value in settings.model_dump(mode="json", by_alias=True, exclude={"sentry_dsn"}).items():
        sys.stdout.write(f"  {name}: {value}\n")
    return 0 if all(check.ok for check in checks) else 1


def demo(
    call: Call,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder of the demo behind, to look at.")] = False,
) -> int:
    """Watch a fleet come up from Git, heal, follow a commit, refuse a bad one, and follow a revert back."""
    from gitops_agent.cli.demo import play

    del call
    return play(keep=keep)
