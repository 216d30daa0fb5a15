"""Backoff, complaints and trust: values in, values out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.revision import Revision
from gitops_agent.source.address import parse_address
from gitops_agent.source.checks import CHECKS, NewHead, examine
from gitops_agent.source.git_environment import config_text
from gitops_agent.source.git_errors import explain, last_answer, redact, retry_seconds
from gitops_agent.source.git_text import named_reverts, patch_lines, takes_back

pytestmark = pytest.mark.unit

REMOTE = parse_address("https://git.example.com/fleet.git")
TRACE = """\
12:00:00.000001 http.c:725              == Info: Connected
12:00:00.000002 http.c:672              => Send header: Authorization: Basic <redacted>
12:00:00.000003 http.c:672              <= Recv header, 0000000035 bytes (0x00000023)
12:00:00.000004 http.c:684              <= Recv header: HTTP/1.1 503 Service Unavailable
12:00:00.000005 http.c:684              <= Recv header: Retry-After: 7
fatal: unable to access 'https://git.example.com/fleet.git/': The requested URL returned error: 503
"""


def test_the_conversation_tells_status_and_retry_after() -> None:
    assert last_answer(TRACE) == {"status": "503", "retry-after": "7"}
    error = explain(TRACE, REMOTE, (), 0)
    assert isinstance(error, SourceUnavailable)
    assert error.retry_after == 7
    assert "http.c" not in error.message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        ("Sun, 09 Sep 2001 01:46:50 GMT", 10),
        ("Sun, 09 Sep 2001 01:46:00 GMT", 0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("9" * 30, None),
    ],
)
def test_retry_after_in_both_forms(text: str, seconds: float | None) -> None:
    assert retry_seconds(text, 1_000_000_000.0) == seconds


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("Host key verification failed.", SourceRefused, "knownHosts"),
        ("fatal: Authentication failed for 'x'", SourceUnavailable, "token"),
        ("The requested URL returned error: 301", SourceRefused, "redirect"),
        ("server certificate verification failed", SourceRefused, "SSL_CERT_FILE"),
        ("fatal: fsck error in packed object", SourceRefused, "fsck"),
        ("git@host: Permission denied (publickey).", SourceUnavailable, "sshKey"),
        ("fatal: write error: No space left on device", SourceUnavailable, "disk"),
        ("", SourceUnavailable, "asked again"),
    ],
)
def test_complaints_become_our_errors_with_a_way_out(said: str, kind: type, words: str) -> None:
    error = explain(said, REMOTE, (), 0)
    assert type(error) is kind
    assert words in error.hint
    assert REMOTE.target in error.message


@given(st.text(max_size=200), st.text("abcXYZ123-_", min_size=8, max_size=40))
def test_no_secret_and_no_control_character_is_ever_shown(noise: str, secret: str) -> None:
    said = f"{noise} https://u:{secret}@h/ {secret}\nAuthorization: Bearer {secret}\n{noise}{secret}"
    assert secret not in redact(said, [secret])
    message = explain(said, REMOTE, [secret], 0).message
    assert secret not in message
    assert not any(ord(char) < 32 for char in message)


@given(st.text(min_size=1, max_size=30))
def test_a_value_can_not_add_a_line_to_the_configuration(value: str) -> None:
    text = config_text(parse_address("/srv/x"), {"SSL_CERT_FILE": value})
    assert text.count("\n") == config_text(parse_address("/srv/x"), {"SSL_CERT_FILE": "x"}).count("\n")


def _commit(sha: str, tree: str = "t") -> Revision:
    return Revision(sha * 40, tree, (), "Ada", 0, 0, "x")


def _new_head(**more: object) -> NewHead:
    given = {"head": _commit("b"), "last": "a" * 40, "contains_last": True, "branch": "main"}
    return NewHead(**{**given, **more})  # type: ignore[arg-type]


def test_an_ordinary_head_is_trusted() -> None:
    assert examine(_new_head()) == ()
    assert examine(_new_head(last=None, contains_last=False)) == ()


def test_a_rewritten_branch_is_refused_loudly() -> None:
    (finding,) = examine(_new_head(contains_last=False))
    assert (finding.severity, finding.code) == (Severity.ERROR, "ForcePush")
    assert "a" * 40 in finding.detail
    assert "b" * 40 in finding.detail
    assert "stays in force" in finding.detail
    assert "forcePush: follow" in finding.detail


def test_a_rewritten_branch_may_be_followed_but_not_silently() -> None:
    (finding,) = examine(_new_head(contains_last=False, force_push="follow"))
    assert (finding.severity, finding.code) == (Severity.WARNING, "ForcePush")


def test_a_missing_path_is_never_an_empty_fleet() -> None:
    (finding,) = examine(_new_head(head=_commit("b", ""), path="prod"))
    assert (finding.severity, finding.code) == (Severity.ERROR, "PathMissing")
    assert "stays in force" in finding.detail


def test_all_findings_are_given_and_the_list_can_grow() -> None:
    extra = Finding(Severity.ERROR, "Unsigned", "main", "not signed")
    found = examine(_new_head(head=_commit("b", ""), contains_last=False), (*CHECKS, lambda _: extra))
    assert [finding.code for finding in found] == ["PathMissing", "ForcePush", "Unsigned"]


def test_the_commits_a_message_reverts() -> None:
    message = f"Revert\n\nThis reverts commit {'a' * 40}.\nThis reverts commit {'b' * 40}, reversing\nchanges."
    assert named_reverts(message) == ("a" * 40, "b" * 40)
    assert named_reverts("reverts commit abc") == ()


lines = st.lists(st.sampled_from(["-a: 1", "+a: 1", "-b: 2", "+b: 2", "+ b: 2"]), max_size=6)


@given(lines)
def test_a_difference_takes_back_its_own_inverse_only(text: list[str]) -> None:
    flip = {"+": "-", "-": "+"}
    patch = patch_lines("diff --git a/x b/x\n@@ -1 +1 @@\n" + "\n".join(text))
    inverse = tuple((name, flip[line[0]] + line[1:]) for name, line in patch)
    assert takes_back(inverse, [inverse]) == bool(text)
    assert not takes_back((*inverse, ("diff --git a/x b/x", "+new")), [inverse])
