"""Addresses: read, taken at once, refused with a way out."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from gitops_agent.errors import UsageError
from gitops_agent.settings import Settings, build_settings
from gitops_agent.web.server import is_loopback, listen, parse, shown


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9733", ("127.0.0.1", 9733)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse(text) == expected
    assert Settings(listen=text).listen == text


@pytest.mark.unit
@pytest.mark.parametrize(
    "text", ["9733", ":9733", "127.0.0.1", "127.0.0.1:http", "[]:1", "127.0.0.1:²", "a:65536"]
)
def test_what_is_no_address_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(UsageError, match="cannot listen on") as problem:
        parse(text)
    assert "GITOPS_AGENT_LISTEN=127.0.0.1:PORT" in problem.value.hint


@pytest.mark.unit
def test_settings_say_what_an_address_looks_like() -> None:
    with pytest.raises(UsageError, match=r"GITOPS_AGENT_LISTEN: '9733' is not an address such as 127.0.0.1:9733"):
        build_settings({}, {"GITOPS_AGENT_LISTEN": "9733"}, {})
    assert build_settings({}, {"GITOPS_AGENT_LISTEN": ""}, {}).listen == ""
    assert is_loopback(parse(Settings().listen)[0]), "nobody else reaches it unless told so"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_an_address_that_is_taken() -> None:
    first = listen("127.0.0.1:0")
    with closing(first), pytest.raises(UsageError, match="something else listens there"):
        listen(shown(first))


def test_an_address_is_free_as_soon_as_it_was_given_back() -> None:
    given_back = _free()
    with closing(listen(given_back)) as again:
        assert shown(again) == given_back


def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1:9733"):
        listen("192.0.2.1:9733")


def _free() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return shown(probe)
