"""Copy the starter repository that ships with the package."""

from importlib.resources import as_file, files
from pathlib import Path

from gitops_agent.errors import UsageError


def write_starter(directory: Path) -> list[str]:
    """Write the files; UsageError when the folder already holds something. The names written, sorted."""
    if directory.exists() and (not directory.is_dir() or any(e.name != ".git" for e in directory.iterdir())):
        raise UsageError(f"{directory} is not empty", hint="name a folder that does not exist yet")
    with as_file(files("gitops_agent.cli").joinpath("starter")) as starter:
        sources = {str(path.relative_to(starter)): path for path in starter.rglob("*") if path.is_file()}
        for name, source in sources.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(source.read_bytes())
    return sorted(sources)
