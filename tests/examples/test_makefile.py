"""What a newcomer sees of ``make`` on a fresh clone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_says_that_it_sets_up_and_that_it_takes_a_while(tmp_path: Path) -> None:
    """On stderr: the last line of ``make cluster`` on stdout is a path that scripts read."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    call = ["make", "-f", str(MAKEFILE), "VENV=.venv", ".venv/.ready"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "setting up .venv" in done.stderr
    assert "takes a minute" in done.stderr
    assert ".venv is ready" in done.stderr
    assert done.stdout == ""
