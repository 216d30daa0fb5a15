"""The mirror: a bare copy of one branch, kept fresh, read without a work tree, rebuilt when it is damaged.

Refs in it: ``refs/remotes/origin/<branch>`` (what the remote had), ``refs/notes/gitops-agent/<instance>`` (our
notes), ``refs/gitops-agent/notes`` (the remote's copy of them), ``refs/gitops-agent/approvals`` (notes that
approve plans), ``refs/gitops-agent/kept/<sha>`` (heads that a force-push left behind: one may be the commit in
force) and ``refs/gitops-agent/outgoing`` (the commit that was pushed last). It knows no credentials.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from gitops_agent.errors import SourceError, SourceRefused
from gitops_agent.model.revision import Revision
from gitops_agent.ports import Clock, TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.source import blobs as batch
from gitops_agent.source import mirror_dir as storage
from gitops_agent.source.address import check_path, check_ref, check_revision, display, parse_address
from gitops_agent.source.git import Git, GitPythonCannot, LocalFailure, OnProgress, check_version
from gitops_agent.source.git_environment import config_variables
from gitops_agent.source.git_listing import LOG_FORMAT, TreeChange, parse_changes, parse_commits, parse_entries
from gitops_agent.source.revert_match import Lines, named_reverts, patch_lines, takes_back

REMOTE_NOTES = "refs/gitops-agent/notes"
KEPT = "refs/gitops-agent/kept/"
APPROVALS = "refs/notes/gitops-agent-approvals"
"""The ref of notes that approve plans, at the remote."""
APPROVALS_HERE = "refs/gitops-agent/approvals"
OUTGOING = "refs/gitops-agent/outgoing"

T = TypeVar("T")


def _here() -> Path | None:
    """The working directory that relative paths start from; None when it was deleted under our feet."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


