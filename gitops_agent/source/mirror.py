"""The mirror: a bare copy of one branch, kept fresh, read without a work tree, rebuilt when it is damaged.

Refs in it: ``refs/remotes/origin/<branch>`` (what the remote had), ``refs/notes/gitops-agent/<instance>`` (our
notes), ``refs/gitops-agent/notes`` (the remote's copy of them), ``refs/gitops-agent/approvals`` (notes that
approve plans), ``refs/gitops-agent/kept/<sha>`` (commits that a force-push took off the branch: one may be the one
in force), ``refs/gitops-agent/outgoing`` (the commit that was written last) and ``refs/gitops-agent/sending/``
(what is being pushed). It knows no credentials.
"""

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gitops_agent.errors import SourceError, SourceRefused, SourceUnavailable, UsageError
from gitops_agent.model.revision import Revision
from gitops_agent.ports import Clock, TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.source import mirror_dir as storage
from gitops_agent.source.address import check_path, check_ref, check_revision, display, parse_address
from gitops_agent.source.bounded_process import Answer, OnProgress
from gitops_agent.source.git_environment import config_variables
from gitops_agent.source.git_errors import LocalFailure
from gitops_agent.source.git_text import (
    FEW_COMMITS,
    Lines,
    named_reverts,
    parse_changes,
    parse_entries,
    patch_lines,
    takes_back,
)

if TYPE_CHECKING:
    from gitops_agent.source.git import Git

