"""What is promised with a number says the number of the code."""

from __future__ import annotations

import pytest

from gitops_agent import wiring
from gitops_agent.control import commands
from gitops_agent.daemon import loop, state_watch
from gitops_agent.drivers import api
from gitops_agent.drivers.local import exec as running
from gitops_agent.drivers.local import log_files, secret_files, signs
from gitops_agent.drivers.local.context import Options
from gitops_agent.journal import control_watch, plans, retention
from gitops_agent.model import heartbeat_text
from gitops_agent.model.document import Backoff, HeartbeatSpec, PolicyRollout, PolicySpec
from gitops_agent.model.quantity import seconds
from gitops_agent.model.state import MAX_RECORDS
from gitops_agent.model.status import MAX_EVENTS
from gitops_agent.observe.health import history
from gitops_agent.proposals import outbox
from gitops_agent.query import fleet
from gitops_agent.reconcile import executor
from gitops_agent.reconcile.leases import holder
from gitops_agent.report import explain_text
from gitops_agent.report.sinks.git_notes import GitNotesSink
from gitops_agent.rollout.state import MOST_FAILED_TREES
from gitops_agent.settings import Settings
from gitops_agent.source import git_environment
from gitops_agent.support import backoff, secrets
from tests.examples.fleet import ROOT

pytestmark = pytest.mark.unit

POLICY, SETTINGS, ROTATION = PolicySpec(), Settings(), log_files.Rotation()
KIB, MIB = 2**10, 2**20


def minutes(text: str) -> str:
    return f"{seconds(text) / 60:g} min"


