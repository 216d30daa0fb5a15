"""The snapshot stage: cold, after a restart, and after a commit that touches one file.

The yardstick for cold is what nobody can do without: reading all blobs with ``git cat-file --batch``, the fastest
YAML parse we know, and bare pydantic validation of the same bytes into the same models, collector paused.
"""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import orjson
import yaml_rs

from benchmarks import Row
from benchmarks.fleet import build_fleet, commit, git, spec
from benchmarks.timing import medians, moment, resident_mib, timed
from gitops_agent.drivers import config, process
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.revision import Revision
from gitops_agent.ports import TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.snapshot.cache import FILE_NAME, Cache, version_of
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.git_text import parse_changes
from gitops_agent.support.gc import gc_paused

PLUGINS = Plugins([config.PLUGIN, process.PLUGIN])
SIZE = 10_000
TURNS = 5


class PlainReader:
    """Blobs through bare git, without the mirror: the stage is measured, not the source."""

    def __init__(self, repo: Path) -> None:
        self._repo = repo

    def entries(self, sha: str) -> Sequence[TreeEntry]:
        """Every file of a commit."""
        found = []
        for record in git(self._repo, "ls-tree", "-r", "-l", "-z", "--full-tree", sha).decode().split("\0")[:-1]:
            handle, _, path = record.partition("\t")
            mode, kind, blob, size = handle.split()
            found.append(TreeEntry(mode, kind, blob, int(size), path))
        return found

    def changed(self, old_sha: str, new_sha: str) -> Sequence[TreeEntry]:
        """What differs between two commits."""
        return parse_changes(git(self._repo, "diff-tree", "-r", "-z", "--no-renames", old_sha, new_sha))

    def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Contents, streamed from one ``cat-file --batch``."""
        with tempfile.TemporaryFile() as wanted:
            wanted.write("".join(f"{blob}\n" for blob in ids).encode())
            wanted.seek(0)
            command = ["git", "cat-file", "--batch", "--buffer"]
            with subprocess.Popen(command, cwd=self._repo, stdin=wanted, stdout=subprocess.PIPE) as batch:
                assert batch.stdout is not None
                for _ in ids:
                    blob, _, size = batch.stdout.readline().decode().split()
                    content = batch.stdout.read(int(size) + 1)
                    yield blob, content[:-1]


def revision(repo: Path, sha: str) -> Revision:
    """The revision of a commit, as the source would give it."""
    tree = git(repo, "rev-parse", f"{sha}^{{tree}}").decode().strip()
    return Revision(sha, tree, (), author="", authored_at=0.0, committed_at=0.0, message="")


def run(size: int = SIZE) -> list[Row]:
    """Every measurement of this stage."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        large, small = place / "large.git", place / "small.git"
        first = revision(large, build_fleet(large, size))
        rows = [*_cold_and_restart(large, first, place), _one_file(large, small, size)]
        return [*rows, _memory(large, first.sha)]


def _cold_and_restart(repo: Path, first: Revision, place: Path) -> list[Row]:
    state = place / "state"

    def cold_start() -> float:
        shutil.rmtree(state, ignore_errors=True)
        return _load(repo, state, first)

    *parts, cold, restart = medians(
        TURNS, *_yardstick(PlainReader(repo), first.sha), cold_start, lambda: _load(repo, state, first)
    )
    note = f"{cold:.2f} s / ({' + '.join(f'{part:.2f}' for part in parts)}) s"
    return [
        Row("cold snapshot / (read + fastest parse + bare validation)", cold / sum(parts), 1.5, note=note),
        Row("restart with nothing changed / cold", restart / cold, 0.3, note=moment(restart)),
    ]


def _yardstick(reader: PlainReader, sha: str) -> list[Callable[[], float]]:
    """Reading, parsing and validating, each timed alone, with the collector paused."""
    validate = AgentDocument.__pydantic_validator__.validate_json
    texts = [data.decode() for _, data in reader.blobs([entry.blob for entry in reader.entries(sha)])]
    values = [orjson.dumps(yaml_rs.loads(text, parse_datetime=False)) for text in texts]

    def read() -> None:
        for _ in reader.blobs([entry.blob for entry in reader.entries(sha)]):
            pass

    def parse() -> None:
        for text in texts:
            orjson.dumps(yaml_rs.loads(text, parse_datetime=False))

    def check() -> None:
        for value in values:
            validate(value)

    return [partial(gc_paused()(timed), step) for step in (read, parse, check)]


def _load(repo: Path, state: Path, first: Revision) -> float:
    """What a fresh process does, from opening the cache to the snapshot; the cache is written behind it."""
    begin = time.perf_counter()
    settings = Settings(state_dir=str(state))
    cache = Cache(state / FILE_NAME, version_of(settings, PLUGINS))
    Loader(PlainReader(repo), PLUGINS, settings, cache).load(first)
    taken = time.perf_counter() - begin
    cache.close()
    gc.unfreeze()  # the next attempt starts as a fresh process would
    return taken


def _one_file(large: Path, small: Path, size: int) -> Row:
    build_fleet(small, size // 10)
    few, many = medians(11, _one_file_loaded(small), _one_file_loaded(large))
    name = f"one-file commit, the loader alone: {size} specs / {size // 10} specs"
    return Row(name, many / few, note=f"{many * 1000:.1f} ms")


def _one_file_loaded(repo: Path) -> Callable[[], float]:
    """Each call commits a change to another file and gives the time until it is loaded."""
    loader = Loader(PlainReader(repo), PLUGINS, Settings(), None)
    loader.load(revision(repo, git(repo, "rev-parse", "main").decode().strip()))
    numbers = count()

    def load() -> float:
        path, text = spec(next(numbers), lifecycle="Stopped")
        new = revision(repo, commit(repo, {path: text}))
        return timed(lambda: loader.load(new))

    return load


def _memory(repo: Path, sha: str) -> Row:
    """Resident memory of a fresh process that holds the snapshot."""
    probe = subprocess.run(
        [sys.executable, "-m", "benchmarks.snapshot", "--memory", str(repo), sha],
        capture_output=True,
        text=True,
        check=True,
    )
    return Row("resident memory with the snapshot loaded", float(probe.stdout), 250.0, unit="MiB")


def _print_memory(repo: Path, sha: str) -> None:
    loader = Loader(PlainReader(repo), PLUGINS, Settings(), None)
    snapshot = loader.load(revision(repo, sha))
    print(resident_mib() if snapshot.agents else 0.0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        _print_memory(Path(sys.argv[2]), sys.argv[3])
    else:
        print(*run(), sep="\n")
