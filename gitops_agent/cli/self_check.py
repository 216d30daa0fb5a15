"""Verbs about the tool itself: doctor and demo."""

import sys
from pathlib import Path
from typing import Annotated

from gitops_agent.cli.common import Call, flag, option, print_json


def doctor(
    call: Call,
    live: Annotated[
        bool, flag("--live", "Only ask /livez of the one that runs here (for health checks).")
    ] = False,
) -> int:
    """Check what gitops-agent needs here, print the settings in force, and say what to mend."""
    if live:
        return _live(call)
    from gitops_agent.cli.doctor_checks import run_checks
    from gitops_agent.cli.settings_text import settings_lines, settings_shape
    from gitops_agent.query.fleet import make_redactor

    settings = call.settings()
    clean = make_redactor(settings, call.environment)
    checks = run_checks(settings, call.environment)
    bad = [check for check in checks if not check.ok]
    if call.is_json:
        answers = [{"name": c.name, "ok": c.ok, "said": c.message, "hint": c.hint} for c in checks]
        print_json(clean.tree({"ok": not bad, "checks": answers, "settings": settings_shape(settings)}))
        return 1 if bad else 0
    width = max(len(check.name) for check in checks)
    for check in checks:
        sys.stdout.write(clean(f"{'ok ' if check.ok else 'BAD'}  {check.name:<{width}}  {check.message}\n"))
        if check.hint and not check.ok:
            sys.stdout.write(clean(f"     hint: {check.hint}\n"))
    sys.stdout.write("\nsettings in force (docs/configuration.md explains them):\n")
    for line in settings_lines(settings):
        name, _, value = line.partition(": ")  # after a name such as sentryDsn the word "none" would be masked too
        sys.stdout.write(f"  {name}: {clean(value)}\n")
    verdict = f"{len(bad)} of {len(checks)} checks failed: {', '.join(check.name for check in bad)} (exit code 1)"
    sys.stdout.write(f"\n{verdict if bad else 'all checks passed'}\n")
    return 1 if bad else 0


def _live(call: Call) -> int:
    from gitops_agent.cli.live_check import live_answer

    ok, text = live_answer(call.settings())
    if call.is_json:
        print_json({"ok": ok, "said": text})
    else:
        sys.stdout.write(f"{text}\n")
    return 0 if ok else 1


def demo(
    call: Call,
    keep: Annotated[bool, flag("--keep", "Leave the folder of the demo behind, to look at.")] = False,
    kubernetes: Annotated[
        Path | None,
        option("--kubernetes", "FILE", "Play it in the cluster of this kubeconfig, in namespaces of its own."),
    ] = None,
) -> int:
    """Watch a fleet come up from Git, heal, follow a commit, refuse a bad one, stop a typo, go back by revert."""
    from gitops_agent_demo.play import play

    del call
    return play(keep=keep, kubeconfig=kubernetes)
