"""Agents that a slip would end: their file is still there and declares none of them any more.

An empty file, one that is commented out, truncated, encrypted or only a pointer to its content reads like a file
without agents. To end an agent people delete its file, or say Retired; so this is neither.
"""

from collections.abc import Collection, Mapping

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import counted
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.snapshot.codes import Code, FilePosition, error
from gitops_agent.snapshot.tree import TreeChanges

_WAY_OUT = "Restore the document. To end an agent, delete its file, or let it say lifecycle: Retired first."
_NAMED = 5


def vanished_documents(
    in_force: Snapshot | None,
    agents: Mapping[AgentKey, Agent],
    tree: TreeChanges,
    failed: Mapping[str, Collection[str]],
) -> list[Finding]:
    """An error for each file that held agents in the commit in force, is still there, and holds none now.

    ``failed``: the names in each file with errors of its own; an agent that is named in one did not vanish.
    """
    if in_force is None:
        return []
    lost: dict[str, list[AgentKey]] = {}
    for key, agent in in_force.agents.items():
        path = agent.origin.path
        if key in agents or agent.lifecycle is Lifecycle.RETIRED or path not in tree.files:
            continue
        if key.name not in failed.get(path, ()):
            lost.setdefault(path, []).append(key)
    still_used = {agent.origin.path for agent in agents.values()} if lost else set()
    return [_finding(path, keys, tree) for path, keys in lost.items() if path not in still_used]


def _finding(path: str, keys: list[AgentKey], tree: TreeChanges) -> Finding:
    names = ", ".join(map(str, sorted(keys)[:_NAMED]))
    who = (
        f"agent {names}"
        if len(keys) == 1
        else f"{counted(len(keys), 'agent')} ({names}{'' if len(keys) <= _NAMED else ', …'})"
    )
    how = "is hidden by .gitopsignore now" if path in tree.hidden else "is still there and declares none now"
    return error(Code.VANISHED_DOCUMENT, FilePosition(path), f"the file of {who} {how}", _WAY_OUT)
