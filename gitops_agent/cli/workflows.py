"""The verb ``workflows``: what is in flight, at which checkpoint, and what is stuck. Reads the journal only."""

from __future__ import annotations

from gitops_agent.cli.common import Call, print_json, print_text, style


def workflows(call: Call) -> int:
    """List what is in flight, at which checkpoint, and what is stuck, with the way out."""
    from gitops_agent.report.workflows_text import workflows_shape, workflows_text
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        known = reader.workflows()
    if call.is_json:
        print_json(reader.redactor.tree(workflows_shape(known)))
    else:
        print_text(reader.redactor(workflows_text(known, style(call))))
    return 0
