"""Approvals by Git alone: who may say it, where, and what never counts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.model.finding import Severity
from gitops_agent.model.passes import Approval
from gitops_agent.settings import Settings
from gitops_agent.source.approvals import GitApprovals
from gitops_agent.source.mirror import APPROVALS, Mirror
from gitops_agent.source.ref_watcher import RefWatcher
from tests.source.conftest import Desk, git
from tests.source.test_watch import Bell

D1, D2 = "1" * 32, "2" * 32
BOB = {"GIT_AUTHOR_NAME": "Bob", "GIT_AUTHOR_EMAIL": "bob@example.com"}
ADA = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ADA@Example.com"}
MirrorOf = Callable[..., Mirror]
SettingsOf = Callable[..., Settings]


class Office:
    """A repository with something in force and a change of Ada's that waits."""

    def __init__(self, desk: Desk, mirror: Mirror, settings: SettingsOf) -> None:
        self.desk = desk
        self.mirror = mirror
        self.settings = settings
        self.enforced = desk.head()
        self.change = desk.commit({"agents/acme/a.yaml": None}, "Tidy up")

    def empty(self, message: str, author: dict[str, str], *options: str) -> str:
        git(self.desk.work, "commit", "-q", "--allow-empty", *options, "-m", message, env=author)
        self.desk.push()
        return self.desk.head()

    def trailer(self, digest: str, author: dict[str, str], *options: str) -> str:
        return self.empty(f"Approve\n\nGitops-Approve: {digest}", author, *options)

    def note(self, sha: str, text: str, author: dict[str, str], *how: str) -> None:
        verb = how or ("add", "-f")
        git(self.desk.work, "notes", f"--ref={APPROVALS}", *verb, "-m", text, sha, env=author)
        self.desk.git("push", "-q", "origin", f"+{APPROVALS}:{APPROVALS}")

    def read(self, **settings: object) -> tuple[list[Approval], list[str]]:
        """The approvals, and the summaries of the objections."""
        approvals = GitApprovals(self.mirror, self.settings(**settings))
        head = self.mirror.refresh()
        given, findings = approvals.since(self.enforced, head)
        assert all(each.severity is Severity.WARNING and each.detail for each in findings)
        return list(given), [each.summary for each in findings]

    def approved(self, **settings: object) -> dict[str, str]:
        """Digest to approver, when nothing is objected to."""
        approvals, objections = self.read(**settings)
        assert objections == []
        return {each.digest: each.by for each in approvals}

    def refused(self, **settings: object) -> str:
        """The one objection, when nothing is approved."""
        approvals, objections = self.read(**settings)
        assert approvals == []
        (objection,) = objections
        return objection


@pytest.fixture
def office(desk: Desk, mirror: Mirror, settings: SettingsOf) -> Office:
    return Office(desk, mirror, settings)


# ----- trailers


def test_a_trailer_of_somebody_else_in_a_later_empty_commit_counts(office: Office) -> None:
    sha = office.trailer(D1.upper(), BOB)
    approvals, objections = office.read()
    (approval,) = approvals
    assert (approval.digest, approval.by, approval.where, approval.commit) == (
        D1,
        "bob@example.com",
        "trailer",
        sha,
    )
    assert approval.stated_in == sha
    assert objections == []


def test_nothing_said_approves_nothing(office: Office) -> None:
    office.empty(f"Gitops-Approve: {D1} is what I would say\n\nbut in the middle of a text", BOB)
    assert office.read() == ([], [])


def test_two_digests_in_one_commit(office: Office) -> None:
    office.empty(f"Approve\n\nGitops-Approve: {D1}\ngitops-approve: {D2}", BOB)
    assert office.approved() == dict.fromkeys((D1, D2), "bob@example.com")


def test_nobody_approves_their_own_change(office: Office) -> None:
    office.trailer(D1, ADA)
    assert "author of the changes" in office.refused()


def test_nor_one_of_several_authors(office: Office) -> None:
    git(office.desk.work, "rm", "-q", "agents/acme/b.yaml")
    git(office.desk.work, "commit", "-q", "-m", "More", env=BOB)
    office.trailer(D1, BOB)
    assert "author of the changes" in office.refused()


