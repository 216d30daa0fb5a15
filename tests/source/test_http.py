"""Git over real http: tokens, failures, redirects, servers that never end."""

from __future__ import annotations

import datetime
import ipaddress
import os
import subprocess
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gitops_agent.errors import GitopsAgentError, SourceRefused, SourceUnavailable, UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.address import parse_address
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.credentials import credentials_for
from gitops_agent.source.mirror import SENDING, Mirror
from gitops_agent.source.notes import Notes
from gitops_agent.support.daemon_pool import DaemonPool
from tests.source.conftest import Desk, git
from tests.support.fleet import until
from tests.support.git_servers import Drip, Fail, GitHttpServer, Hang, http_server

MirrorOf = Callable[..., Mirror]
SettingsOf = Callable[..., Settings]
CANARY = "canary-0123456789-token"


@pytest.fixture
def server(desk: Desk) -> Iterator[GitHttpServer]:
    with http_server(desk.bare.parent) as server:
        yield server


@pytest.fixture
def private(desk: Desk) -> Iterator[GitHttpServer]:
    with http_server(desk.bare.parent, token=CANARY) as server:
        yield server


def test_fetch_notes_and_revert_over_http(
    desk: Desk, server: GitHttpServer, mirror_of: MirrorOf, settings: SettingsOf
) -> None:
    url = server.url("fleet.git")
    mirror = mirror_of(repo=url)
    mirror.refresh()
    bad = desk.commit({"agents/acme/a.yaml": "a: 2\n"})
    assert mirror.refresh().sha == bad
    notes = Notes(mirror, settings(repo=url))
    notes.write({bad: "test: Degraded\n"})
    notes.push()
    writer = BranchWriter(mirror, settings(repo=url))
    sha = writer.revert([bad], "Roll back")
    writer.push(sha, "main")
    assert mirror.refresh().sha == sha
    assert git(desk.bare, "notes", "--ref=refs/notes/gitops-agent/test", "show", bad) == "test: Degraded"


@pytest.mark.parametrize("what", ["notes", "revert"])
def test_commits_are_followed_while_a_push_hangs_in_a_hook_of_the_remote(
    what: str, desk: Desk, server: GitHttpServer, mirror_of: MirrorOf, settings: SettingsOf, tmp_path: Path
) -> None:
    """The lock of the mirror is for what changes here: no fetch, note or commit waits for a push."""
    begun, let_go, url = tmp_path / "begun", tmp_path / "let-go", server.url("fleet.git")
    mirror = mirror_of(repo=url)
    bad = mirror.refresh().sha
    notes, writer = Notes(mirror, settings(repo=url)), BranchWriter(mirror, settings(repo=url))
    notes.write({bad: "one\n"})
    sha = writer.edit({"agents/acme/a.yaml": b"a: 3\n"}, "Ours")
    hook = desk.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(  # developers push by path, where no server sets this variable
        f'#!/bin/sh\n[ -z "$REMOTE_USER" ] && exit 0\ntouch {begun}\n'
        f"while [ ! -e {let_go} ]; do sleep 0.05; done\n"
    )
    hook.chmod(0o755)
    push = notes.push if what == "notes" else partial(writer.push, sha, "ours")
    with DaemonPool("push", 1) as pool:
        pushing = pool.submit(push)
        try:
            until(begun.exists, "the remote has the push")
            newer = desk.commit({"agents/acme/a.yaml": "a: 2\n"})
            assert mirror.refresh().sha == newer
            notes.write({newer: "two\n"})
            writer.edit({"agents/acme/a.yaml": b"a: 4\n"}, "Ours as well")
            assert not pushing.done(), "all of that while it hung"
        finally:
            let_go.touch()
        pushing.result(30)
    assert mirror.git.local("for-each-ref", SENDING).text == ""


def test_a_poll_without_news_is_one_short_conversation(server: GitHttpServer, mirror_of: MirrorOf) -> None:
    mirror = mirror_of(repo=server.url("fleet.git"))
    mirror.refresh()
    server.requests.clear()
    mirror.refresh()
    assert [(method, path.split("/")[-1]) for method, path, _ in server.requests] == [
        ("GET", "refs?service=git-upload-pack"),
        ("POST", "git-upload-pack"),
    ]


