"""The server, on a thread of its own: started, and ended within bounds, like any other part."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn

from gitops_agent.web.app import Endpoints, make_app
from gitops_agent.web.listen import is_loopback, listen, parse, shown

GRACE_SECONDS = 2
"""How long answers under way get when we end."""

MAX_CONNECTIONS = 64
"""At the same time; more are turned away, so that they cannot use up the file handles that passes need."""

log = structlog.get_logger(__name__)


@contextmanager
def serving(address: str, endpoints: Endpoints) -> Iterator[str]:
    """Answer on this address while the block runs; gives the address in force. UsageError when it is not free."""
    listening = listen(address)
    where = shown(listening)
    server = uvicorn.Server(_configuration(endpoints))
    # The thread is not the main one, so uvicorn leaves the signals to us.
    thread = threading.Thread(target=server.run, args=([listening],), name="web", daemon=True)
    thread.start()
    log.info("listening", address=where, paths=["/metrics", "/livez", "/readyz"])
    if not is_loopback(parse(address)[0]):
        log.warning(
            "metrics and health are served beyond this machine, without a password; "
            "listen on 127.0.0.1 unless a network policy protects this address",
            address=where,
        )
    try:
        yield where
    finally:
        server.should_exit = True
        thread.join(GRACE_SECONDS + 3)
        listening.close()


def _configuration(endpoints: Endpoints) -> uvicorn.Config:
    """The settings of uvicorn: plain HTTP/1.1 and nothing that is not needed; logs go where those of all
    libraries go."""
    return uvicorn.Config(
        make_app(endpoints),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