PROMISES = [
    ("README.md", f"Ready for {seconds(PolicyRollout().bake):g} s (`rollout.bake`)"),
    ("README.md", f"exits in its first {seconds(PolicyRollout().bake):g} s"),
    ("README.md", f"{POLICY.mass_delete.min} or more agents or replicas"),
    ("README.md", f"more than {POLICY.mass_delete.ratio:.0%}".replace("%", " % of a tenant")),
    (
        "README.md",
        f"When {POLICY.mass_drift.min} or more agents, and more than {POLICY.mass_drift.ratio * 100:g} %",
    ),
    ("README.md", f"differ within {seconds(POLICY.mass_drift.window):g} s"),
    ("README.md", f"one first, then {POLICY.host_restart.at_once} at a time"),
    ("README.md", f"from {seconds(Backoff().first):g} s to {minutes(Backoff().longest)}"),
    ("README.md", f"one of {secrets.SHORTEST_LEARNED} characters or more"),
    ("README.md", f"`/readyz` on `{SETTINGS.listen}`"),
    (
        "README.md",
        f"every {SETTINGS.poll_interval:g} to {SETTINGS.poll_interval * (1 + backoff.SPREAD):g} s",
    ),
    ("README.md", "git {}.{}+".format(*git_environment.OLDEST)),
    ("docs/configuration.md", f"up to {loop.MAX_POLL_DELAY_SECONDS / 60:g} minutes"),
    ("docs/drivers.md", f"`Plugin.observe_timeout` seconds ({api.OBSERVE_TIMEOUT_SECONDS:g})"),
    ("docs/heartbeat.md", f"larger than {heartbeat_text.SIZE_CAP_BYTES // KIB} KiB"),
    (
        "docs/heartbeat.md",
        f"At most {heartbeat_text.MAX_CALLS} pending calls of {heartbeat_text.MAX_NAME_LENGTH} characters",
    ),
    ("docs/health.md", {0.5: "asked twice a second until it has passed"}[history.STARTING_PERIOD_SECONDS]),
    ("docs/health.md", {1.0: "an agent that makes many of them once a second"}[signs.REST_SECONDS]),
    ("docs/health.md", {2.0: "logs are looked at every two seconds"}[Options(groups=None).watch_every]),
    (
        "docs/documents.md",
        f"({secret_files.SECRET_CAP_BYTES // KIB} KiB at most; one that does not answer, as on a dead mount, "
        f"fails a start after {secret_files.START_SECONDS:g} s",
    ),
    ("docs/hooks.md", f"output {running.OUTPUT_CAP_BYTES} bytes are kept"),
    ("docs/hooks.md", f"or {executor.CLOSE_SECONDS:g} s after gitops-agent was told to end"),
    ("docs/hooks.md", f"`rollout.recovery` ({seconds(POLICY.rollout.recovery) / 60:g} minute)"),
    ("docs/json.md", f"newest first, at most {MAX_EVENTS}."),
    ("docs/hooks.md", f"{seconds(Backoff().first):g} s to {minutes(Backoff().longest)}"),
    ("docs/metrics.md", f"later and later (up to {loop.MAX_POLL_DELAY_SECONDS / 60:g} minutes)"),
    ("docs/metrics.md", f"A pass may take `livezGrace` ({SETTINGS.livez_grace / 60:g} minutes)"),
    ("docs/metrics.md", {1.5: "within one and a half `resyncInterval`"}[loop.LATE_INTERVALS]),
    ("docs/metrics.md", {5: "may take five `gitTimeout`"}[wiring.MAX_GIT_CALLS]),
    ("docs/operations.md", {0.7: "picks them up within a second"}[control_watch.PERIOD_SECONDS]),
    ("docs/operations.md", {1.0: "notices within a second"}[state_watch.PERIOD_SECONDS]),
    ("docs/operations.md", f"asks every {holder.RETRY_SECONDS:g} s"),
    ("docs/operations.md", {60.0: "ends within a minute"}[wiring.MAX_END_SECONDS]),
    ("docs/operations.md", f"no more than {retention.MAX_OBSERVATIONS} observations are kept"),
    ("docs/operations.md", f"the plans of one commit take {plans.MAX_BYTES // MIB} MiB at most"),
    ("docs/operations.md", f"`retention` ({SETTINGS.retention / 86400:g} days)"),
    ("docs/operations.md", f"`folderRetention` ({SETTINGS.folder_retention / 86400:g} days)"),
    ("docs/operations.md", f"rotated at {ROTATION.size // MIB} MiB"),
    ("docs/operations.md", f"pushed at most every {GitNotesSink.min_interval_seconds:g} seconds"),
    ("docs/operations.md", f"takes {commands.SHORTEST_DIGEST} characters or more of the digest"),
    ("docs/operations.md", f"open for more than {minutes(HeartbeatSpec().max_tool_call)}"),
    ("docs/operations.md", f"of commits the newest {MAX_RECORDS} stay"),
    (
        "docs/rollouts.md",
        f"from {outbox.FIRST_BACKOFF_SECONDS:g} s to {outbox.MAX_BACKOFF_SECONDS / 60:g} min",
    ),
    ("docs/rollouts.md", f"the last {MOST_FAILED_TREES} that failed"),
    ("docs/rollouts.md", f"`rollout.bake` (default {POLICY.rollout.bake})"),
    ("docs/rollouts.md", f"`rollout.recovery` (default {POLICY.rollout.recovery})"),
    ("docs/rollouts.md", f"`rollout.canary` agents (default {POLICY.rollout.canary})"),
    ("docs/rollouts.md", f"(default {POLICY.rollout.second}, at least one)"),
    ("docs/rollouts.md", f"{commands.SHORTEST_DIGEST} characters or more"),
    (
        "gitops_agent/cli/inspect.py",
        f"not only the newest ({explain_text.SHOWN_ACTIONS}; as JSON {fleet.SHOWN_ACTIONS}).",
    ),
]


@pytest.mark.parametrize(("page", "promise"), PROMISES, ids=[f"{page}: {text}" for page, text in PROMISES])
def test_the_number_is_that_of_the_code(page: str, promise: str) -> None:
    assert promise in " ".join((ROOT / page).read_text(encoding="utf-8").split())
