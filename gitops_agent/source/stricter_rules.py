"""What is said of a commit that was accepted once and that this version refuses, or nobody has any more. Pure."""

from dataclasses import replace

from gitops_agent.errors import InvalidDesiredState, SourceRefused
from gitops_agent.model.finding import Finding, Severity, errors
from gitops_agent.model.quantity import counted
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import State

STRICTER_RULES = "StricterRules"

_NAMED = 3


def remarks(revision: Revision, refused: InvalidDesiredState) -> tuple[Finding, ...]:
    """The findings on a commit that stays in force although it would be refused now, as warnings."""
    wrong = errors(refused.findings)
    count = counted(len(wrong), "error")
    summary = f"this version of gitops-agent, with its settings, would refuse the commit ({count})"
    detail = (
        "It was accepted earlier and stays in force as it was: its agents are repaired, none is restarted. "
        "Correct the lines named here with the next commit; one without that is Invalid."
    )
    first = Finding(Severity.WARNING, STRICTER_RULES, revision.short, summary, detail)
    return (first, *(replace(each, severity=Severity.WARNING, code=STRICTER_RULES) for each in wrong))


def with_remarks(state: State, snapshot: Snapshot) -> State:
    """The state in which the record of a commit says what this version has against it, and no other version."""
    record = state.commits.records.get(snapshot.revision.sha)
    found = tuple(each for each in snapshot.findings if each.code == STRICTER_RULES)
    if record is None or found == tuple(each for each in record.findings if each.code == STRICTER_RULES):
        return state
    others = tuple(each for each in record.findings if each.code != STRICTER_RULES)
    return replace(state, commits=state.commits.updated([replace(record, findings=found + others)]))


def unreadable(enforced: str, refused: InvalidDesiredState) -> SourceRefused:
    """The problem of a commit in force that is refused, and of which nothing was kept that could stand for it."""
    wrong = errors(refused.findings)
    places = "; ".join(f"{each.address} {each.summary}" for each in wrong[:_NAMED])
    hint = f"push a commit that corrects {places}{' …' if len(wrong) > _NAMED else ''}; or run the earlier version"
    message = f"commit {enforced[:10]}, which is in force, is not valid for this version of gitops-agent: "
    return SourceRefused(f"{message}its agents keep running, and none of them is repaired", hint=hint)


def lost(enforced: str) -> SourceRefused:
    """The problem of a commit in force that a force-push took off the branch, and that nobody gives us."""
    return SourceRefused(
        f"commit {enforced[:10]}, which is in force, is not here, and the remote does not give it: "
        "its agents keep running, and none of them is repaired",
        hint="push it to any branch from a clone that has it, and it is found: "
        f"git push origin {enforced}:refs/heads/last-good. If nobody has it any more, stop gitops-agent and move "
        "its journal away: agents are found again by their marks",
    )
