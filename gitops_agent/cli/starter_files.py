"""Copy the starter repository that ships with the package."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from gitops_agent.errors import UsageError


def write_starter(directory: Path) -> list[str]:
    """Write the files; UsageError when the folder already holds something. The names written, sorted."""
    if directory.exists() and (not directory.is_dir() or any(e.name != ".git" for e in directory.iterdir())):
        raise UsageError(f"{directory} is not empty", hint="name a folder that does not exist yet")
    written: list[str] = []
    _copy(files("gitops_agent.cli").joinpath("starter"), directory, "", written)
    return sorted(written)


def _copy(source: Traversable, target: Path, prefix: str, written: list[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            _copy(entry, target / entry.name, f"{prefix}{entry.name}/", written)
        elif entry.name != "__init__.py":
            (target / entry.name).write_bytes(entry.read_bytes())
            written.append(prefix + entry.name)
