"""What an agent wrote: the one place that knows where to read it."""

from __future__ import annotations

from pathlib import Path

from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import AgentStatus


def log_files(state_dir: Path, agent: AgentKey, status: AgentStatus | None) -> list[Path]:
    """The files an agent's output goes to, as its status names them; of one that is gone, those it left."""
    from gitops_agent.drivers.local.agent_dir import AgentDir

    live = [resource.live for resource in status.resources] if status else []
    named = [str(shown["log"]) for shown in live if shown.get("log")]
    left = AgentDir(str(state_dir)).log(agent, 0)
    folders = {Path(path).parent for path in named or [left]}
    return sorted(path for folder in folders for path in folder.glob("*.log"))
