"""The address we listen on: parsed, bound at once, and shown as it turned out to be."""

import errno
import ipaddress
import socket

from gitops_agent.errors import UsageError

BACKLOG = 64


def parse(address: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9733`` or ``[::1]:9733``; UsageError otherwise."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise _wrong(address, "it is not a host and a port up to 65535")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost is taken to reach further."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(address: str) -> socket.socket:
    """A socket that listens on the address; UsageError when it is wrong or taken, before anything else begins."""
    host, port = parse(address)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        raise _wrong(address, f"the host is not known: {problem.strerror or problem}") from problem
    listening = socket.socket(family, kind, protocol)
    try:
        # So that the next run can have it at once; a listener of another process is still in the way.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as problem:
        listening.close()
        taken = problem.errno == errno.EADDRINUSE
        why = "something else listens there" if taken else f"{problem.strerror or problem}"
        raise _wrong(address, why) from problem
    return listening


def shown(listening: socket.socket) -> str:
    """The address as a URL has it; with port 0, the port that was chosen."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wrong(address: str, why: str) -> UsageError:
    hint = (
        "give every run on a machine an address of its own: `listen: 127.0.0.1:PORT` in the settings or "
        "GITOPS_AGENT_LISTEN=127.0.0.1:PORT (port 0 takes any free one); GITOPS_AGENT_LISTEN= serves nothing"
    )
    return UsageError(f"listen: cannot listen on {address}: {why}", hint=hint)
