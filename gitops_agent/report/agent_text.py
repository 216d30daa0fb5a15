"""``status AGENT``: one agent in full, as facts under names. (``explain`` tells the same as a story.) Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from gitops_agent.model.quantity import iso
from gitops_agent.model.status import AgentStatus
from gitops_agent.report.json_shapes import FleetStatus
from gitops_agent.report.moments import ago, ahead
from gitops_agent.report.status_text import fleet_head, pids_of, plain_message, ready_word
from gitops_agent.report.table import PLAIN, Style, table
from gitops_agent.report.words import findings_text, short
from gitops_agent.support.text import escape_control


def agent_text(fleet: FleetStatus, status: AgentStatus, style: Style = PLAIN) -> str:
    """Everything the last pass knew of one agent."""
    now = fleet.at if fleet.at is not None else 0.0
    word, colours = ready_word(status)
    handle = [
        f"{style.paint(escape_control(str(status.agent)), 'bold')}",
        f"  ready     {style.paint(word, *colours)}",
        f"  desired   {status.lifecycle}{f' at {escape_control(status.origin)}' if status.origin else ''}",
        f"  commit    {short(status.observed_commit)}",
        *(f"  log       {escape_control(path)}" for path in _logs(status)),
        *(
            [f"  next try  {ahead(status.next_try_at, now)} ({iso(status.next_try_at)})"]
            if status.next_try_at
            else []
        ),
    ]
    blocks = [fleet_head(fleet, style), "\n".join(handle)]
    if status.resources:
        blocks.append(table(["RESOURCE", "DRIVER", "STATE", "HEALTH", "PID"], list(_resources(status)), style))
    if status.conditions:
        rows = [
            [
                str(said.type),
                "yes" if said.status else "no",
                said.reason,
                ago(said.last_transition_at, now),
                message,
            ]
            for said in status.conditions
            for message in (plain_message(status, said.message),)
        ]
        blocks.append(table(["CONDITION", "HOLDS", "REASON", "SINCE", "MESSAGE"], rows, style))
    if fleet.findings:
        blocks.append(findings_text(fleet.findings, style))
    return "\n\n".join(blocks)


def _logs(status: AgentStatus) -> Iterator[str]:
    """Where its output goes: the file of its one replica, or all files beside that of the first."""
    for resource in status.resources:
        if path := resource.live.get("log"):
            several = len(resource.live.get("replicas", ())) > 1
            yield str(PurePath(path).with_name("*.log")) if several else str(path)


def _resources(status: AgentStatus) -> Iterator[list[str]]:
    for resource in status.resources:
        pids = map(str, pids_of(resource))
        name = f"{resource.key.kind}/{resource.key.id}"
        yield [name, resource.driver, resource.state, resource.health or "-", ", ".join(pids) or "-"]
