"""The bundle of an agent on a local runtime, as a file the agent reads (``MANAGED_AGENT_CONFIG``).

What belongs here: writing, watching over and removing that file. What does not: what is in it
(``model/bundle.py``) and restarting an agent because of it (the runtime's digest covers that).
"""

from __future__ import annotations

from gitops_agent.drivers.config.apply import ConfigApplier
from gitops_agent.drivers.config.observe import ConfigObserver
from gitops_agent.drivers.config.spec import DRIVER, resources
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.ports import Clock, Driver, DriverContext


def driver(workplace: DriverContext, clock: Clock) -> Driver:
    """The config driver of one instance."""
    place = AgentDir(workplace.state_dir)
    observer = ConfigObserver(place, clock)
    return Driver(name=DRIVER, compile=resources, observer=observer, applier=ConfigApplier(place, observer))