def test_nor_before_pushing_the_change(desk: Desk, mirror: Mirror, settings: SettingsOf) -> None:
    office = Office(desk, mirror, settings)
    office.enforced = office.change
    office.trailer(D1, ADA)
    desk.commit({"agents/acme/b.yaml": None})
    assert "author of the changes" in office.refused()


def test_a_trailer_before_the_change_is_too_early(desk: Desk, mirror: Mirror, settings: SettingsOf) -> None:
    office = Office(desk, mirror, settings)
    office.enforced = office.change
    office.trailer(D1, BOB)
    desk.commit({"agents/acme/b.yaml": None})
    assert "before the change" in office.refused()


def test_a_commit_that_changes_the_desired_state_approves_nothing(office: Office) -> None:
    (office.desk.work / "agents/acme/b.yaml").write_text("b: 2\n")
    git(office.desk.work, "commit", "-q", "-am", f"Sneak in\n\nGitops-Approve: {D1}", env=BOB)
    office.desk.push()
    assert "changes the desired state itself" in office.refused()


def test_a_change_outside_the_path_is_none(desk: Desk, mirror_of: MirrorOf, settings: SettingsOf) -> None:
    office = Office(desk, mirror_of(path="agents"), settings)
    (desk.work / "README").write_text("hello\n")
    git(desk.work, "add", "README")
    git(desk.work, "commit", "-q", "-m", f"Say hello\n\nGitops-Approve: {D1}", env=BOB)
    desk.push()
    assert office.approved() == {D1: "bob@example.com"}


def test_a_merge_that_brings_an_old_state_back_is_the_change_of_who_merged(
    desk: Desk, mirror: Mirror, settings: SettingsOf
) -> None:
    old = desk.head()
    office = Office(desk, mirror, settings)
    office.enforced = office.change
    git(desk.work, "checkout", "-q", "-b", "old", old)
    git(desk.work, "commit", "-q", "--allow-empty", "-m", "Nothing", env=BOB)
    # The old state is the first parent, so that nothing seems to change from there on.
    git(desk.work, "merge", "-q", "-s", "ours", "-m", "Merge", office.change, env=BOB)
    desk.push()
    office.trailer(D1, BOB)
    assert "author of the changes" in office.refused()


def test_after_a_rewrite_nobody_can_tell_who_made_the_change(office: Office) -> None:
    office.desk.git("reset", "-q", "--hard", office.enforced)
    office.desk.git("commit", "-q", "--amend", "-m", "Another history")
    office.desk.push("--force")
    office.trailer(D1, BOB)
    assert "rewritten" in office.refused()


@pytest.mark.parametrize("text", [D1[:12], f"{D1}0", "yes please", f"{D1} {D2}", "z" * 32])
def test_only_a_whole_digest_is_one(office: Office, text: str) -> None:
    office.trailer(text, BOB)
    assert "not the whole digest" in office.refused()


def test_what_was_said_before_the_settled_commit_is_past(office: Office) -> None:
    office.enforced = office.trailer(D1, BOB)
    assert office.read() == ([], [])
    office.desk.commit({"agents/acme/b.yaml": "b: 3\n"})
    assert office.read() == ([], [])


# ----- notes


@pytest.mark.parametrize("text", [D1, f"Looks right to me.\n\nGitops-Approve: {D1}", f"  {D1.upper()}  "])
def test_a_note_on_a_waiting_commit_counts(office: Office, text: str) -> None:
    office.note(office.change, text, BOB)
    approvals, objections = office.read()
    (approval,) = approvals
    assert (approval.digest, approval.by, approval.where) == (D1, "bob@example.com", "note")
    assert approval.commit == office.change
    assert objections == []


def test_a_note_on_a_commit_in_force_is_past(office: Office) -> None:
    office.note(office.enforced, D1, BOB)
    assert office.read() == ([], [])


