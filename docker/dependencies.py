"""Prints what the image installs besides us: the dependencies in pyproject.toml and those of the named extras."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
names = [name for name in sys.argv[2].split(",") if name]
sys.stdout.writelines(f"{line}\n" for line in sum((extras[name] for name in names), project["dependencies"]))
