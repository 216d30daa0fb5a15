"""Secrets in what a command says: hidden before anybody sees them, in whatever form they come."""

from __future__ import annotations

import base64
import json
import os
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gitops_agent.support.secrets import OutputMask as Mask
from tests.drivers.conftest import BOT, SLEEP, Fleet

TOKEN = "not-a-real-token-0123456789"
KEY = "-----BEGIN KEY-----\nQUJDREVGR0hJSktM\nTU5PUFFSU1RVVldY\n-----END KEY-----\n"


@pytest.fixture
def guarded(make_fleet: Callable[..., Fleet], tmp_path: Path) -> Fleet:
    """An agent with one secret from the environment and one of several lines from a file."""
    file = tmp_path / "key"
    file.write_text(KEY)
    fleet = make_fleet(environment={"PATH": os.environ["PATH"], "TOKEN": TOKEN})
    references: list[dict[str, Any]] = [
        {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "TOKEN"}}},
        {"name": "KEY", "valueFrom": {"secretRef": {"provider": "file", "name": str(file)}}},
    ]
    fleet.run(*SLEEP, env=[*references, {"name": "LEVEL", "value": "info"}])
    return fleet


def said(fleet: Fleet, script: str, timeout: float = 20) -> str:
    return fleet.driver.exec(BOT, ["sh", "-c", script], timeout).message


def test_a_probe_that_prints_its_environment_shows_no_secret(guarded: Fleet) -> None:
    shown = said(guarded, 'env; echo "$TOKEN" >&2; exit 1')
    assert "TOKEN=***" in shown
    assert "LEVEL=info" in shown
    assert not [word for word in (TOKEN, *KEY.split()) if len(word) > 3 and word in shown]


def test_lines_and_encoded_forms_are_hidden_too(guarded: Fleet) -> None:
    assert said(guarded, "echo \"$KEY\" | sed -n 2p | sed 's/^/line: /'") == "exit code 0: line: ***"
    shown = said(guarded, 'printf "user:$TOKEN" | base64')
    assert base64.b64encode(f"user:{TOKEN}".encode()).decode()[8:40] not in shown
    assert "***" in shown
    assert "***" in said(guarded, 'printf "%s" "$KEY" | base64')


def test_a_secret_across_the_cut_is_hidden(guarded: Fleet) -> None:
    for before in range(4096 - len(TOKEN) - 1, 4098, 7):
        shown = said(guarded, f'head -c {before} /dev/zero | tr "\\0" x; echo "$TOKEN"; yes | head -c 9999')
        assert TOKEN[:4] not in shown


def test_a_secret_that_was_being_said_when_the_time_was_over_is_hidden(guarded: Fleet) -> None:
    shown = said(guarded, 'printf "%.12s" "$TOKEN"; sleep 300', timeout=1.0)
    assert shown == "no answer within 1 s: ***"


secrets = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=6, max_size=40
).filter(lambda text: len(text.strip()) >= 6)


@pytest.mark.unit
@given(st.lists(secrets, min_size=1, max_size=3), st.binary(max_size=20), st.integers(0, 100))
@example(["abcdef", "defghi"], b"", 0)
def test_nothing_of_a_secret_is_left(values: list[str], noise: bytes, cap: int) -> None:
    mask = Mask(values)
    for value in values:
        raw = value.encode()
        for form in (raw, json.dumps(value).encode(), urllib.parse.quote(value, safe="").encode()):
            data = noise + form + noise + form
            shown = mask.hide(data[: cap + mask.longest], cap)
            assert raw not in shown.replace(b"***", b"\0")
            assert form.strip(b'"') not in shown.replace(b"***", b"\0")


@pytest.mark.unit
def test_overlapping_secrets_leave_no_rest_and_other_text_stays() -> None:
    assert Mask(["abcdef", "defghi"]).hide(b"<abcdefghi> <defghi>", 100) == b"<***> <***>"
    assert Mask([]).hide(b"plain", 100) == b"plain"
    assert Mask([""]).hide(b"plain", 3) == b"pla"
    assert Mask(["x" * 50]).hide(b"a" + b"x" * 50 + b"b", 2) == b"a***"
