"""The paths and their answers: ``/metrics``, ``/livez``, ``/readyz``. Text, small, and read-only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

Check = Callable[[], tuple[bool, str]]
"""Gives whether all is well, and a text about it."""

_FRESH = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The callables behind the paths. Each returns at once, from any thread, and takes no lock a pass may hold."""

    metrics: Callable[[], bytes]
    live: Check
    ready: Check
    metrics_type: str = "text/plain; version=0.0.4; charset=utf-8"


def make_app(endpoints: Endpoints) -> Starlette:
    """The application; whatever is not one of its paths is 404, whatever is not GET (or HEAD) is 405."""

    # On the event loop itself, not on a pool of threads: nothing here waits for anything.
    async def metrics(_: Request) -> Response:
        return Response(endpoints.metrics(), media_type=endpoints.metrics_type, headers=_FRESH)

    return Starlette(
        routes=[
            Route("/metrics", metrics, methods=["GET"]),
            Route("/livez", _checked(endpoints.live), methods=["GET"]),
            Route("/readyz", _checked(endpoints.ready), methods=["GET"]),
        ]
    )


def _checked(check: Check) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        ok, text = check()
        return PlainTextResponse(text + "\n", 200 if ok else 503, headers=_FRESH)

    return answer
