"""What there is to say now, from the state alone: ``status`` and its siblings ask it without loading a stage."""

from gitops_agent.model.finding import Finding
from gitops_agent.model.state import State
from gitops_agent.model.status import Phase


def current_findings(state: State) -> tuple[Finding, ...]:
    """The findings that hold now, each once: on the source, the newest commit, agents and our own proposals."""
    problem = (state.source.problem,) if state.source.problem is not None else ()
    head = state.head
    of_head = head.findings if head is not None else ()
    if head is not None and head.phase not in (Phase.INVALID, Phase.REFUSED):
        # What a plan found of an agent was true at that time; the last pass is right now.
        of_head = tuple(finding for finding in of_head if not agent_of(finding))
    imports = (each.finding for each in state.proposals.imports.values() if each.finding is not None)
    return tuple(dict.fromkeys((*problem, *of_head, *state.status.findings, *imports)))


def agent_of(finding: Finding) -> str:
    """The agent that a finding is about, or one of its resources; "" for a place in a file, a commit, a scope."""
    owner = finding.address.partition(":")[0]
    return owner if "/" in owner and "." not in owner else ""