def test_who_wrote_a_note_last_says_all_of_it(office: Office) -> None:
    office.note(office.change, D1, BOB)
    office.note(office.change, D2, ADA, "append")
    assert office.approved() == dict.fromkeys((D1, D2), "ADA@Example.com")


def test_who_rearranges_notes_says_nothing(office: Office) -> None:
    """Git moves all notes into folders when they become many; that is nobody's approval."""
    office.note(office.change, D1, BOB)
    blob = office.desk.git("rev-parse", f"{APPROVALS}:{office.change}")
    inner = git(office.desk.work, "mktree", stdin=f"100644 blob {blob}\t{office.change[2:]}\n")
    outer = git(office.desk.work, "mktree", stdin=f"040000 tree {inner}\t{office.change[:2]}\n")
    moved = git(office.desk.work, "commit-tree", outer, "-p", APPROVALS, "-m", "Fan out", env=ADA)
    office.desk.git("update-ref", APPROVALS, moved)
    office.desk.git("push", "-q", "origin", APPROVALS)
    assert office.approved() == {D1: "bob@example.com"}


def test_a_note_taken_back_approves_no_longer(office: Office) -> None:
    office.note(office.change, D1, BOB)
    assert office.approved() == {D1: "bob@example.com"}
    git(office.desk.work, "notes", f"--ref={APPROVALS}", "remove", office.change, env=BOB)
    office.desk.git("push", "-q", "origin", f"+{APPROVALS}:{APPROVALS}")
    assert office.approved() == {}
    office.note(office.change, D1, BOB)
    office.desk.git("push", "-q", "origin", f":{APPROVALS}")
    assert office.approved() == {}


def test_notes_alone_are_news_and_only_once(office: Office, bell: Bell) -> None:
    office.mirror.refresh()
    office.mirror.on_approvals = bell
    office.mirror.refresh()
    assert not bell.rings.acquire(blocking=False)
    office.note(office.change, D1, BOB)
    office.mirror.refresh()
    assert bell.rings.acquire(blocking=False)
    office.mirror.refresh()
    assert not bell.rings.acquire(blocking=False)


def test_a_local_repository_rings_for_notes(office: Office, bell: Bell) -> None:
    watcher = RefWatcher(office.mirror, bell, (APPROVALS,))
    watcher.start()
    try:
        office.note(office.change, D1, BOB)
        assert bell.rang()
        office.note(office.change, D2, BOB)
        assert bell.rang()
    finally:
        watcher.stop()


@pytest.fixture
def bell() -> Bell:
    return Bell()


def test_a_rebuilt_mirror_knows_the_approvals(office: Office) -> None:
    office.note(office.change, D1, BOB)
    assert office.approved() == {D1: "bob@example.com"}
    shutil.rmtree(office.mirror.git.directory)
    assert office.approved() == {D1: "bob@example.com"}


