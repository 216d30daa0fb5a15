"""New commits on top of the branch, made from trees alone: reverts, restores, edits. Nothing is checked out."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gitops_agent.errors import NothingToDo, SourceRefused
from gitops_agent.settings import Settings
from gitops_agent.source.address import check_ref, display
from gitops_agent.source.git import GitPythonCannot, LocalFailure
from gitops_agent.source.identity import identity
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.revert_match import named_reverts

# Commits that exist only to tell merge-tree its base; a fixed moment makes them the same every time.
_EPOCH = "0 +0000"

_FILES = frozenset({"100644", "100755"})
_TAKES_IT = frozenset({"updateinstead", "ignore", "warn", "false"})
"""Values of receive.denyCurrentBranch with which git takes a push to the branch that is checked out."""


def _checked_out(branch: str, where: str) -> SourceRefused:
    return SourceRefused(
        f"{branch} is checked out in {where}, and git takes no push to a branch that is in use",
        hint="add --branch-name undo, then run `git merge undo` there; or use plain `git revert`; "
        "or follow a bare repository",
    )


def _guard(repository: Path) -> Path | None:
    """The hook that decides which pushes a repository takes, if it has one."""
    hooks = (repository / "hooks" / name for name in ("pre-receive", "update"))
    return next((hook for hook in hooks if os.access(hook, os.X_OK)), None)


def _guarded(branch: str, guard: Path) -> SourceRefused:
    return SourceRefused(
        f"the hook {guard} decides what {branch} takes, and gitops-agent runs no hooks of a repository",
        hint="add --branch-name undo and merge that branch as usual; or follow the repository over https or ssh",
    )


class BranchWriter:
    """New commits on top of the branch, made without a work tree; only ``push`` reaches the remote."""

    def __init__(self, mirror: Mirror, settings: Settings) -> None:
        self._mirror = mirror
        self._git = mirror.git
        self._identity = identity(settings)

    def revert(self, shas: Sequence[str], message: str) -> str:
        """One commit on the head that undoes these, in the order given (newest first).

        Merges are undone by their first parent. SourceRefused names the paths that do not revert cleanly, and
        says so when nothing is left to undo.
        """
        head = self._mirror.revision(self._mirror.branch).sha
        commits = [self._mirror.revision(sha) for sha in shas]
        tree = self._tree(head)
        lines = []
        for commit in commits:
            if not self._mirror.is_ancestor(commit.sha, head):
                raise SourceRefused(
                    f"commit {commit.short} is not part of {self._mirror.branch}",
                    hint="give a commit of the branch",
                )
            before = self._tree(commit.parents[0]) if commit.parents else self._mirror.empty_tree()
            tree = self._merge(base=self._tree(commit.sha), ours=tree, theirs=before, what=commit.sha)
            merged = f", reversing\nchanges made to {commit.parents[0]}" if len(commit.parents) > 1 else ""
            if commit.sha not in named_reverts(message):
                lines.append(f"This reverts commit {commit.sha}{merged}.")
        return self._commit(tree, head, "\n\n".join(part for part in (message.strip(), "\n".join(lines)) if part))

    def restore(self, to: str, message: str) -> str:
        """One commit on the head whose tree below the path is exactly that of ``to``; the rest stays."""
        head = self._mirror.revision(self._mirror.branch).sha
        target = self._mirror.revision(to)
        if not target.tree:
            raise SourceRefused(
                f"commit {target.short} has no folder {self._mirror.path}", hint="choose a commit that has it"
            )
        tree = self._with_entry(self._tree(head), self._mirror.path, "040000", target.tree)
        return self._commit(tree, head, f"{message.strip()}\n\nRestores the state of commit {target.sha}.")

    def edit(self, files: Mapping[str, bytes], message: str) -> str:
        """One commit on the head in which some files (by their path below the path) have another content."""
        head = self._mirror.revision(self._mirror.branch).sha
        tree = self._tree(head)
        for name, content in files.items():
            path = f"{self._mirror.path}/{name}".lstrip("/")
            blob = self._git.local("hash-object", "-w", "--stdin", stdin=content).text
            tree = self._with_entry(tree, path, self._file_mode(head, path), blob)
        return self._commit(tree, head, message)

    def tip(self, branch: str) -> str | None:
        """The commit a branch of the remote is at; None when there is no such branch."""
        return self._mirror.remote_branch(check_ref(branch))

    def check_push(self, branch: str) -> None:
        """SourceRefused when the remote would surely not take a push, or has a hook to decide that.

        Git runs hooks of a repository on this machine as us, so we run none; nor do we move the followed branch
        past a hook that may refuse it.
        """
        local = self._mirror.address.local
        if local is None:
            return
        work = (local / ".git").is_dir()
        guard = _guard(local / ".git" if work else local)
        if guard is not None and branch == self._mirror.branch:
            raise _guarded(branch, guard)
        if not work:
            return
        there = self._git.at(local / ".git")
        try:
            current = there.local("symbolic-ref", "--quiet", "HEAD", ok=(0, 1)).text
            deny = there.local("config", "--get", "receive.denyCurrentBranch", ok=(0, 1)).text
        except LocalFailure:
            return  # the push itself will say what is wrong
        if current == f"refs/heads/{check_ref(branch)}" and deny.lower() not in _TAKES_IT:
            raise _checked_out(branch, str(local))

    def push(self, sha: str, branch: str) -> None:
        """Send a commit to a branch of the remote, fast-forward only; SourceRefused when it does not take it."""
        name = check_ref(branch)
        with self._mirror.exclusive():
            reason = self._mirror.send(sha, f"refs/heads/{name}")
        if "checked out" in reason:
            raise _checked_out(name, self._mirror.address.safe)
        if reason:
            raise SourceRefused(
                f"branch {name} of {self._mirror.address.safe} did not take commit {sha[:10]}: {reason}",
                hint="if the branch moved, try again; if it is protected, push to a new branch (--branch-name)",
            )

    def _tree(self, sha: str) -> str:
        return self._mirror.tree_of(sha)

    def _merge(self, *, base: str, ours: str, theirs: str, what: str) -> str:
        """The three-way merge of trees. Git 2.38 takes its base from history, so a small one is made for it."""
        root = self._stand_in(base)
        sides = (self._stand_in(ours, root), self._stand_in(theirs, root))
        options = ("--write-tree", "--no-messages", "--name-only", "-z")
        answer = self._git.local("merge-tree", *options, *sides, ok=(0, 1))
        tree, *paths = [part for part in answer.text.split("\0") if part]
        if answer.code == 0:
            return tree
        names = ", ".join(sorted({display(path) for path in paths})[:20])
        raise SourceRefused(
            f"commit {what[:10]} cannot be reverted cleanly: later commits changed the same places of {names}",
            hint="revert those later commits too, or restore an earlier state with --to",
        )

    def _stand_in(self, tree: str, *parents: str) -> str:
        return self._git.write_commit(tree, parents, "base", self._identity, _EPOCH)

    def _file_mode(self, head: str, path: str) -> str:
        listed = self._git.local("ls-tree", "--full-tree", head, "--", path).text
        mode = listed.partition(" ")[0]
        if mode not in _FILES:
            raise SourceRefused(f"{display(path)} is no file of commit {head[:10]}", hint="see git ls-tree")
        return mode

    def _with_entry(self, tree: str, path: str, mode: str, sha: str) -> str:
        """The tree with another file or folder at a path; the folder itself for the empty path."""
        if not path:
            return sha
        try:
            return self._git.write_tree(tree, path.split("/"), mode, sha)
        except GitPythonCannot:
            kind = "tree" if mode == "040000" else "blob"
            return self._make_tree(tree, path.split("/"), f"{mode} {kind} {sha}")

    def _make_tree(self, tree: str, parts: Sequence[str], entry: str) -> str:
        """The same by ``git mktree``, which takes names of any bytes and SHA-256."""
        name, *rest = parts
        entries = [line for line in self._git.local("ls-tree", "-z", tree).output.split(b"\0") if line]
        same = f"\t{name}".encode(errors="surrogateescape")
        found = next((line for line in entries if line.partition(b"\t")[2] == same[1:]), b"")
        if rest:
            inner = found.split()[2].decode() if found.startswith(b"040000 ") else self._mirror.empty_tree()
            entry = f"040000 tree {self._make_tree(inner, rest, entry)}"
        kept = [line for line in entries if line is not found]
        listing = b"\0".join([*kept, entry.encode() + same]) + b"\0"
        return self._git.local("mktree", "-z", stdin=listing).text

    def _commit(self, tree: str, head: str, message: str) -> str:
        if tree == self._tree(head):
            raise NothingToDo(
                f"nothing to do: {self._mirror.branch} is already in that state", hint="see gitops-agent history"
            )
        return self._git.write_commit(tree, [head], message.strip() + "\n", self._identity)
