"""Secrets are recognised by one list of formats, refused where written and masked where shown."""

from __future__ import annotations

import base64

import pytest

from gitops_agent.support.secrets import MASK, Redactor, looks_secret
from gitops_agent.support.text import one_line

pytestmark = pytest.mark.unit
FILLER = "0aB" * 15

TOKENS = [
    "sk-" + FILLER[:20],
    "pk_" + FILLER[:20],
    "ghp_" + FILLER[:20],
    "github_pat_" + FILLER[:20],
    "glpat-" + FILLER[:16],
    "xoxb-" + FILLER[:10],
    "12345678:" + FILLER[:35],
    "AKIA" + "0AB" * 5 + "0",
    "AIza" + FILLER[:35],
    "hvs." + FILLER[:20],
    f"eyJ{FILLER[:8]}.{FILLER[:8]}.{FILLER[:8]}",
]


@pytest.mark.parametrize("token", TOKENS)
def test_what_is_refused_in_a_file_is_masked_in_a_text(token: str) -> None:
    assert looks_secret(f"x {token} y")
    assert Redactor()(f"x {token} y") == f"x {MASK} y"


def test_a_known_secret_is_masked_behind_other_text_in_base64_and_as_hex() -> None:
    secret = "not-a-real-value-71f0a9c2"
    redactor = Redactor([secret])
    for user in ("u", "us", "use"):
        encoded = base64.b64encode(f"{user}:{secret}".encode()).decode()
        assert encoded[8:-4] not in redactor(encoded)
    assert redactor(secret.encode().hex()) == MASK


def test_one_line_is_short_and_has_no_control_characters() -> None:
    assert one_line("a\n  b\tc\x1b[2J", 100) == "a b c\\x1b[2J"
    assert one_line("abcdef", 4) == "abc…"


def test_what_agents_are_given_is_a_secret_from_six_characters_on() -> None:
    redactor = Redactor()
    redactor.learn(["info", "5432", " true ", "hunter2"])
    assert redactor("info on 5432 is true, hunter2") == f"info on 5432 is true, {MASK}"


def test_secrets_that_begin_alike_are_told_apart_and_the_longest_is_masked() -> None:
    redactor = Redactor([f"postgres://db-{number}" for number in range(200)])
    assert redactor("postgres://db-19 postgres://db-199 postgres://db-x") == f"{MASK} {MASK} postgres://db-x"


def test_what_is_learned_later_is_masked_in_a_text_that_was_shown_before() -> None:
    redactor = Redactor()
    assert redactor("it is hunter2") == "it is hunter2"
    redactor.learn(["hunter2"])
    assert redactor("it is hunter2") == f"it is {MASK}"
