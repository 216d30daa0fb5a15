"""Git over real ssh, by the installed client and by a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitops_agent.errors import SourceRefused, SourceUnavailable, UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import Notes
from tests.source.conftest import Desk, git
from tests.support.git_servers import GitSshServer, ssh_on_path, ssh_server, stand_in_on_path

MirrorOf = Callable[..., Mirror]


@pytest.fixture
def server(desk: Desk, tmp_path: Path) -> Iterator[GitSshServer]:
    with ssh_server(desk.bare.parent, tmp_path / "keys") as server:
        yield server


def _given(server: GitSshServer, **more: str) -> dict[str, str]:
    given = {"ssh_key": str(server.client_key), "known_hosts": str(server.known_hosts)}
    return {"repo": server.url("fleet.git"), **given, **more}


@pytest.mark.parametrize("client", [ssh_on_path, stand_in_on_path])
def test_fetch_and_push_over_ssh(
    client: Callable[[Path], str],
    server: GitSshServer,
    desk: Desk,
    mirror_of: MirrorOf,
    settings: Callable[..., Settings],
    tmp_path: Path,
) -> None:
    mirror = mirror_of({"PATH": client(tmp_path / "bin")}, **_given(server))
    head = mirror.refresh().sha
    assert head == desk.head()
    notes = Notes(mirror, settings(**_given(server)))
    notes.write({head: "test: Converged\n"})
    notes.push()
    assert git(desk.bare, "notes", "--ref=refs/notes/gitops-agent/test", "show", head) == "test: Converged"


@pytest.mark.parametrize("client", [ssh_on_path, stand_in_on_path])
def test_a_wrong_host_key_is_refused(
    client: Callable[[Path], str], server: GitSshServer, mirror_of: MirrorOf, tmp_path: Path
) -> None:
    with ssh_server(server.root, tmp_path / "others") as other:
        key = other.known_hosts.read_text().split(" ", 1)[1]
    wrong = tmp_path / "wrong_hosts"
    wrong.write_text(f"[127.0.0.1]:{server.port} {key}")
    mirror = mirror_of({"PATH": client(tmp_path / "bin")}, **_given(server, known_hosts=str(wrong)))
    with pytest.raises(SourceRefused, match="host key") as caught:
        mirror.refresh()
    assert "knownHosts" in caught.value.hint
    assert server.commands == []


def test_an_unknown_host_is_refused(server: GitSshServer, mirror_of: MirrorOf, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    mirror = mirror_of(
        {"PATH": ssh_on_path(tmp_path / "bin")}, **_given(server, known_hosts=str(tmp_path / "empty"))
    )
    with pytest.raises(SourceRefused, match="host key"):
        mirror.refresh()


def test_a_wrong_key_is_not_accepted(server: GitSshServer, mirror_of: MirrorOf, tmp_path: Path) -> None:
    with ssh_server(server.root, tmp_path / "others") as other:
        mirror = mirror_of(
            {"PATH": ssh_on_path(tmp_path / "bin")}, **_given(server, ssh_key=str(other.client_key))
        )
        with pytest.raises(SourceUnavailable, match="key was not accepted") as caught:
            mirror.refresh()
    assert "sshKey" in caught.value.hint


@pytest.mark.parametrize("missing", ["ssh_key", "known_hosts"])
def test_ssh_needs_key_and_known_hosts(
    missing: str, server: GitSshServer, mirror_of: MirrorOf, tmp_path: Path
) -> None:
    setting = {"ssh_key": "sshKey", "known_hosts": "knownHosts"}[missing]
    for value in ("", str(tmp_path / "not there")):
        with pytest.raises(UsageError, match=setting) as caught:
            mirror_of(**_given(server, **{missing: value})).refresh()
        assert f"GITOPS_AGENT_{missing.upper()}" in caught.value.hint


def test_only_the_repository_asked_for_is_served(
    server: GitSshServer, mirror_of: MirrorOf, tmp_path: Path
) -> None:
    mirror = mirror_of({"PATH": ssh_on_path(tmp_path / "bin")}, **_given(server, repo=server.url("nope.git")))
    with pytest.raises(SourceUnavailable, match="no repository"):
        mirror.refresh()
    assert server.commands == [f"git-upload-pack '{server.root}/nope.git'"]
