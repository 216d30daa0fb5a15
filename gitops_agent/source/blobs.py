"""Contents of many blobs through one ``git cat-file --batch``."""

from collections.abc import Iterator, Sequence
from typing import IO

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.source.bounded_process import Bounded, Overrun
from gitops_agent.source.git import Git, LocalFailure

_CHUNK_BLOBS = 512
_CHUNK_BYTES = 4 * 1024 * 1024


def contents(git: Git, ids: Sequence[str], cap: int, timeout: float) -> Iterator[tuple[str, bytes]]:
    """The blobs in the order given. The deadline counts reading only, not what the caller does in between."""
    if not ids:
        return
    with git.stream("cat-file", "--batch", "--buffer", feed=lambda pipe: _ask(pipe, ids)) as process:
        done = 0
        while done < len(ids):
            chunk = _chunk(git, process, ids[done : done + _CHUNK_BLOBS], cap, timeout)
            yield from chunk
            done += len(chunk)


def _ask(pipe: IO[bytes], ids: Sequence[str]) -> None:
    for start in range(0, len(ids), _CHUNK_BLOBS):
        pipe.write("".join(f"{blob}\n" for blob in ids[start : start + _CHUNK_BLOBS]).encode())


def _chunk(git: Git, process: Bounded, ids: Sequence[str], cap: int, timeout: float) -> list[tuple[str, bytes]]:
    chunk: list[tuple[str, bytes]] = []
    size = 0
    try:
        with process.deadline(timeout):
            for blob in ids:
                content = _content(git, process.stdout, blob, cap)
                chunk.append((blob, content))
                size += len(content)
                if size > _CHUNK_BYTES:
                    break
    except Overrun as overrun:
        raise SourceUnavailable(f"mirror {git.directory}: reading blobs was ended: {overrun}") from None
    return chunk


def _content(git: Git, stdout: IO[bytes], blob: str, cap: int) -> bytes:
    header = stdout.readline(256).split()
    if len(header) != 3 or header[0] != blob.encode() or header[1] != b"blob":
        raise LocalFailure(f"mirror {git.directory}: blob {blob} is missing or broken")
    size = int(header[2])
    if size > cap:
        raise SourceRefused(
            f"blob {blob} has {size} bytes, more than the {cap} allowed",
            hint="make the file smaller, or raise limits.fileBytes",
        )
    content = stdout.read(size)
    if len(content) != size or stdout.read(1) != b"\n":
        raise LocalFailure(f"mirror {git.directory}: blob {blob} is broken")
    return content