def test_a_quiet_look_asks_git_nothing(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    office.note(office.change, D1, BOB)
    head = office.mirror.refresh()
    approvals = GitApprovals(office.mirror, office.settings())
    first = approvals.since(office.enforced, head)
    monkeypatch.setattr(office.mirror.git, "local", pytest.fail)
    assert approvals.since(office.enforced, head) == first


def test_a_mirror_that_cannot_be_read_approves_nothing_and_says_so(office: Office) -> None:
    office.note(office.change, D1, BOB)
    head = office.mirror.refresh()
    approvals = GitApprovals(office.mirror, office.settings())
    office.mirror.approvals()
    shutil.rmtree(office.mirror.git.directory)
    shutil.rmtree(office.desk.bare)
    given, findings = approvals.since(office.enforced, head)
    assert given == ()
    assert [each.code for each in findings] == ["ApprovalsUnreadable"]


# ----- who may


def test_only_approvers_count_where_there_is_a_list(office: Office) -> None:
    office.trailer(D1, BOB)
    office.note(office.change, D2, BOB)
    assert set(office.approved(approvers=("Bob@Example.com",))) == {D1, D2}
    approvals, objections = office.read(approvers=("carol@example.com",))
    assert approvals == []
    assert ["bob@example.com is not among the approvers" in text for text in objections] == [True, True]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed here, so no signature can be made or verified")
    for name in ("ada", "bob", "eve"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(key, check=True, capture_output=True)
    known = [f"{name}@corp.example {(tmp_path / f'{name}.pub').read_text()}" for name in ("ada", "bob")]
    (tmp_path / "allowed").write_text("".join(known))
    return tmp_path


def signed_by(keys: Path, name: str, author: dict[str, str] = BOB) -> dict[str, str]:
    rules = {"gpg.format": "ssh", "user.signingKey": str(keys / name)}
    pairs = {f"GIT_CONFIG_KEY_{n}": key for n, key in enumerate(rules)}
    values = {f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(rules.values())}
    return {**author, "GIT_CONFIG_COUNT": str(len(rules)), **pairs, **values}


def change_by(office: Office, env: dict[str, str], *options: str) -> None:
    """Another change waits, and nothing else."""
    office.enforced = office.change
    git(office.desk.work, "rm", "-q", "agents/acme/b.yaml")
    git(office.desk.work, "commit", "-q", *options, "-m", "More", env=env)
    office.desk.push()
    office.change = office.desk.head()


def test_one_signer_under_two_addresses_is_one_person(office: Office, keys: Path) -> None:
    signers = str(keys / "allowed")
    change_by(office, signed_by(keys, "bob", ADA), "-S")
    office.trailer(D1, signed_by(keys, "bob"), "-S")
    assert f"signed {office.change[:10]}" in office.refused(allowed_signers=signers)


def test_where_signers_are_configured_a_change_without_a_signature_is_by_an_unknown_person(
    office: Office, keys: Path
) -> None:
    office.trailer(D1, signed_by(keys, "bob"), "-S")
    refused = office.refused(allowed_signers=str(keys / "allowed"))
    assert f"who made {office.change[:10]} is unknown" in refused


def test_who_committed_a_change_of_another_author_does_not_approve_it(office: Office) -> None:
    change_by(office, {**ADA, "GIT_COMMITTER_NAME": "Bob", "GIT_COMMITTER_EMAIL": "bob@example.com"})
    office.trailer(D1, BOB)
    assert "author of the changes" in office.refused()


def test_a_verified_signature_says_who_approved(office: Office, keys: Path) -> None:
    change_by(office, signed_by(keys, "ada", ADA), "-S")
    office.trailer(D1, signed_by(keys, "bob"), "-S")
    signers = str(keys / "allowed")
    assert office.approved(allowed_signers=signers) == {D1: "bob@corp.example"}
    assert office.approved(allowed_signers=signers, approvers=("bob@corp.example",)) == {D1: "bob@corp.example"}
    assert "not among the approvers" in office.refused(allowed_signers=signers, approvers=("bob@example.com",))


@pytest.mark.parametrize("how", ["unsigned", "a stranger's key"])
def test_without_a_signature_of_a_known_key_nothing_counts(office: Office, keys: Path, how: str) -> None:
    if how == "unsigned":
        office.trailer(D1, BOB)
    else:
        office.trailer(D1, signed_by(keys, "eve"), "-S")
    assert "carries no signature" in office.refused(allowed_signers=str(keys / "allowed"))


def test_a_missing_list_of_signers_approves_nothing(office: Office, keys: Path) -> None:
    office.trailer(D1, signed_by(keys, "bob"), "-S")
    assert "there is no such file" in office.refused(allowed_signers=str(keys / "gone"))


def test_notes_count_when_the_commit_that_wrote_them_is_signed(office: Office, keys: Path) -> None:
    office.note(office.change, D1, BOB)
    assert "carries no signature" in office.refused(allowed_signers=str(keys / "allowed"))
    tree = office.desk.git("rev-parse", f"{APPROVALS}^{{tree}}")
    signed = git(office.desk.work, "commit-tree", "-S", tree, "-m", "Notes", env=signed_by(keys, "bob"))
    office.desk.git("update-ref", APPROVALS, signed)
    office.desk.git("push", "-q", "--force", "origin", APPROVALS)
    assert office.approved(allowed_signers=str(keys / "allowed")) == {D1: "bob@corp.example"}
