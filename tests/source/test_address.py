"""What may be an address, a branch, a folder. Nothing hostile reaches git."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.errors import UsageError
from gitops_agent.source.address import check_path, check_ref, check_revision, parse_address

pytestmark = pytest.mark.unit

HERE = Path("/srv")

GOOD = [
    ("/srv/fleet.git", "path", "/srv/fleet.git"),
    ("fleet.git", "path", "/srv/fleet.git"),
    ("./a:b", "path", "/srv/a:b"),
    ("../fleet", "path", "/srv/../fleet"),
    ("/srv/mit Leer ü.git", "path", "/srv/mit Leer ü.git"),
    ("file:///srv/fleet.git", "file", "/srv/fleet.git"),
    ("file:///srv/my%20fleet", "file", "/srv/my fleet"),
    ("http://127.0.0.1:8080/fleet.git", "http", "http://127.0.0.1:8080/fleet.git"),
    ("https://git.example.com/team/fleet.git", "https", "https://git.example.com/team/fleet.git"),
    ("https://[::1]:8443/fleet", "https", "https://[::1]:8443/fleet"),
    ("ssh://git@git.example.com:2222/srv/fleet.git", "ssh", "ssh://git@git.example.com:2222/srv/fleet.git"),
    ("git@git.example.com:team/fleet.git", "ssh", "git@git.example.com:team/fleet.git"),
    ("host:fleet", "ssh", "host:fleet"),
]

BAD = [
    "",
    " ",
    "-u",
    "--upload-pack=touch /tmp/x",
    "ext::sh -c touch% /tmp/x",
    "ext://sh",
    "fd::17",
    "::x",
    "http::https://host/x",
    "git://host/x",
    "ftp://host/x",
    "FILE:///etc",
    "file://host/x",
    "file://../x",
    "file:x",
    "file:///a%00b",
    "file:///a%0Ab",
    "file:///a?b",
    "https://",
    "https:///x",
    "https:/host/x",
    "https://-host/x",
    "https://host-/x",
    "https://host",
    "https://host/",
    "https://host/-x",
    "https://host:0/x",
    "https://host:99999/x",
    "https://host:/x",
    "https://host/a/../b",
    "https://host/a/%2e%2e/b",
    "https://host/x?token=1",
    "https://host/x#y",
    "https://host/a b",
    "https://ho st/x",
    "https://host/$HOME",
    "https://hóst/x",
    "$HOME/fleet",
    "/srv/${X}",
    "~/fleet",
    "/srv/fleet\n",
    "/srv/\x00",
    "/srv/\x1b[31m",
    "/srv/\u2028x",
    "https://host/x\r\nHost: evil",
    "ssh://-oProxyCommand=touch/x",
    "ssh://git@-oProxyCommand=x/y",
    "ssh://-lx@host/y",
    "ssh://git:pw@host/y",
    "ssh://host/-y",
    "ssh://host",
    "ssh://host/`x`",
    "-oProxyCommand=x:y",
    "git@-host:y",
    "git@host:-y",
    "git@host:",
    "git@host:a;b",
    "a b:c",
    "x" * 3000,
]


@pytest.mark.parametrize(("text", "kind", "target"), GOOD)
def test_accepted(text: str, kind: str, target: str) -> None:
    address = parse_address(text, HERE)
    assert (address.kind, address.target) == (kind, target)
    assert (address.local is not None) == (kind in ("path", "file"))


@pytest.mark.parametrize("text", BAD)
def test_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text, HERE)
    assert caught.value.hint
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "https://user:hunter2@host/x",
        "https://hunter2@host/x",
        "https://user:hunter2@/x",
        "ssh://u:hunter2@host/x",
        "https://host/x?private_token=hunter2",
        "git+https://user:hunter2@host/x",
    ],
)
def test_a_password_in_the_address_is_refused_and_never_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text, HERE)
    assert "hunter2" not in repr(caught.value) + caught.value.hint


def test_the_hint_names_the_setting_for_tokens() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("https://me:pw@host/x", HERE)
    assert "tokenFile" in caught.value.hint


def test_a_relative_path_needs_a_base() -> None:
    with pytest.raises(UsageError, match="relative"):
        parse_address("fleet")


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse_address(text, HERE)
    except UsageError:
        return
    assert not address.target.startswith("-")
    assert "::" not in address.target.split("/", 1)[0]
    assert address.target.isprintable() or address.local is not None
    assert address.local is None or address.local.is_absolute()


@given(st.sampled_from(["ext::", "-", "fd::", "--upload-pack="]), st.text(max_size=30))
def test_dangerous_beginnings_are_never_accepted(start: str, rest: str) -> None:
    with pytest.raises(UsageError):
        parse_address(start + rest, HERE)


@pytest.mark.parametrize("name", ["main", "team/prod", "release-1.2", "v1.0_x", "f#1", "größe", "a@b"])
def test_branch_names(name: str) -> None:
    assert check_ref(name) == name


BAD_REFS = ["", "-x", "--all", "a..b", "a//b", "/a", "a/", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "@", "HEAD"]
BAD_REFS += ["a@{1}", "a b", "a~1", "a^", "a:b", "a?b", "a*", "a[b", "a\\b", "a\nb", "refs/heads/a", "a" * 40]
BAD_REFS += ["$x", "a/-b", "a\x7f", "x" * 300]


@pytest.mark.parametrize("name", BAD_REFS)
def test_bad_branch_names(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_ref(name)
    assert caught.value.hint


@given(st.text(max_size=20))
def test_no_branch_name_can_be_an_option_or_a_range(name: str) -> None:
    try:
        check_ref(name)
    except UsageError:
        return
    assert not name.startswith("-")
    assert not set(name) & set(" ~^:?*[\\\x7f")
    assert ".." not in name
    assert "@{" not in name


@pytest.mark.parametrize(
    ("text", "parts"),
    [("main~2", ("main", "~2")), ("HEAD^^", ("HEAD", "^^")), ("@", ("HEAD", "")), ("abc123", ("abc123", ""))],
)
def test_commits_as_people_write_them(text: str, parts: tuple[str, str]) -> None:
    assert check_revision(text) == parts


@pytest.mark.parametrize(
    "text", ["-n", "a..b", "a:b", "a@{u}", ":/x", "a^{tree}", "a b", "", "^a", "a\n", "--all"]
)
def test_what_is_no_commit(text: str) -> None:
    with pytest.raises(UsageError):
        check_revision(text)


@pytest.mark.parametrize(
    ("text", "path"), [(".", ""), ("", ""), ("./a/", "a"), ("a//b/.", "a/b"), ("mit leer", "mit leer")]
)
def test_folders(text: str, path: str) -> None:
    assert check_path(text) == path


@pytest.mark.parametrize(
    "text", ["/a", "../a", "a/../b", "~/a", "-a", "a/-b", ".git", "a/.GIT/b", "a\nb", "a:b", "$a"]
)
def test_folders_that_could_leave_the_repository(text: str) -> None:
    with pytest.raises(UsageError):
        check_path(text)
