"""What there is to say now about the source, the newest commit, the agents and our own proposals. Pure."""

from gitops_agent.model.finding import Finding
from gitops_agent.model.state import State
from gitops_agent.model.status import CommitRecord, Phase


def current_findings(state: State) -> tuple[Finding, ...]:
    """The findings that hold now, each once."""
    problem = (state.source.problem,) if state.source.problem is not None else ()
    head = lasting(state.head) if state.head is not None else ()
    imports = (each.finding for each in state.proposals.imports.values() if each.finding is not None)
    return tuple(dict.fromkeys((*problem, *head, *state.status.findings, *imports)))


def lasting(record: CommitRecord) -> tuple[Finding, ...]:
    """The findings of a commit that hold whatever a later pass finds.
    What a plan found of an agent (``tenant/name…``) was true at that time; the last pass is right now."""
    if record.phase in (Phase.INVALID, Phase.REFUSED):
        return record.findings
    return tuple(finding for finding in record.findings if not _is_about_an_agent(finding))


def _is_about_an_agent(finding: Finding) -> bool:
    """Whether the address is an agent or a resource, rather than a place in a file, a commit or a scope."""
    owner = finding.address.partition(":")[0]
    return "/" in owner and "." not in owner
