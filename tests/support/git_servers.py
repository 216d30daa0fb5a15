"""Real Git servers on loopback: ``git http-backend`` behind a small HTTP server, and ssh by asyncssh.

    with http_server(root) as server:   # every repository below root, read and write
        server.url("fleet.git")
    with ssh_server(root, keys) as server:
        server.url("fleet.git"), server.known_hosts, server.client_key

Failures are scripted: ``server.script.append(Fail(503, {"Retry-After": "7"}))`` is spent by the next request.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Fail:
    """Answer with this status and these headers."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """Take the request and never answer, until the server is closed."""


@dataclass(frozen=True)
class Drip:
    """Answer 200 and then one byte at a time, for ever."""

    pause: float = 0.05


Step = Fail | Hang | Drip


class GitHttpServer(ThreadingHTTPServer):
    """Serves every repository below ``root`` over smart http."""

    daemon_threads = True

    def __init__(self, root: Path, token: str | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.token = token
        self.script: deque[Step] = deque()
        self.always: Step | None = None
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.closing = threading.Event()
        self.scheme = "http"

    @property
    def port(self) -> int:
        return self.server_address[1]

    def url(self, name: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/{name}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: GitHttpServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self._body()
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        step = self.server.script.popleft() if self.server.script else self.server.always
        if step is not None:
            self._misbehave(step)
        elif not self._authorised():
            self._plain(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._backend(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _authorised(self) -> bool:
        if self.server.token is None:
            return True
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        given = base64.b64decode(value).decode().partition(":")[2] if scheme == "Basic" else ""
        return given == self.server.token

    def _misbehave(self, step: Step) -> None:
        self.close_connection = True
        if isinstance(step, Fail):
            self._plain(step.status, step.headers)
        elif isinstance(step, Hang):
            self.server.closing.wait()
        else:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            while not self.server.closing.wait(step.pause):
                self.wfile.write(b"0")

    def _plain(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _backend(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_CONFIG_KEY_1": "safe.directory",
            "GIT_CONFIG_VALUE_1": "*",
            "PATH_INFO": unquote(parts.path),
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": "git",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def http_server(
    root: Path, *, token: str | None = None, tls: tuple[Path, Path] | None = None
) -> Iterator[GitHttpServer]:
    """A server for the repositories below ``root``; with a token, Basic authentication; with tls, (cert, key)."""
    server = GitHttpServer(root, token)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class GitSshServer:
    """Where the ssh server is, and the files a client needs for it."""

    root: Path
    port: int
    known_hosts: Path
    client_key: Path
    commands: list[str] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"ssh://git@127.0.0.1:{self.port}{self.root / name}"


@contextlib.contextmanager
def ssh_server(root: Path, keys: Path) -> Iterator[GitSshServer]:
    """An ssh server that runs git-upload-pack and git-receive-pack below ``root``; keys are made in ``keys``."""
    import asyncssh  # only those who want ssh pay for it

    keys.mkdir(parents=True, exist_ok=True)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    client_file = keys / "client_key"
    client_key.write_private_key(str(client_file))
    client_file.chmod(0o600)
    server = GitSshServer(root, 0, keys / "known_hosts", client_file)

    async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
        program, _, rest = (process.command or "").partition(" ")
        server.commands.append(process.command or "")
        place = Path(rest.strip("'"))
        if program not in ("git-upload-pack", "git-receive-pack") or not place.is_relative_to(root):
            process.stderr.write(b"refused\n")
            process.exit(128)
            return
        version = {"GIT_PROTOCOL": process.env["GIT_PROTOCOL"]} if "GIT_PROTOCOL" in process.env else {}
        child = await asyncio.create_subprocess_exec(
            "git",
            "-c",
            "safe.directory=*",
            program.removeprefix("git-"),
            str(place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **version},
        )
        assert child.stdin
        asking = asyncio.create_task(_pump(process.stdin, child.stdin))
        await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        process.exit(await child.wait())

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(client_key.export_public_key().decode()),
            process_factory=handle,
            encoding=None,
        )

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    server.port = acceptor.get_port()
    public = host_key.export_public_key().decode().strip()
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {public}\n", encoding="ascii")
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_close(acceptor), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pump(source: Any, target: Any) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    if isinstance(target, asyncio.StreamWriter):
        target.close()


async def _close(acceptor: Any) -> None:
    acceptor.close()
    await acceptor.wait_closed()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def ssh_on_path(folder: Path) -> str:
    """A PATH with an ssh client on it: the installed one, or a stand-in by asyncssh where there is none."""
    return os.environ["PATH"] if shutil.which("ssh") else stand_in_on_path(folder)


def stand_in_on_path(folder: Path) -> str:
    """A PATH that starts with our own ``ssh``, which understands the options gitops-agent gives."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "ssh"
    client = Path(__file__).with_name("ssh_client.py")
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{client}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
