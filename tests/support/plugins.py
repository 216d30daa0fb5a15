"""Plugins and connections for tests that need no entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gitops_agent.drivers import process
from gitops_agent.drivers.api import (
    CONFIG,
    RUNTIME,
    AgentDocument,
    AgentKey,
    Clock,
    Compilation,
    Context,
    Driver,
    Plugin,
    Reason,
    Resource,
)
from gitops_agent.drivers.plugins import Connections, Plugins
from gitops_agent.snapshot.compile import compilation
from gitops_agent.testing.clock import FrozenClock

PLACE = "/nowhere"


def compiled(plugin: Plugin, agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """What a plugin makes of a document, with the process driver as the runtime that is installed."""
    return tuple(plugin.compile(compilation(Plugins([process.PLUGIN]), agent, document)))


def a_plugin(
    name: str,
    driver: Any,
    reasons: Mapping[str, Reason] | None = None,
    compiler: Callable[[AgentKey, AgentDocument], Sequence[Resource]] = lambda _agent, _document: (),
) -> Plugin:
    """A plugin that connects to an object that is there already."""

    def compiled_by(asked: Compilation) -> Sequence[Resource]:
        return compiler(asked.agent, asked.document)

    return Plugin(name, (CONFIG, RUNTIME), compiled_by, lambda _context: driver, reasons=reasons or {}, local=True)


def connect(plugins: Iterable[Plugin], clock: Clock | None = None, **more: Any) -> Connections:
    """Connections of an instance called test."""
    return Connections(Plugins(plugins), Context("test", PLACE, clock or FrozenClock()), **more)


def connected(drivers: Mapping[str, Driver], clock: Clock | None = None) -> Connections:
    """Connections to drivers that are there already, by name."""
    return connect((a_plugin(name, driver) for name, driver in drivers.items()), clock)
