"""The bundle of an agent on a local runtime, as a file the agent reads (``MANAGED_AGENT_CONFIG``).

What belongs here: writing, watching over and removing that file. What does not: what is in it
(``model/bundle.py``) and restarting an agent because of it (the runtime's digest covers that).
"""

from gitops_agent.drivers.api import CONFIG, Class, Context, Driver, Plugin, Reason
from gitops_agent.drivers.config.spec import DRIVER, resources

REASONS = {
    "ConfigEdited": Reason("The config bundle was edited in place.", about_fields=True),
    "ConfigLost": Reason("The config bundle is gone.", Class.MISSING_EXTERNAL),
}


def connect(context: Context) -> Driver:
    """The config driver of one instance."""
    from gitops_agent.drivers.config.apply import ConfigDriver
    from gitops_agent.drivers.local.agent_dir import AgentDir

    return ConfigDriver(AgentDir(context.state_dir), context.clock)


PLUGIN = Plugin(DRIVER, (CONFIG,), resources, connect, reasons=REASONS, local=True)