@pytest.mark.parametrize("way", ["file", "environment"])
def test_a_token_opens_the_door(
    way: str, private: GitHttpServer, desk: Desk, mirror_of: MirrorOf, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(CANARY + "\n")
    more = {"token_file": str(tmp_path / "token")} if way == "file" else {"token_env": "FLEET_TOKEN"}
    mirror = mirror_of({"FLEET_TOKEN": CANARY}, repo=private.url("fleet.git"), **more)
    assert mirror.refresh().sha == desk.head()


def test_a_rotated_token_is_picked_up(private: GitHttpServer, mirror_of: MirrorOf, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    mirror = mirror_of(repo=private.url("fleet.git"), token_file=str(token))
    with pytest.raises(SourceUnavailable, match="access was denied"):
        mirror.refresh()
    token.write_text(CANARY)
    mirror.refresh()


def _everything_in(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


def test_the_token_is_nowhere_but_in_the_environment_of_git(
    private: GitHttpServer, mirror_of: MirrorOf, tmp_path: Path
) -> None:
    """Not in arguments, state, errors or representations; the wrong one neither, nor its encoded form."""
    seen = tmp_path / "arguments"
    spy = tmp_path / "bin" / "git"
    spy.parent.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    spy.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" >> "{seen}"\nexec "{real}" "$@"\n')
    spy.chmod(0o755)
    environment = {"FLEET_TOKEN": CANARY, "PATH": f"{spy.parent}{os.pathsep}{os.environ['PATH']}"}
    mirror = mirror_of(environment, repo=private.url("fleet.git"), token_env="FLEET_TOKEN")
    mirror.refresh()
    credentials = credentials_for(mirror.address, mirror._settings, environment)
    shown = seen.read_text() + _everything_in(tmp_path / "state") + repr(credentials) + repr(mirror.git)
    private.token = "another"
    with pytest.raises(SourceUnavailable) as caught:
        mirror.refresh()
    shown += "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caught.value.hint
    assert "ls-remote" in shown
    for secret in credentials.secrets:
        assert secret not in shown


def test_a_token_never_travels_in_clear_text_to_another_machine() -> None:
    settings = Settings(token_env="T")
    with pytest.raises(UsageError, match="clear text") as caught:
        credentials_for(parse_address("http://git.example.com/x"), settings, {"T": CANARY})
    assert "https" in caught.value.hint


@pytest.mark.parametrize("content", ["", "  \n", "two\nlines", "with space", "naïve", "a\x00b"])
def test_what_is_no_token_is_refused_without_showing_it(content: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(UsageError) as caught:
        credentials_for(parse_address("https://h/x"), Settings(token_file=str(tmp_path / "token")), {})
    assert not content.strip() or content not in caught.value.message
    with pytest.raises(UsageError, match="cannot be read"):
        credentials_for(parse_address("https://h/x"), Settings(token_file=str(tmp_path / "none")), {})
    with pytest.raises(UsageError, match="holds no token"):
        credentials_for(parse_address("https://h/x"), Settings(token_env="NONE"), {})


def test_without_a_token_nobody_is_asked(private: GitHttpServer, mirror_of: MirrorOf) -> None:
    with pytest.raises(SourceUnavailable, match="access was denied") as caught:
        mirror_of(repo=private.url("fleet.git")).refresh()
    assert "tokenFile" in caught.value.hint


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_handed_on(status: int, server: GitHttpServer, mirror_of: MirrorOf, desk: Desk) -> None:
    mirror = mirror_of(repo=server.url("fleet.git"))
    server.always = Fail(status, {"Retry-After": "77"})
    with pytest.raises(SourceUnavailable, match=str(status)) as caught:
        mirror.refresh()
    assert caught.value.retry_after == 77
    assert len(server.requests) == 1
    server.always = None
    assert mirror.refresh().sha == desk.head()


def test_a_failure_in_the_middle_of_a_fetch(desk: Desk, server: GitHttpServer, mirror_of: MirrorOf) -> None:
    mirror = mirror_of(repo=server.url("fleet.git"))
    head = mirror.refresh().sha
    newer = desk.commit({"x.yaml": "x: 1\n"})
    # The ls-remote takes two requests; the fetch after it fails.
    server.script.extend([None, None, Fail(502)])  # type: ignore[list-item]
    with pytest.raises(SourceUnavailable):
        mirror.refresh()
    assert mirror.cached_head() == head
    assert mirror.refresh().sha == newer


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_refused_and_see_no_token(
    status: int, private: GitHttpServer, desk: Desk, mirror_of: MirrorOf
) -> None:
    with http_server(desk.bare.parent) as elsewhere:
        target = elsewhere.url("fleet.git").replace("127.0.0.1", "localhost")
        private.always = Fail(status, {"Location": target + "/info/refs?service=git-upload-pack"})
        mirror = mirror_of({"T": CANARY}, repo=private.url("fleet.git"), token_env="T")
        with pytest.raises(SourceRefused, match="redirects elsewhere") as caught:
            mirror.refresh()
        assert elsewhere.requests == []
    assert "localhost" in caught.value.message
    assert not mirror.git.directory.exists()


@pytest.mark.parametrize("step", [Hang(), Drip()])
def test_a_server_that_never_ends_is_left_in_time(
    step: Hang | Drip, server: GitHttpServer, mirror_of: MirrorOf
) -> None:
    mirror = mirror_of(repo=server.url("fleet.git"), git_timeout=1.0)
    server.always = step
    with pytest.raises(SourceUnavailable, match="no end after 1 s"):
        mirror.refresh()
    assert _children_of_ours(server.port) == []


def _children_of_ours(port: int) -> list[str]:
    """Processes of git that still talk to the server: the whole group must be gone."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode("latin-1")
            except OSError:
                continue
            if f":{port}/" in words and "git" in words:
                found.append(words)
    return found


def test_no_such_repository(server: GitHttpServer, mirror_of: MirrorOf) -> None:
    with pytest.raises(SourceUnavailable, match="no repository") as caught:
        mirror_of(repo=server.url("nope.git")).refresh()
    assert caught.value.exit_code == 6
    assert "check repo" in caught.value.hint


def test_the_server_goes_down_and_comes_back(desk: Desk, mirror_of: MirrorOf) -> None:
    with http_server(desk.bare.parent) as server:
        mirror = mirror_of(repo=server.url("fleet.git"))
        head = mirror.refresh().sha
    with pytest.raises(GitopsAgentError) as caught:
        mirror.refresh()
    assert type(caught.value) is SourceUnavailable
    assert mirror.cached_head() == head


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def test_certificates_are_verified(desk: Desk, mirror_of: MirrorOf, certificate: tuple[Path, Path]) -> None:
    with http_server(desk.bare.parent, tls=certificate) as server:
        url = server.url("fleet.git")
        with pytest.raises(SourceRefused, match="TLS certificate"):
            mirror_of({"GIT_SSL_NO_VERIFY": "1"}, repo=url).refresh()
        assert mirror_of({"SSL_CERT_FILE": str(certificate[0])}, repo=url).refresh().sha == desk.head()
