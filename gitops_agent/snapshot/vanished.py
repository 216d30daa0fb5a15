"""Agents that a slip would end: their text is still there, and declares none of them any more.

An empty file, one that is commented out, truncated, encrypted or only a pointer to its content reads like a file
without agents; so does one under a name that is not read. To end an agent people delete its file, or say Retired;
so this is neither.
"""

from collections.abc import Callable, Collection, Mapping

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import counted
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import TreeEntry
from gitops_agent.snapshot.codes import Code, FilePosition, error
from gitops_agent.snapshot.index import Index
from gitops_agent.snapshot.tree import TreeChanges
from gitops_agent.support.text import escape_control

_WAY_OUT = "Restore the document. To end an agent, delete its file, or let it say lifecycle: Retired first."
_NAMED = 5

Since = Callable[[Snapshot], Collection[TreeEntry]]
"""``since(in_force)``: the files that differ from those of a commit. Asked only when one may have been moved."""


def vanished_documents(
    in_force: Snapshot | None, index: Index, tree: TreeChanges, failed: Mapping[str, Collection[str]], since: Since
) -> list[Finding]:
    """An error for each file that held agents in the commit in force, and of which only the text is left.

    ``failed``: the names in each file with errors of its own; an agent that is named in one did not vanish.
    """
    if in_force is None:
        return []
    lost: dict[tuple[str, str], list[AgentKey]] = {}
    for key, agent in in_force.agents.items():
        if key not in index.agents and agent.lifecycle is not Lifecycle.RETIRED:
            lost.setdefault((agent.origin.path, agent.origin.blob), []).append(key)
    gone = {blob for path, blob in lost if path not in tree.files}
    unread = _unread(gone, tree, lambda: since(in_force)) if gone else {}
    found: list[Finding] = []
    for (path, blob), keys in lost.items():
        named = [key for key in keys if key.name not in failed.get(path, ())]
        if named and (how := _how(path, index, tree)):
            found.append(_finding(path, f"the file of {_listed(named)} {how}"))
        elif path not in tree.files and blob in unread:
            moved = f"was moved to {escape_control(unread[blob])}, which is not read"
            found.append(_finding(unread[blob], f"the file of {_listed(keys)} {moved}"))
    return found


def _unread(
    blobs: Collection[str], tree: TreeChanges, since: Callable[[], Collection[TreeEntry]]
) -> dict[str, str]:
    """Where some blobs are now without being read (blob to path); a copy that was there before is none of them."""
    found = {
        path: each.blob for path, each in tree.files.items() if each.blob in blobs and not tree.is_document(path)
    }
    new = {entry.path for entry in since()} if found else ()
    return {blob: path for path, blob in found.items() if path in new}


def _how(path: str, index: Index, tree: TreeChanges) -> str:
    """What became of the text of agents at a path; nothing when people took it out."""
    if path in tree.hidden:
        return "is hidden by .gitopsignore now"
    if path not in tree.files:
        return ""
    file = index.files.get(path)
    if file is None or not file.agents:
        return "is still there and declares none now"
    # Beside other agents a document may be taken out by hand; what is left of one is not taken out.
    remains = any(finding.code == Code.FOREIGN_DOCUMENT for finding in file.findings)
    return "holds other agents, and text that declares none" if remains else ""


def _listed(keys: Collection[AgentKey]) -> str:
    names = ", ".join(map(str, sorted(keys)[:_NAMED]))
    if len(keys) == 1:
        return f"agent {names}"
    return f"{counted(len(keys), 'agent')} ({names}{'' if len(keys) <= _NAMED else ', …'})"


def _finding(path: str, summary: str) -> Finding:
    return error(Code.VANISHED_DOCUMENT, FilePosition(path), summary, _WAY_OUT)
