"""The connected drivers of an instance: each begins to watch, whenever it was connected."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest

from gitops_agent.drivers.api import Applied, Driver, Notify, Observation, ObserveRequest
from gitops_agent.drivers.plugins import Connections
from tests.support.plugins import a_plugin, connect

pytestmark = pytest.mark.unit

MOMENT_SECONDS = 0.3


class Watched:
    """A driver that counts how often it was told to watch."""

    def __init__(self) -> None:
        self.started = 0

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        return ()

    def apply(self, action: Any, key: str) -> Applied:
        return Applied("done")

    def start(self, notify: Notify) -> None:
        self.started += 1

    def stop(self) -> None:
        self.started -= 1


class Starting(dict[str, Driver]):
    """The connected drivers, of which one is added in the very moment in which all begin to watch."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.start = Thread(target=connections.start, args=(lambda *_: None,))

    def __setitem__(self, name: str, driver: Driver) -> None:
        self.start.start()
        self.start.join(MOMENT_SECONDS)  # it is over by then, unless it waits until the driver is there
        super().__setitem__(name, driver)


def test_a_driver_that_is_connected_while_all_begin_to_watch_does_so_once() -> None:
    driver = Watched()
    connections = connect([a_plugin("one", driver)])
    connections._connected = Starting(connections)
    assert connections["one"] is driver
    connections._connected.start.join()
    assert driver.started == 1
    connections.stop()
    assert driver.started == 0


@pytest.mark.parametrize("early", [True, False], ids=["connected before", "connected after"])
def test_drivers_watch_whenever_they_are_connected(early: bool) -> None:
    driver = Watched()
    connections = connect([a_plugin("one", driver)])
    if early:
        connections["one"]
    connections.start(lambda *_: None)
    assert connections["one"] is driver
    assert driver.started == 1
