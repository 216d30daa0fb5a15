"""Sentry gets unexpected errors and nothing else: verified by an endpoint that really receives the envelopes."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from gitops_agent.errors import ApplyError, GitopsAgentError, SourceUnavailable, UsageError
from gitops_agent.model.passes import PassResult
from gitops_agent.report.sinks.sentry import SentrySink, setup_sentry
from gitops_agent.settings import Settings
from gitops_agent.support.secrets import Redactor
from tests.report.passes import a_state
from tests.report.values import OTHER, SHA, a_record

CANARY = "canary-71f0a9c2"


class Received:
    """What a Sentry server would have received."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.bodies.append(
                    gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                )
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def dsn(self) -> str:
        return f"http://publickey@127.0.0.1:{self.server.server_address[1]}/1"

    def events(self) -> list[dict[str, Any]]:
        """The events in the envelopes: a header line, then an item header and a payload for each item."""
        found = []
        for body in self.bodies:
            lines = body.split(b"\n")
            for header, payload in zip(lines[1::2], lines[2::2], strict=False):
                if header and json.loads(header).get("type") == "event":
                    found.append(json.loads(payload))
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def received() -> Iterator[Received]:
    made = Received()
    yield made
    made.close()


@pytest.fixture
def sink(received: Received, monkeypatch: pytest.MonkeyPatch) -> Iterator[SentrySink]:
    monkeypatch.setenv("CANARY_TOKEN", CANARY)
    # A proxy of the machine must not come between a test and its own loopback.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = setup_sentry(Settings(instance="prod-eu", sentry_dsn=received.dsn), Redactor([CANARY]))
    assert made is not None
    yield made
    made.close()


def unexpected(message: str) -> Exception:
    """An error with a traceback, raised where a local variable holds a secret."""
    secret = CANARY + "-local"
    try:
        _fail(secret, message)
    except RuntimeError as error:
        return error
    raise AssertionError


def _fail(secret: str, message: str) -> None:
    try:
        {}[secret]
    except KeyError as cause:
        raise RuntimeError(message) from cause


def test_an_unexpected_error_arrives_with_what_it_was_about(received: Received, sink: SentrySink) -> None:
    sink.capture(unexpected("boom"), commit=SHA, agent="acme/support-bot", driver="process")
    sink.close(10.0)
    (event,) = received.events()
    assert event["tags"] == {
        "instance": "prod-eu",
        "commit": SHA,
        "agent": "acme/support-bot",
        "driver": "process",
    }
    assert event["exception"]["values"][-1]["type"] == "RuntimeError"
    assert event["release"].startswith("gitops-agent@")


def test_tags_do_not_leak_from_one_error_to_the_next(received: Received, sink: SentrySink) -> None:
    sink.capture(unexpected("one"), agent="acme/support-bot")
    sink.capture(unexpected("two"))
    sink.close(10.0)
    one, two = received.events()
    assert "agent" in one["tags"]
    assert "agent" not in two["tags"]


def test_the_commit_is_the_newest_of_the_last_pass(received: Received, sink: SentrySink) -> None:
    sink.on_pass(PassResult(a_state(a_record(OTHER, position=9), a_record(SHA, position=1), head=OTHER)))
    sink.capture(unexpected("boom"))
    sink.close(10.0)
    assert received.events()[0]["tags"]["commit"] == OTHER


def test_no_secret_no_variable_no_host_and_no_environment_is_sent(received: Received, sink: SentrySink) -> None:
    sink.capture(unexpected(f"https://user:swordfish@git.example failed with {CANARY}"), agent=CANARY)
    sink.close(10.0)
    everything = b"".join(received.bodies).decode()
    assert received.events()
    assert CANARY not in everything
    assert "swordfish" not in everything
    assert os.uname().nodename not in everything
    assert '"vars"' not in everything
    assert '"sys.argv"' not in everything
    assert '"modules"' not in everything


@pytest.mark.parametrize(
    "known", [ApplyError("command not found"), SourceUnavailable("down"), GitopsAgentError("known")]
)
def test_known_conditions_are_not_errors(received: Received, sink: SentrySink, known: GitopsAgentError) -> None:
    sink.capture(known)
    sink.capture(unexpected("the marker"))
    sink.close(10.0)
    assert [event["exception"]["values"][-1]["value"] for event in received.events()] == ["the marker"]


def test_an_unreachable_sentry_does_no_harm(received: Received) -> None:
    dsn = received.dsn.replace(str(received.server.server_address[1]), "1")
    made = setup_sentry(Settings(sentry_dsn=dsn), Redactor())
    assert made is not None
    made.capture(unexpected("boom"))
    made.close(0.1)


def test_off_without_a_dsn_and_then_not_even_imported() -> None:
    code = (
        "import sys\n"
        "from gitops_agent.support.secrets import Redactor\n"
        "from gitops_agent.report.sinks.sentry import setup_sentry\n"
        "from gitops_agent.settings import Settings\n"
        "assert setup_sentry(Settings(), Redactor()) is None\n"
        "assert 'sentry_sdk' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_dsn_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(UsageError) as caught:
        setup_sentry(Settings(sentry_dsn="http://key@127.0.0.1/1"), Redactor())
    assert "gitops-agent[sentry]" in caught.value.hint


def test_a_wrong_dsn_is_a_usage_error_that_does_not_repeat_it() -> None:
    with pytest.raises(UsageError) as caught:
        setup_sentry(Settings(sentry_dsn=f"nonsense-{CANARY}"), Redactor())
    assert CANARY not in str(caught.value)
