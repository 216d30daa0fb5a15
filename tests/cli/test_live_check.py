"""``doctor --live`` asks the one that runs here whether it is alive: the health check of the image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gitops_agent.web.server import serving


def ask(listen: str, *options: str) -> tuple[int, str]:
    call = [str(Path(sys.executable).parent / "gitops-agent"), "doctor", "--live", *options]
    environment = {**os.environ, "GITOPS_AGENT_LISTEN": listen}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize(("live", "code"), [((True, "standby"), 0), ((False, "passes: too late"), 1)])
def test_it_answers_as_livez_does(live: tuple[bool, str], code: int) -> None:
    with serving("127.0.0.1:0", bytes, lambda: live, lambda: (False, "not asked")) as where:
        assert ask(where) == (code, live[1])
        assert json.loads(ask(where, "-o", "json")[1]) == {"ok": live[0], "said": live[1]}


def test_one_that_listens_everywhere_is_asked_on_loopback() -> None:
    with serving("127.0.0.1:0", bytes, lambda: (True, "ok"), lambda: (True, "")) as where:
        assert ask(f"0.0.0.0:{where.rpartition(':')[2]}") == (0, "ok")


@pytest.mark.parametrize(
    ("listen", "why"),
    [("", "no known port"), ("127.0.0.1:0", "no known port"), ("127.0.0.1:1", "does not answer")],
)
def test_none_that_answers_is_not_alive(listen: str, why: str) -> None:
    code, text = ask(listen)
    assert code == 1
    assert why in text
