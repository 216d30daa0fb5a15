"""``kill -9`` at random moments of rollouts over real processes: the small campaign; the large one is its own
target, ``make campaign``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(300)
def test_a_kill_in_a_rollout_loses_and_repeats_nothing(lair: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.crash.rollouts",
            "--folder",
            str(lair),
            "--kills",
            "5",
            "--seed",
            "1",
            "--workers",
            "1",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 kills" in done.stdout.splitlines()[-1]
    assert "0 lost, 0 duplicated, 0 repeated, 0 wrong" in done.stdout.splitlines()[-1]
