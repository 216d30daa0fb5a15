"""No secret text appears in any rendering."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import structlog
from hypothesis import assume, given
from hypothesis import strategies as st

from gitops_agent.model.plan import Effect, Verdict
from gitops_agent.model.status import Phase
from gitops_agent.report.explain_text import explain_text
from gitops_agent.report.json_shapes import history_shape, plan_shape, validate_shape
from gitops_agent.report.json_text import dump_json
from gitops_agent.report.logging_setup import setup_logs
from gitops_agent.report.plan_text import plan_text
from gitops_agent.report.render import PLAIN, Style
from gitops_agent.report.status_text import agent_text, history_text, status_text, validate_text
from gitops_agent.support.secrets import MASK, SHORTEST_FORM, Redactor, names_secret

from .values import (
    BOT,
    NOW,
    SHA,
    Explanation,
    FleetStatus,
    a_condition,
    a_finding,
    a_plan,
    a_record,
    a_status,
    an_action,
    an_entry,
    explanation_shape,
    render_note,
    status_shape,
)

CANARY = "canary-71f0a9c2"

SECRETS = st.text(st.characters(), min_size=SHORTEST_FORM, max_size=30)


@given(SECRETS, st.text(max_size=20), st.text(max_size=20))
@pytest.mark.unit
def test_a_known_secret_never_survives(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor([secret])(before + secret + after)


@given(st.lists(SECRETS, min_size=1, max_size=4), st.text(max_size=10))
@pytest.mark.unit
def test_secrets_next_to_each_other_do_not_survive(secrets: list[str], between: str) -> None:
    text = Redactor(secrets)(between.join(secrets))
    assert not any(secret in text for secret in secrets)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=SHORTEST_FORM, max_size=30))
@pytest.mark.unit
def test_encoded_secrets_do_not_survive(secret: str) -> None:
    assume(secret.strip())
    encoded = base64.b64encode(secret.encode()).decode()
    forms = [quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1], encoded]
    text = Redactor([secret])(" | ".join(forms))
    assert not any(form.rstrip("=") in text for form in forms if len(form) >= SHORTEST_FORM)


@pytest.mark.parametrize(
    "text",
    [
        f"fatal: https://user:{CANARY}@git.example/repo.git not found",
        f"https://{CANARY}@git.example/repo.git",
        f"Authorization: Bearer {CANARY}",
        f"authorization: basic {base64.b64encode(CANARY.encode()).decode()}",
        f"Authorization: {CANARY}",
        f"PASSWORD={CANARY}",
        f"ACME_API_KEY={CANARY} started",
        f'{{"token": "{CANARY}"}}',
        f"{{'client_secret': '{CANARY}'}}",
        f'{{\\"token\\": \\"{CANARY}\\"}}',
        f"password: {CANARY}",
        f'--db-password="{CANARY} with spaces"',
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}",
        f"https://hooks.example/?access_token={CANARY}&x=1",
        "ghp_" + CANARY.replace("-", ""),
    ],
)
@pytest.mark.unit
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    cleaned = Redactor()(text)
    assert CANARY not in cleaned
    assert CANARY.replace("-", "") not in cleaned
    assert base64.b64encode(CANARY.encode()).decode() not in cleaned
    assert MASK in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "3 of 12 agents ready",
        "https://git.example/repo.git",
        "tokens used: 12",
        "agents/acme/support-bot.yaml:7:3",
        "secretRef: {provider: env, name: ACME_TOKEN}",
        "git@example.com:acme/repo.git",
    ],
)
@pytest.mark.unit
def test_what_does_not_is_left_alone(text: str) -> None:
    if text.startswith("tokens"):
        assert "used: 12" in Redactor()(text)
    else:
        assert Redactor()(text) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("API_TOKEN", True),
        ("dbPassword", True),
        ("token_file", False),
        ("secretRef", False),
        ("replicas", False),
        ("sentryDsn", True),
    ],
)
@pytest.mark.unit
def test_names_of_secrets(name: str, expected: bool) -> None:
    assert names_secret(name) is expected


@pytest.mark.unit
def test_trees_are_masked_by_field_name_too() -> None:
    tree = {
        "env": [{"name": "DB_PASSWORD", "value": "swordfish"}, {"name": "LOG_LEVEL", "value": "info"}],
        "patch": [{"op": "replace", "path": "/env/API_TOKEN", "value": "swordfish"}],
        "password": "swordfish",
        "limits": {"tokens": 1000},
        "secretRef": {"provider": "env", "name": "X"},
    }
    cleaned = Redactor().tree(tree)
    assert "swordfish" not in str(cleaned)
    assert cleaned["env"][1]["value"] == "info"
    assert cleaned["limits"] == {"tokens": 1000}
    assert cleaned["secretRef"] == {"provider": "env", "name": "X"}


def everything(secret: str) -> dict[str, str]:
    """All that may leave the process, with a secret in every text a driver or a program could have put it."""
    redactor = Redactor([secret])
    said = f"failed with {secret} at the end"
    status = a_status(ready=False, conditions=(a_condition(status=False, message=said),), origin=said)
    record = a_record(phase=Phase.DEGRADED, summary=said, findings=(a_finding(summary=said, detail=said),))
    entry = an_entry(message=said, outcome=said, result="Failed")
    action = an_action(message=said, patch=({"op": "add", "path": "/x", "value": secret},))
    plan = a_plan(action, verdicts=(Verdict("g", Effect.BLOCK, findings=record.findings),))
    fleet = FleetStatus("prod-eu", SHA, SHA, Phase.DEGRADED, [status], record.findings, at=NOW)
    known = Explanation(BOT, NOW, status, record, record, [entry], {}, record.findings)
    shapes = {
        "validate": validate_shape(record.findings),
        "plan": plan_shape(plan),
        "status": status_shape(fleet),
        "history": history_shape([record]),
        "explain": explanation_shape(known),
    }
    masked = {name: redactor.tree(shape) for name, shape in shapes.items()}
    texts = [
        text
        for style in (PLAIN, Style(width=40))
        for text in (
            validate_text(masked["validate"], style),
            plan_text(masked["plan"], style),
            status_text(masked["status"], style),
            agent_text(masked["status"], style),
            history_text(masked["history"], style),
            explain_text(masked["explain"], style, now=NOW),
        )
    ]
    return {
        **{f"{name} json": dump_json(shape) for name, shape in masked.items()},
        **{f"text {index}": text for index, text in enumerate(texts)},
        "note": render_note("prod-eu", record, {BOT: status}, [entry], redact=redactor.tree),
    }


# Secrets that are words of the output itself would be masked there too; hexadecimal ones are realistic.
@given(st.text("0123456789abcdef!$%&/()=?*+'\"\\", min_size=12, max_size=40))
@pytest.mark.unit
def test_no_secret_appears_in_any_rendering(secret: str) -> None:
    for name, text in everything(secret).items():
        assert secret not in text, name


def test_a_value_is_masked_by_the_name_that_stands_beside_it() -> None:
    step = {"op": "replace", "path": "/env/API_TOKEN", "value": "hunter23", "before": "hunter22"}
    difference = {"path": "/settings/password", "live": "opensesame", "git": "hunter2"}
    assert Redactor().tree([step, difference]) == [
        {**step, "value": MASK, "before": MASK},
        {**difference, "live": MASK, "git": MASK},
    ]


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("gitops_agent").setLevel(logging.NOTSET)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("restored_logging")
@pytest.mark.parametrize("form", ["json", "text"])
def test_logs_are_redacted_inert_and_without_local_variables(form: str) -> None:
    stream = io.StringIO()
    setup_logs(form, stream, Redactor([CANARY]))  # type: ignore[arg-type]
    log = structlog.get_logger("gitops_agent.test")
    local = CANARY  # noqa: F841 - a traceback that shows locals would show this
    log.info("hello " + CANARY, url=f"https://u:{CANARY}@h/", evil="\x1b[2J", nested={"password": "swordfish"})
    try:
        int(f"it was {CANARY}")
    except ValueError:
        log.exception("failed")
    logging.getLogger("somebody.else").warning("their %s", CANARY)
    text = stream.getvalue()
    assert CANARY not in text
    assert "swordfish" not in text
    assert "\x1b" not in text
    assert "ValueError" in text
    assert "their" in text


@pytest.mark.usefixtures("restored_logging")
def test_json_logs_are_one_document_per_line() -> None:
    stream = io.StringIO()
    setup_logs("auto", stream, Redactor())
    structlog.get_logger("gitops_agent").warning("two\nlines", commit=SHA, agent=BOT, error=ValueError("x"))
    structlog.get_logger("gitops_agent").debug("not shown")
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["commit"]) == ("two\nlines", "warning", SHA)
    assert event["timestamp"].endswith("Z")


@pytest.mark.usefixtures("restored_logging")
def test_auto_means_text_on_a_terminal_and_no_color_is_honoured() -> None:
    stream = Terminal()
    setup_logs("auto", stream, Redactor(), {"NO_COLOR": "1"})
    structlog.get_logger("gitops_agent").info("hello")
    assert "hello" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    assert not stream.getvalue().startswith("{")