REMOTE_NOTES = "refs/gitops-agent/notes"
KEPT = "refs/gitops-agent/kept/"
APPROVALS = "refs/notes/gitops-agent-approvals"
"""The ref of notes that approve plans, at the remote."""
APPROVALS_HERE = "refs/gitops-agent/approvals"
OUTGOING = "refs/gitops-agent/outgoing"
CANDIDATE = "refs/gitops-agent/candidate"
"""The branch of a remote that may be the one we follow at another address."""
SENDING = "refs/gitops-agent/sending/"
TIDIED_EVERY = 50
"""So many fetches bring new commits between two looks whether the mirror is to be packed: that takes a while."""
EMPTY_TREE = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The tree without entries, by the length of ids: every repository has it."""

T = TypeVar("T")
_IMPORTING = threading.Lock()


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
        self.head_ref = f"refs/remotes/origin/{self.branch}"
        self.notes_ref = f"refs/notes/gitops-agent/{settings.instance}"
        self._branch_ref = f"refs/heads/{self.branch}"
        # Refs of the remote that we follow, and their names here.
        self._followed = {self._branch_ref: self.head_ref, self.notes_ref: REMOTE_NOTES, APPROVALS: APPROVALS_HERE}
        self._directory = settings.state.absolute() / "mirror.git"
        self._settings = settings
        self._given = (environment, clock, on_progress)
        self._swept = False
        self._sound: tuple[int, ...] = ()
        self._fetches = 0
        self._walked: tuple[tuple[str, str], tuple[Revision, ...]] = ("", ""), ()
        self.on_approvals: Callable[[], None] = lambda: None
        """Called after a refresh that found other approvals than before, whether the branch moved or not."""
        self.leading: Callable[[], bool] = lambda: True
        """Whether this process may act; asked right before anything is pushed."""

    @cached_property
    def git(self) -> "Git":
        """Git on the folder of the mirror; UsageError when it is missing or too old.

        Imported on first use, which costs a tenth of a second and one ``git version`` of GitPython's. That call is
        made before we can say anything about it, and by whatever program the environment names: so while it lasts
        the environment says nothing about git.
        """
        with _IMPORTING:
            hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GIT_")}
            try:
                from gitops_agent.source.git import Git
            except ImportError as problem:
                hint = "install git 2.38 or later and put it on PATH"
                raise UsageError("git was not found", hint=hint) from problem
            finally:
                os.environ.update(hidden)
        git = Git(self._directory, self.address, self._settings, *self._given)
        git.check_version()
        return git

    # ----- the remote

    def refresh(self) -> Revision:
        """Ask the remote for the branch, fetch if it moved, and give its head.

        ``Revision.tree`` is "" when the path is missing at the head: that is the caller's to refuse, because the
        head is still needed to say so on it.
        """
        with self._fetching():
            with self.exclusive():
                sound = self._ensure()
            seen = self._ask()
            before = self.approvals()
            if not sound:
                self._build(seen)
            elif any(seen.get(there) != self.git.ref(here) for there, here in self._followed.items()):
                self._fetch(seen)
        if self.approvals() != before:
            self.on_approvals()
        return self._revisions([self.reading(self._head)])[0]

    def approvals(self) -> str | None:
        """The commit that the approvals were at when last fetched."""
        return self.git.ref(APPROVALS_HERE)

    def remote_refs(self, *names: str) -> dict[str, str]:
        """Those of some refs (by their full names) that the remote has, with their shas. One ls-remote."""
        return {name: sha for name, sha in self._ls_remote("--", self.address.target, *names) if name in names}

    def _ls_remote(self, *args: str) -> Iterator[tuple[str, str]]:
        """Refs of the remote with their shas. Asked outside of the mirror, which may be damaged."""
        nowhere = self.git.at(self.git.directory.with_name("no.git"))
        lines = nowhere.remote("ls-remote", "--refs", *args).text.splitlines()
        return ((name, sha) for sha, _, name in (line.partition("\t") for line in lines))

    def _ask(self) -> dict[str, str]:
        """What the remote has of the refs that we follow; SourceRefused when it has no branch of ours.

        What runs is never changed for that.
        """
        seen = self.remote_refs(*self._followed)
        if self._branch_ref in seen:
            return seen
        heads = self._ls_remote("--heads", "--", self.address.target)
        names = sorted(display(name.removeprefix("refs/heads/")) for name, _ in heads)
        where = f"repository {self.address.target}"
        last = self.cached_head()
        kept = f"; it was last seen at {last}, and what runs is not changed" if last else ""
        if not names:
            raise SourceRefused(f"{where} is empty{kept}", hint=f"push a first commit to {self.branch}")
        gone = "was deleted" if last else "does not exist"
        found = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise SourceRefused(
            f"{where}: branch {self.branch} {gone}{kept}; branches found: {found}",
            hint=f"push {self.branch}, or choose another branch with --branch",
        )

    def fetch_ref(self, there: str, here: str) -> str | None:
        """The commit of a ref of the remote, brought here by force; None when it has none."""
        found = self.remote_refs(there).get(there)
        if found is not None and found != self.git.ref(here):
            with self._fetching():
                self.git.fetch(f"+{there}:{here}")
        return self.git.ref(here) if found is not None else None

    def has(self, sha: str) -> bool:
        """Whether the commit is here."""
        return self._commit(sha) is not None

    def bring(self, sha: str) -> None:
        """Fetch a commit that the branch does not contain, and keep it; SourceError when the remote has it no more
        or gives nothing but refs."""
        with self._fetching():
            self.git.fetch(f"+{sha}:{KEPT}{sha}")

    def shares_history(self, known: Sequence[str]) -> bool:
        """Whether the branch of the remote has a commit in common with one that is known here."""
        if not storage.exists(self._directory):
            head = self.refresh().sha
            return any(self.git.contains(sha, head) for sha in known)
        found = self.fetch_ref(self._branch_ref, CANDIDATE)
        if found is None:
            self._ask()  # which says what the remote has instead
            return False
        mine = [sha for sha in known if self.git.find(f"{sha}^{{commit}}", "commit")]
        same = any(self.git.local("merge-base", sha, found, ok=(0, 1)).code == 0 for sha in mine)
        self.git.local("update-ref", "-d", CANDIDATE)
        return same

    def send(self, source: str, target: str) -> str:
        """Push one ref or commit, never by force; why the remote rejected it, "" when it took it.
        SourceUnavailable when another process leads by now.
        Holds no lock: a remote may take its time, and meanwhile commits are followed and notes are written."""
        # A name of its own: GitPython reports the result for a ref alone, and another commit may be on its way.
        sending = f"{SENDING}{os.getpid()}-{uuid.uuid4().hex[:12]}"
        with self.exclusive():
            self.git.local("update-ref", sending, source)
        try:
            if not self.leading():
                raise SourceUnavailable(
                    f"{target} is not pushed: this process leads its instance no more",
                    hint="the one that leads now pushes what there is to push",
                )
            return self.git.push(f"{sending}:{target}")
        finally:
            with suppress(SourceError, UsageError), self.exclusive():
                self.git.local("update-ref", "-d", sending)

    def _fetch(self, seen: Mapping[str, str]) -> None:
        before = self.cached_head()
        try:
            self.git.fetch(*self._refspecs(seen))
        except SourceError:
            # Git does not say on whose side the broken object was.
            if not self._damaged():
                raise
            return self._build(seen)
        with self.exclusive():
            for here in (here for there, here in self._followed.items() if there not in seen):
                if self.git.ref(here):
                    self.git.local("update-ref", "-d", here)
            if before and not self.git.contains(before, self._head()):
                self.git.local("update-ref", KEPT + before, before)
            if self.notes_ref in seen and not self.git.ref(self.notes_ref):
                self.git.local("update-ref", self.notes_ref, REMOTE_NOTES)
            if self._fetches % TIDIED_EVERY == 0:
                with suppress(SourceError):  # tidying up may fail; it is tried again after later fetches
                    self.git.local("gc", "--auto", "--quiet")
            self._fetches += 1

    def _refspecs(self, seen: Mapping[str, str]) -> list[str]:
        return [f"+{there}:{here}" for there, here in self._followed.items() if there in seen]

    # ----- building and rebuilding

    def exclusive(self) -> AbstractContextManager[None]:
        """Only one thread or process writes to the mirror at a time; never held while the remote is waited for."""
        return storage.exclusive(self.git.directory)

    def _fetching(self) -> AbstractContextManager[None]:
        """Only one thread or process fetches at a time."""
        return storage.fetching(self.git.directory)

    def _ensure(self) -> bool:
        """Put back what a crash left half done; whether there is a repository at all."""
        storage.recover(self.git.directory)
        if not self._is_repository():
            return False
        if not self._swept:
            self._swept = True
            self._drop_sent()
        return storage.exists(self.git.directory)

    def _is_repository(self) -> bool:
        """Whether git takes it for one; asked again only when the files have changed that it looks at."""
        folder = self.git.directory
        try:
            seen = tuple((folder / name).stat().st_mtime_ns for name in ("HEAD", "config", "refs"))
        except OSError:
            seen = ()
        if not seen or seen != self._sound:
            try:
                self.git.local("rev-parse", "--git-dir")
            except LocalFailure:
                return False
            self._sound = seen
        return True

    def _drop_sent(self) -> None:
        """Remove the refs of pushes whose process is gone; once in a process, since only a crash leaves one."""
        with suppress(SourceError):
            for name in self.git.local("for-each-ref", "--format=%(refname)", SENDING).text.splitlines():
                pid = name.removeprefix(SENDING).partition("-")[0]
                if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
                    self.git.local("update-ref", "-d", name)

    def _build(self, seen: Mapping[str, str]) -> None:
        """A new mirror beside the old one, filled from the remote and with what the old one can still give."""
        fresh = self.git.at(storage.beside(self.git.directory))
        style = "sha256" if len(seen[self._branch_ref]) == 64 else "sha1"
        fresh.local("init", "--quiet", "--bare", "--template=", f"--object-format={style}", str(fresh.directory))
        fresh.fetch(*self._refspecs(seen))
        if fresh.ref(REMOTE_NOTES):
            fresh.local("update-ref", self.notes_ref, REMOTE_NOTES)
        with self.exclusive():
            self._rescue(fresh)
            storage.swap(fresh.directory, self.git.directory)
            self.git.reopen()

    def _rescue(self, fresh: "Git") -> None:
        """Notes that were not pushed and heads that were kept live only here: take over what can be read."""
        if not self.git.directory.exists():
            return
        quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        env = {"GIT_ALLOW_PROTOCOL": "file", **config_variables({"protocol.file.allow": "always"})}
        for refspec in (f"+{self.notes_ref}:{self.notes_ref}", f"+{KEPT}*:{KEPT}*"):
            with suppress(SourceError):
                fresh.local("fetch", *quiet, "--", str(self.git.directory), refspec, env=env)

    def reading(self, read: Callable[[], T]) -> T:
        """What is read from the mirror; when that turns out to be damaged, it is rebuilt once and read again."""
        try:
            return read()
        except LocalFailure:
            if not self._damaged():
                raise
        self._rebuild()
        return read()

    def _read(self, *args: str) -> Answer:
        return self.reading(lambda: self.git.local(*args))

    def _damaged(self) -> bool:
        if not storage.exists(self.git.directory):
            return True
        try:
            self.git.local("rev-parse", "--verify", f"{self.head_ref}^{{tree}}")
            self.git.local("fsck", "--full", "--no-dangling", "--no-progress", "--no-reflogs")
        except LocalFailure:
            return True
        return False

    def _rebuild(self) -> None:
        with self._fetching():
            self._build(self._ask())

    # ----- commits

    def cached_head(self) -> str | None:
        """The head as last fetched, without asking the remote; None before the first fetch."""
        return self.git.ref(self.head_ref) if storage.exists(self.git.directory) else None

    def _commit(self, name: str) -> str | None:
        """The sha of a commit by any name git knows for it; None when the mirror has none."""
        return self.git.find(f"{name}^{{commit}}", "commit")

    def _head(self) -> str:
        if (head := self.git.ref(self.head_ref)) is None:
            raise LocalFailure(f"mirror {self.git.directory} has no {self.head_ref}")
        return head

    def revision(self, ref: str) -> Revision:
        """One commit by sha, branch or ``HEAD~1``; SourceRefused when the mirror has none of that name."""
        name, walk = check_revision(ref)
        for candidate in (self.head_ref,) if name == "HEAD" else (f"refs/remotes/origin/{name}", name):
            if found := self._commit(candidate + walk):
                return self._revisions([found])[0]
        if len(name) >= 40 and self._damaged():
            self._rebuild()
            if found := self._commit(name + walk):
                return self._revisions([found])[0]
        raise SourceRefused(
            f"commit {display(ref)} is not in branch {self.branch} of {self.address.target}",
            hint="give a commit of this branch; gitops-agent history lists them",
        )

    def between(self, old: str | None, new: str) -> tuple[Revision, ...]:
        """The commits reachable from new and not from old, oldest first.

        Only ``new`` when old is None or no longer known here (a rewritten branch and a rebuilt mirror).
        """
        if old is None or not self._commit(old):
            return (self.revision(new),)
        known = self._walked  # one pass asks three times for the commits that are new
        if known[0] != (old, new):
            head = self.revision(new)  # one commit on top of the other, as most are, needs no walk
            alone = (head,) if head.parents == (old,) else None
            walked = alone or self._walk("--reverse", "--end-of-options", f"{old}..{new}")
            known = self._walked = (old, new), walked
        return known[1]

    def history(self, sha: str, limit: int) -> tuple[Revision, ...]:
        """A commit and its ancestors, newest first."""
        return self._walk(f"--max-count={limit}", "--end-of-options", self.revision(sha).sha)

    def _walk(self, *args: str) -> tuple[Revision, ...]:
        return tuple(self._revisions(self._read("rev-list", "--topo-order", *args).text.split()))

    def _revisions(self, shas: Sequence[str]) -> list[Revision]:
        return self.reading(lambda: self.git.revisions(shas, self._subtrees(shas))) if shas else []

    def _subtrees(self, shas: Sequence[str]) -> list[str]:
        """The tree below the path at each commit; "" where there is no such folder."""
        if len(shas) <= FEW_COMMITS:
            trees = [self.git.find(f"{sha}:{self.path}", "tree") or "" for sha in shas]
        else:
            given = "".join(f"{sha}:{self.path}\n" for sha in shas).encode()
            answer = self.git.local("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=given)
            trees = [line.split(" ")[0] if line.endswith(" tree") else "" for line in answer.text.split("\n")]
        for sha in (sha for sha, tree in zip(shas, trees, strict=True) if not tree):
            # When the folder is in the commit after all, its objects are lost, not the folder.
            if not self.path or " tree " in self.git.local("ls-tree", "--full-tree", sha, "--", self.path).text:
                raise LocalFailure(f"mirror {self.git.directory}: the tree of {sha} is missing or broken")
        return trees

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether new contains old; a commit that is no longer known here is not contained."""
        return self.reading(lambda: self.git.contains(old, new))

    def undoes(self, later: str, earlier: str) -> bool:
        """Whether the difference ``later`` makes below the path takes back that of ``earlier``.

        When the message of ``later`` names several commits, ``earlier`` among them, all of them together are
        compared. Merges count by their first parent.
        """
        if not self._commit(earlier):
            return False
        named = [sha for sha in named_reverts(self.revision(later).message) if self._commit(sha)]
        together = named if any(earlier.startswith(sha) for sha in named) else [earlier]
        return takes_back(self._difference(later), [self._difference(sha, "-R") for sha in together])

    def _difference(self, sha: str, *options: str) -> Lines:
        parent = self._commit(f"{sha}^1") or EMPTY_TREE[len(self._head())]
        shape = ("-r", "-p", "-U0", "--no-prefix", "--full-index", "--no-renames")
        plain = ("--no-ext-diff", "--no-textconv", "--no-color")
        where = ("--", self.path) if self.path else ()
        patch = self._read("diff-tree", *shape, *plain, *options, parent, sha, *where)
        return patch_lines(patch.output.decode(errors="surrogateescape"))

    def tree_of(self, sha: str) -> str:
        """The whole tree of a commit."""
        name = f"{sha}^{{tree}}"
        return self.git.find(name, "tree") or self._read("rev-parse", "--verify", name).text

    # ----- trees and blobs, for the snapshot stage

    def entries(self, sha: str) -> list[TreeEntry]:
        """Everything below the path at a commit, with sizes, paths relative to it; blobs are not read.

        Empty when the path is missing. A listing of more than 64 MiB is refused (SourceRefused).
        """
        (tree,) = self.reading(lambda: self._subtrees([sha]))
        return parse_entries(self._read("ls-tree", "-r", "-l", "-z", "--full-tree", tree).output) if tree else []

    def changed(self, old_sha: str, new_sha: str) -> list[TreeEntry]:
        """The paths below the path that differ between two commits (renames are a deletion and an addition)."""
        trees = self.reading(lambda: self._subtrees([old_sha, new_sha]))
        old, new = (tree or EMPTY_TREE[len(new_sha)] for tree in trees)
        return parse_changes(self._read("diff-tree", "-r", "-z", "--no-renames", old, new).output)

    def blobs(self, ids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of blobs, in the order given, through one git process.

        A blob larger than the limit in the settings raises SourceRefused before it is read; ``entries`` gives
        sizes, so callers can leave such blobs out. A missing or broken one rebuilds the mirror.
        """
        wanted, done = list(ids), 0
        cap = max(self._settings.limits.file_bytes, self._settings.limits.instructions_bytes)
        try:
            for pair in self.git.blobs(wanted, cap):
                yield pair
                done += 1
        except LocalFailure:
            self._rebuild()
            yield from self.git.blobs(wanted[done:], cap)
