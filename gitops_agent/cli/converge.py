"""Verbs that compare and converge: plan (reads only), once, run."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

from gitops_agent.cli.common import FLAG, Call, option, show, show_fleet

if TYPE_CHECKING:
    from gitops_agent.model.passes import PassResult
    from gitops_agent.settings import Settings
    from gitops_agent.support.secrets import Redactor

_NO_PUSH = option(
    "--no-push", FLAG, "Keep notes in the local mirror; push nothing, no revert either.", show_default=False
)
_TIMEOUT = option("--timeout", "TIME", "Give up after this long, such as 90s or 2m (default: 10m).")


def plan(
    call: Call,
    commit: Annotated[str | None, option("--commit", "REF", "Plan this commit instead of the newest.")] = None,
) -> int:
    """Say what would happen, why, and which guard would stop it. Changes nothing.

    Exit code 4 when none of it will happen: a guard, a freeze, a held rollout or a tree that failed; 5 when some
    live system could not be asked, so that the plan is not all of it.
    """
    from gitops_agent.cli.exit_codes import BLOCKED, DONE, NOT_CONVERGED
    from gitops_agent.cli.progress import fetch_bar
    from gitops_agent.query.plan_preview import PLAN_HELD, PLAN_PARTIAL
    from gitops_agent.report.json_shapes import plan_shape
    from gitops_agent.report.plan_text import plan_text
    from gitops_agent.wiring import open_planner

    with fetch_bar(call) as fetching, open_planner(call.source_settings(), call.environment, fetching) as planner:
        found = planner.plan(commit)
    show(call, planner.redactor.tree(plan_shape(found)), plan_text)
    codes = {each.code for each in found.findings}
    if found.blocked or PLAN_HELD in codes:
        return BLOCKED
    return NOT_CONVERGED if PLAN_PARTIAL in codes else DONE


def once(
    call: Call,
    timeout: Annotated[str | None, _TIMEOUT] = None,
    no_push: Annotated[bool, _NO_PUSH] = False,
) -> int:
    """Make it so: passes until the newest commit is converged, refused or held, or the time is up."""
    from gitops_agent.cli.exit_codes import exit_code
    from gitops_agent.cli.progress import watching
    from gitops_agent.daemon.loop import run_once
    from gitops_agent.report.json_shapes import status_shape
    from gitops_agent.wiring import open_instance, open_leadership

    settings = call.source_settings(timeout=timeout, push=False if no_push else None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it says what it waits for, as on Ctrl-C
    with (
        watching(settings, call, transient=True) as watch,
        open_leadership(settings, call.environment) as fence,
        open_instance(settings, call.environment, watch.fetching, fence=fence) as instance,
    ):
        result, timed_out = run_once(instance.context, settings.timeout, watch.passed)
        now = instance.context.clock.now()
        fleet = status_shape(settings.instance, result.state, result.state.status.agents.values(), result.findings)
    show_fleet(call, fleet, instance.redactor, now)
    if timed_out and not call.is_json:
        _print_timeout(settings, result, instance.redactor)
    return exit_code(result, timed_out=timed_out)


def run(call: Call, no_push: Annotated[bool, _NO_PUSH] = False) -> None:
    """Run for ever: follow the branch, repair drift, write status back. Ends on SIGTERM or Ctrl-C."""
    from gitops_agent.cli.progress import print_end, watching
    from gitops_agent.wiring import open_candidacy, open_daemon

    settings = call.source_settings(push=False if no_push else None)
    with watching(settings, call) as watch, open_candidacy(settings, call.environment) as candidacy:
        # Anew when the state directory was deleted under us, or another process took over from us.
        while candidacy.wait():
            with (
                candidacy.leadership(),
                open_daemon(settings, call.environment, watch.passed, watch.fetching, candidacy) as daemon,
            ):
                daemon.run()
    print_end(settings, call)


def _print_timeout(settings: Settings, result: PassResult, mask: Redactor) -> None:
    from gitops_agent.support.text import escape_control

    waiting = sorted(str(key) for key, status in result.state.status.agents.items() if not status.ready)
    waiting += [f"{action.verb} {action.key}" for action in (result.record.running if result.record else ())]
    names = ", ".join(waiting[:5]) + (" …" if len(waiting) > 5 else "")
    sys.stderr.write(
        f"not converged within {settings.timeout:.0f} s; still waiting for: {names or 'the commit'}\n"
    )
    unreachable = result.record.live.observed.unreachable if result.record else {}
    for driver, why in sorted(unreachable.items()):
        sys.stderr.write(f"{driver} could not be asked: {escape_control(mask(why))}\n")
    sys.stderr.write("hint: gitops-agent explain AGENT says why; gitops-agent once goes on from here\n")
