"""Probes, heartbeat and minimum uptime, as a resource like any other.

What belongs here: keeping what is asked of an agent's health in our own record, so that a change of it is an
action and goes through the same gates. What does not: asking (``reconcile/`` evaluates health).
"""

from __future__ import annotations

from gitops_agent.drivers.health.apply import HealthApplier
from gitops_agent.drivers.health.observe import HealthObserver
from gitops_agent.drivers.health.spec import DRIVER, resources
from gitops_agent.ports import Clock, Driver, DriverContext


def driver(workplace: DriverContext, clock: Clock) -> Driver:  # noqa: ARG001 - the shape of every factory
    """The health driver: it needs no place, its live system is our own record."""
    return Driver(name=DRIVER, compile=resources, observer=HealthObserver(clock), applier=HealthApplier())
