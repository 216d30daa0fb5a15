"""Hooks: what is called once in the life of an agent, and never twice by itself.

What belongs here: calling (``call``), keeping how it ended in our own record (``apply``, ``observe``). What does
not: when a hook is due (``plan/hooks.py``), and what becomes of a call that a crash cut off
(``journal/replay.py``).
"""

from __future__ import annotations

from gitops_agent.drivers.hook.apply import HookApplier
from gitops_agent.drivers.hook.call import Caller
from gitops_agent.drivers.hook.observe import HookObserver
from gitops_agent.drivers.hook.spec import DRIVER, resources
from gitops_agent.ports import Clock, Driver, DriverContext


def driver(workplace: DriverContext, clock: Clock) -> Driver:
    """The hook driver of one instance: commands go through the runners of the other drivers."""
    caller = Caller(workplace.instance, workplace.hook_hosts, workplace.runners)
    return Driver(name=DRIVER, compile=resources, observer=HookObserver(clock), applier=HookApplier(caller))
