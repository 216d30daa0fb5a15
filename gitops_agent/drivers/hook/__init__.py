"""Hooks: what is called once in the life of an agent, and never twice by itself.

What belongs here: calling (``call``), keeping how it ended in our own record (``apply``, ``observe``). What does
not: when a hook is due (``plan/hooks.py``), and what becomes of a call that a crash cut off
(``reconcile/recovery.py``). What the codes of hooks mean is in core, because core decides when they run.
"""

from gitops_agent.drivers.api import HOOK, Context, Driver, Plugin
from gitops_agent.drivers.hook.spec import DRIVER, resources


def connect(context: Context) -> Driver:
    """The hook driver of one instance: commands are run by the runtime drivers."""
    from gitops_agent.drivers.hook.apply import HookDriver
    from gitops_agent.drivers.hook.call import Caller

    return HookDriver(Caller(context.instance, context.hook_hosts, context.executing), context.clock)


PLUGIN = Plugin(DRIVER, (HOOK,), resources, connect, local=True)