class Mirror:
    """The repository, read side, never a work tree. A ``ports.BlobReader``. Safe to use from several threads."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        clock: Clock,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.address = parse_address(settings.repo, _here())
        self.branch = check_ref(settings.branch)
        self.path = check_path(settings.path)
        self.git = Git(settings.state.absolute() / "mirror.git", self.address, settings, environment)
        self.head_ref = f"refs/remotes/origin/{self.branch}"
        self.notes_ref = f"refs/notes/gitops-agent/{settings.instance}"
        self._settings = settings
        self._clock = clock
        self._on_progress = on_progress
        self._usable = False
        self._approvals: str | None = None  # not looked at yet; "": there are none
        self.on_approvals: Callable[[], None] = lambda: None
        """Called after a refresh that found other approvals than before, whether the branch moved or not."""

    # ----- the remote

    def refresh(self) -> Revision:
        """Ask the remote for the branch, fetch if it moved, and give its head.

        ``Revision.tree`` is "" when the path is missing at the head: that is the caller's to refuse, because the
        head is still needed to say so on it.
        """
        with self.exclusive():
            sound = self._ensure()
            seen = self.remote_refs()
            head = seen.get(f"refs/heads/{self.branch}") or self._no_branch()
            before = self.approvals()
            if not sound:
                self._build(head)
            elif self._is_news(head, seen):
                self._fetch(seen)
        if self.approvals() != before:
            self.on_approvals()
        return self.reading(lambda: self._revisions([self._head()])[0])

    def _is_news(self, head: str, seen: Mapping[str, str]) -> bool:
        return (
            head != self.resolve(self.head_ref)
            or seen.get(self.notes_ref) != self.resolve(REMOTE_NOTES)
            or seen.get(APPROVALS) != self.approvals()
        )

    def approvals(self) -> str | None:
        """The commit that the approvals were at when last fetched; remembered, so that asking is free."""
        if self._approvals is None:
            self._approvals = self.resolve(APPROVALS_HERE) or ""
        return self._approvals or None

    def remote_refs(self) -> dict[str, str]:
        """What the remote has for our branch, our notes and the approvals: ref to sha. One ls-remote."""
        wanted = (f"refs/heads/{self.branch}", self.notes_ref, APPROVALS)
        refs = self._ls_remote("--refs", "--", self.address.target, *wanted)
        return {name: sha for name, sha in refs.items() if name in wanted}

    def remote_branch(self, name: str) -> str | None:
        """The commit a branch of the remote is at; None when there is no such branch."""
        ref = f"refs/heads/{name}"
        return self._ls_remote("--refs", "--", self.address.target, ref).get(ref)

    def _ls_remote(self, *args: str) -> dict[str, str]:
        """Refs of the remote with their shas. Asked outside of the mirror, which may be damaged."""
        nowhere = self.git.at(self.git.directory.with_name("no.git"))
        lines = nowhere.remote("ls-remote", *args, now=self._clock.now()).text.splitlines()
        return {name: sha for sha, _, name in (line.partition("\t") for line in lines)}

    def fetch_notes(self) -> str | None:
        """The remote's notes of this instance, brought here; None when it has none."""
        found = self.remote_refs().get(self.notes_ref)
        if found is None:
            self.git.local("update-ref", "-d", REMOTE_NOTES)
        elif found != self.resolve(REMOTE_NOTES):
            self._fetch_refs(self.git, [f"+{self.notes_ref}:{REMOTE_NOTES}"])
        return self.resolve(REMOTE_NOTES)

    def fetch_ref(self, ref: str) -> None:
        """Bring one ref of the remote here, under its own name and by force; nothing when it has none."""
        found = self._ls_remote("--refs", "--", self.address.target, ref).get(ref)
        if found is not None and found != self.resolve(ref):
            self._fetch_refs(self.git, [f"+{ref}:{ref}"])

    def send(self, source: str, target: str) -> str:
        """Push one ref or commit, never by force; why the remote rejected it, "" when it took it."""
        if not source.startswith("refs/"):
            # GitPython reports the result for a ref, and drops that for a bare commit.
            self.git.local("update-ref", OUTGOING, source)
            source = OUTGOING
        return self.git.push(f"{source}:{target}", self._clock.now())

    def _no_branch(self) -> str:
        """SourceRefused with the reason why there is no head; what runs is never changed for it."""
        heads = self._ls_remote("--heads", "--refs", "--", self.address.target)
        names = [display(name.removeprefix("refs/heads/")) for name in heads]
        where = f"repository {self.address.safe}"
        last = self.cached_head()
        kept = f"; it was last seen at {last}, and what runs is not changed" if last else ""
        if not names:
            raise SourceRefused(f"{where} is empty{kept}", hint=f"push a first commit to {self.branch}")
        gone = "was deleted" if last else "does not exist"
        found = ", ".join(sorted(names)[:10]) + (", …" if len(names) > 10 else "")
        raise SourceRefused(
            f"{where}: branch {self.branch} {gone}{kept}; branches found: {found}",
            hint=f"push {self.branch}, or choose another branch with --branch",
        )

    def _fetch(self, seen: Mapping[str, str]) -> None:
        before = self.cached_head()
        try:
            self._fetch_refs(self.git, self._refspecs(seen))
        except SourceError:
            # Git does not say on whose side the broken object was.
            if not self._damaged():
                raise
            return self._build(seen[f"refs/heads/{self.branch}"])
        if APPROVALS not in seen:
            self.git.local("update-ref", "-d", APPROVALS_HERE)
        self._approvals = None
        after = self._head()
        if before and not self._contains(before, after):
            self.git.local("update-ref", KEPT + before, before)
        if self.notes_ref in seen and not self.resolve(self.notes_ref):
            self.git.local("update-ref", self.notes_ref, REMOTE_NOTES)
        with suppress(SourceError):  # tidying up may fail; it is tried again after the next fetch
            self.git.local("gc", "--auto", "--quiet")

    def _refspecs(self, seen: Mapping[str, str]) -> list[str]:
        beside = ((self.notes_ref, REMOTE_NOTES), (APPROVALS, APPROVALS_HERE))
        notes = [f"+{there}:{here}" for there, here in beside if there in seen]
        return [f"+refs/heads/{self.branch}:{self.head_ref}", *notes]

    def _fetch_refs(self, git: Git, refspecs: Sequence[str]) -> None:
        git.fetch(refspecs, self._clock.now(), self._on_progress)

    # ----- building and rebuilding

    def exclusive(self) -> AbstractContextManager[None]:
        """Only one thread or process writes to the mirror at a time."""
        return storage.exclusive(self.git.directory)

    def _ensure(self) -> bool:
        """Put back what a crash left half done; whether there is a repository at all."""
        if not self._usable:
            check_version(self.git)
            self._usable = True
        storage.recover(self.git.directory)
        try:
            self.git.local("rev-parse", "--git-dir")
        except LocalFailure:
            return False
        return storage.exists(self.git.directory)

    def _build(self, head: str) -> None:
        """A new mirror beside the old one, filled from the remote and with what the old one can still give."""
        fresh = self.git.at(storage.beside(self.git.directory))
        style = "sha256" if len(head) == 64 else "sha1"
        fresh.local("init", "--quiet", "--bare", "--template=", f"--object-format={style}", str(fresh.directory))
        self._fetch_refs(fresh, self._refspecs(self.remote_refs()))
        if fresh.ref(REMOTE_NOTES):
            fresh.local("update-ref", self.notes_ref, REMOTE_NOTES)
        self._rescue(fresh)
        storage.swap(fresh.directory, self.git.directory)
        self.git.reopen()
        self._approvals = None

    def _rescue(self, fresh: Git) -> None:
        """Notes that were not pushed and heads that were kept live only here: take over what can be read."""
        if not self.git.directory.exists():
            return
        quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        env = {"GIT_ALLOW_PROTOCOL": "file", **config_variables({"protocol.file.allow": "always"})}
        for refspec in (f"+{self.notes_ref}:{self.notes_ref}", f"+{KEPT}*:{KEPT}*"):
            with suppress(SourceError):
                fresh.local("fetch", *quiet, "--", str(self.git.directory), refspec, env=env)

    def reading(self, read: Callable[[], T]) -> T:
        """Read from the mirror; when it turns out to be damaged, rebuild it once and read again."""
        try:
            return read()
        except LocalFailure:
            if not self._damaged():
                raise
        self._rebuild()
        return read()

    def _damaged(self) -> bool:
        directory = self.git.directory
        if not storage.exists(directory):
            return True
        checks = ("--full", "--no-dangling", "--no-progress", "--no-reflogs")
        try:
            self.git.local("rev-parse", "--verify", f"{self.head_ref}^{{tree}}")
            self.git.local("fsck", *checks)
        except LocalFailure:
            return True
        return False

    def _rebuild(self) -> None:
        with self.exclusive():
            head = self.remote_refs().get(f"refs/heads/{self.branch}") or self._no_branch()
            self._build(head)

    # ----- commits

    def cached_head(self) -> str | None:
        """The head as last fetched, without asking the remote; None before the first fetch."""
        return self.resolve(self.head_ref) if storage.exists(self.git.directory) else None

    def resolve(self, ref: str) -> str | None:
        """The sha that a ref of ours (by its full name) has; None when there is none."""
        return self.git.ref(ref)

    def _commit(self, name: str) -> str | None:
        """The sha of a commit by any name git knows for it; None when the mirror has none."""
        return self.git.find(f"{name}^{{commit}}", "commit")

    def known_commits(self, shas: Iterable[str]) -> list[str]:
        """Those of the given full shas that are commits of the mirror."""
        asked = list(shas)
        given = "".join(f"{sha}\n" for sha in asked).encode()
        types = self.git.local("cat-file", "--batch-check=%(objecttype)", stdin=given).text.split("\n")
        return [sha for sha, kind in zip(asked, types, strict=False) if kind == "commit"]

    def _head(self) -> str:
        head = self.resolve(self.head_ref)
        if head is None:
            raise LocalFailure(f"mirror {self.git.directory} has no {self.head_ref}")
        return head

    def revision(self, ref: str) -> Revision:
        """One commit by sha, branch or ``HEAD~1``; SourceRefused when the mirror has none of that name."""
        name, walk = check_revision(ref)
        for candidate in (self.head_ref,) if name == "HEAD" else (f"refs/remotes/origin/{name}", name):
            if found := self._commit(candidate + walk):
                return self.reading(partial(self._revisions, [found]))[0]
        if len(name) >= 40 and self._damaged():
            self._rebuild()
            if found := self._commit(name + walk):
                return self._revisions([found])[0]
        raise SourceRefused(
            f"commit {display(ref)} is not in branch {self.branch} of {self.address.safe}",
            hint="give a commit of this branch; gitops-agent history lists them",
        )

    def between(self, old: str | None, new: str) -> tuple[Revision, ...]:
        """The commits reachable from new and not from old, oldest first.

        Only ``new`` when old is None or no longer known here (a rewritten branch and a rebuilt mirror).
        """
        if old is None or not self._commit(old):
            return (self.revision(new),)
        args = ("rev-list", "--reverse", "--topo-order", "--end-of-options", f"{old}..{new}")
        shas = self.reading(lambda: self.git.local(*args).text.split())
        return tuple(self.reading(lambda: self._revisions(shas)))

    def history(self, sha: str, limit: int) -> tuple[Revision, ...]:
        """A commit and its ancestors, newest first."""
        args = ("rev-list", "--topo-order", f"--max-count={limit}", "--end-of-options", self.revision(sha).sha)
        shas = self.reading(lambda: self.git.local(*args).text.split())
        return tuple(self.reading(lambda: self._revisions(shas)))

    def _revisions(self, shas: Sequence[str]) -> list[Revision]:
        if not shas:
            return []
        trees = self._subtrees(shas)
        try:
            return self.git.revisions(shas, trees)
        except GitPythonCannot:
            given = "".join(f"{sha}\n" for sha in shas).encode()
            shape = ("--no-walk=unsorted", "--encoding=UTF-8", f"--format={LOG_FORMAT}", "--stdin")
            return list(parse_commits(self.git.local("log", *shape, stdin=given).output, iter(trees)))

    def _subtrees(self, shas: Sequence[str]) -> list[str]:
        """The tree below the path at each commit; "" where there is no such folder."""
        if len(shas) == 1:
            trees = [self.git.find(f"{shas[0]}:{self.path}", "tree") or ""]
        else:
            given = "".join(f"{sha}:{self.path}\n" for sha in shas).encode()
            answer = self.git.local("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=given)
            trees = [line.split(" ")[0] if line.endswith(" tree") else "" for line in answer.text.split("\n")]
        for sha in (sha for sha, tree in zip(shas, trees, strict=True) if not tree):
            self._surely_missing(sha)
        return trees

    def _surely_missing(self, sha: str) -> None:
        """LocalFailure when the folder is in the commit after all: then its objects are lost, not the folder."""
        listed = self.git.local("ls-tree", "--full-tree", sha, "--", self.path).text if self.path else "root tree"
        if not self.path or " tree " in listed:
            raise LocalFailure(f"mirror {self.git.directory}: the tree of {sha} is missing or broken")

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether new contains old; a commit that is no longer known here is not contained."""
        return self.reading(lambda: self._contains(old, new))

    def _contains(self, old: str, new: str) -> bool:
        if not self._commit(old):
            return False
        return self.git.contains(old, new)

    def undoes(self, later: str, earlier: str) -> bool:
        """Whether the difference ``later`` makes below the path takes back that of ``earlier``.

        When the message of ``later`` names several commits, ``earlier`` among them, all of them together are
        compared. Merges count by their first parent.
        """
        if not self._commit(earlier):
            return False
        named = [sha for sha in named_reverts(self.revision(later).message) if self._commit(sha)]
        together = named if any(earlier.startswith(sha) for sha in named) else [earlier]
        return self.reading(
            lambda: takes_back(self._difference(later), [self._difference(sha, "-R") for sha in together])
        )

    def _difference(self, sha: str, *options: str) -> Lines:
        parent = self._commit(f"{sha}^1") or self.empty_tree()
        shape = ("-r", "-p", "-U0", "--no-prefix", "--full-index", "--no-renames")
        plain = ("--no-ext-diff", "--no-textconv", "--no-color")
        where = ("--", self.path) if self.path else ()
        patch = self.git.local("diff-tree", *shape, *plain, *options, parent, sha, *where)
        return patch_lines(patch.output.decode(errors="surrogateescape"))

    def tree_of(self, sha: str) -> str:
        """The whole tree of a commit."""
        found = self.git.find(f"{sha}^{{tree}}", "tree")
        return found or self.reading(lambda: self.git.local("rev-parse", "--verify", f"{sha}^{{tree}}").text)

    def empty_tree(self) -> str:
        """The id of the tree without entries (it depends on the hash of the repository)."""
        return self.git.local("hash-object", "-t", "tree", "--stdin", stdin=b"").text

    # ----- trees and blobs, for the snapshot stage

    def entries(self, sha: str) -> list[TreeEntry]:
        """Everything below the path at a commit, with sizes, paths relative to it; blobs are not read.

        Empty when the path is missing. A listing of more than 64 MiB is refused (SourceRefused).
        """
        tree = self.reading(lambda: self._subtrees([sha]))[0]
        return parse_entries(self._list("ls-tree", "-r", "-l", "-z", "--full-tree", tree)) if tree else []

    def changed(self, old_sha: str, new_sha: str) -> list[TreeChange]:
        """The paths below the path that differ between two commits (renames are a deletion and an addition)."""
        old, new = (tree or self.empty_tree() for tree in self.reading(lambda: self._subtrees([old_sha, new_sha])))
        return parse_changes(self._list("diff-tree", "-r", "-z", "--no-renames", old, new))

    def _list(self, *args: str) -> bytes:
        return self.reading(lambda: self.git.local(*args)).output

    def blobs(self, ids: Iterable[str], max_bytes: int | None = None) -> Iterator[tuple[str, bytes]]:
        """The contents of blobs, in the order given, through one git process.

        A blob larger than ``max_bytes`` (default: the limit in settings) raises SourceRefused before it is read;
        ``entries`` gives sizes, so callers can leave such blobs out. A missing or broken one rebuilds the mirror.
        """
        wanted = list(ids)
        limits = self._settings.limits
        cap = max(limits.file_bytes, limits.instructions_bytes) if max_bytes is None else max_bytes
        done = 0
        try:
            for pair in batch.contents(self.git, wanted, cap, self._settings.git_timeout):
                yield pair
                done += 1
        except LocalFailure:
            self._rebuild()
            yield from batch.contents(self.git, wanted[done:], cap, self._settings.git_timeout)
