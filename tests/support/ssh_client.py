"""A stand-in for the ``ssh`` program, for machines without one: just enough for git, with the host key checked."""

from __future__ import annotations

import asyncio
import os
import sys

import asyncssh


def arguments(words: list[str]) -> tuple[dict[str, str], int, str, str]:
    """Options, port, destination and command of an ssh command line."""
    options: dict[str, str] = {}
    port = 22
    rest = list(words)
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag == "-o":
            name, _, value = rest.pop(0).partition("=")
            options[name] = value.strip('"')
        elif flag == "-p":
            port = int(rest.pop(0))
        elif flag == "-F":
            rest.pop(0)
    return options, port, rest[0], " ".join(rest[1:])


async def main() -> int:
    options, port, destination, command = arguments(sys.argv[1:])
    user, _, host = destination.rpartition("@")
    try:
        connection = await asyncssh.connect(
            host,
            port,
            username=user or "git",
            known_hosts=options["UserKnownHostsFile"],
            client_keys=[options["IdentityFile"]],
            agent_path=None,
            config=None,
        )
    except asyncssh.HostKeyNotVerifiable:
        sys.stderr.write("Host key verification failed.\n")
        return 255
    except (OSError, asyncssh.Error) as problem:
        sys.stderr.write(f"Permission denied (publickey): {problem}\n")
        return 255
    async with connection:
        version = {"GIT_PROTOCOL": os.environ["GIT_PROTOCOL"]} if "GIT_PROTOCOL" in os.environ else {}
        process = await connection.create_process(command, env=version, encoding=None)
        asking = asyncio.create_task(ask(process))
        await asyncio.gather(tell(process.stdout, 1), tell(process.stderr, 2))
        await process.wait_closed()
        asking.cancel()
        return process.returncode or 0


async def ask(process: asyncssh.SSHClientProcess[bytes]) -> None:
    while data := await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 65536):
        process.stdin.write(data)
    process.stdin.write_eof()


async def tell(source: asyncssh.SSHReader[bytes], target: int) -> None:
    while data := await source.read(65536):
        while data:
            data = data[os.write(target, data) :]


async def leave() -> None:
    # At once: a thread may still wait for input that never comes.
    os._exit(await main())


if __name__ == "__main__":
    asyncio.run(leave())
