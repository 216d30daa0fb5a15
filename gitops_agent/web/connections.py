"""Connections that cannot keep others out.

Each has a few seconds for a request, and when there are too many, the one that was used the longest ago makes way.
Every answer takes no time, so the newest request is always answered.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64
"""At the same time, so that they cannot use up the file handles that passes need."""

IDLE_SECONDS = 5.0
"""How long a connection may take for its first request, and from one answer to the end of the next request."""


def bounded_protocol() -> type[H11Protocol]:
    """The class of the connections of one server."""
    known: dict[H11Protocol, asyncio.TimerHandle] = {}  # the one used the longest ago is first

    class BoundedConnection(H11Protocol):
        """One connection. It ends when its time is up, whatever its peer does meanwhile."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._count_from_now()
            if len(known) > MAX_CONNECTIONS:
                next(iter(known)).transport.abort()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._count_from_now()

        def connection_lost(self, exc: Exception | None) -> None:
            if (timer := known.pop(self, None)) is not None:
                timer.cancel()
            super().connection_lost(exc)

        def _count_from_now(self) -> None:
            if (timer := known.pop(self, None)) is not None:
                timer.cancel()
            known[self] = self.loop.call_later(IDLE_SECONDS, self.transport.abort)

    return BoundedConnection
