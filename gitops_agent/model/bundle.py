"""The bundle: what the brain of an agent needs, compiled from its document.

One value for every runtime: a file for local ones, a ConfigMap elsewhere. Its digest is part of what a runtime
depends on, unless the runtime declares hot reload.
"""

from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.key import AgentKey


def compile_bundle(agent: AgentKey, document: AgentDocument) -> Fields:
    """Model, instructions, tools, MCP servers and limits of an agent; every key is always there.
    ValueError when free-form parameters or limits hold what JSON cannot say."""
    spec = document.spec
    content: dict[str, JSON] = {
        "tenant": agent.tenant,
        "name": agent.name,
        "model": spec.model.model_dump() if spec.model else None,
        "instructions": spec.instructions,
        "tools": [tool.model_dump() for tool in spec.tools],
        "mcpServers": [server.model_dump() for server in spec.mcp_servers],
        "limits": spec.limits,
    }
    try:
        return Fields.of(content)
    except TypeError as problem:
        raise ValueError(
            f"model.parameters or limits hold a value that JSON cannot carry ({problem}); "
            "use text, numbers below 2^63, booleans, lists and maps with text keys"
        ) from None
