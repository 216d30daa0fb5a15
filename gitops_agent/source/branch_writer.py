"""New commits on top of the branch, made from trees alone: reverts, restores, edits. Nothing is checked out."""

import os
from collections.abc import Mapping, Sequence

from gitops_agent.errors import NothingToDo, SourceRefused
from gitops_agent.settings import Settings
from gitops_agent.source.address import check_ref, display
from gitops_agent.source.git_environment import identity
from gitops_agent.source.git_errors import LocalFailure
from gitops_agent.source.git_text import NewCommit, file_change, named_reverts, tree_change
from gitops_agent.source.mirror import EMPTY_TREE, OUTGOING, Mirror

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


class BranchWriter:
    """New commits on top of the branch, made without a work tree; only ``push`` reaches the remote."""

    def __init__(self, mirror: Mirror, settings: Settings) -> None:
        self._mirror = mirror
        self._identity = identity(settings)

    def revert(self, shas: Sequence[str], message: str) -> str:
        """One commit on the head that undoes these, in the order given (newest first).

        Merges are undone by their first parent. SourceRefused names the paths that do not revert cleanly, and
        says so when nothing is left to undo.
        """
        head = self._mirror.revision(self._mirror.branch).sha
        commits = [self._mirror.revision(sha) for sha in shas]
        tree = self._mirror.tree_of(head)
        lines = []
        for commit in commits:
            if not self._mirror.is_ancestor(commit.sha, head):
                raise SourceRefused(
                    f"commit {commit.short} is not part of {self._mirror.branch}",
                    hint="give a commit of the branch",
                )
            before = self._mirror.tree_of(commit.parents[0]) if commit.parents else EMPTY_TREE[len(head)]
            tree = self._merge(base=self._mirror.tree_of(commit.sha), ours=tree, theirs=before, what=commit.sha)
            merged = f", reversing\nchanges made to {commit.parents[0]}" if len(commit.parents) > 1 else ""
            if commit.sha not in named_reverts(message):
                lines.append(f"This reverts commit {commit.sha}{merged}.")
        text = "\n\n".join(part for part in (message.strip(), "\n".join(lines)) if part)
        return self._commit(head, text, tree_change("", tree))

    def restore(self, to: str, message: str) -> str:
        """One commit on the head whose tree below the path is exactly that of ``to``; the rest stays."""
        head = self._mirror.revision(self._mirror.branch).sha
        target = self._mirror.revision(to)
        if not target.tree:
            raise SourceRefused(
                f"commit {target.short} has no folder {self._mirror.path}", hint="choose a commit that has it"
            )
        text = f"{message.strip()}\n\nRestores the state of commit {target.sha}."
        return self._commit(head, text, tree_change(self._mirror.path, target.tree))

    def edit(self, files: Mapping[str, bytes], message: str) -> str:
        """One commit on the head in which some files (by their path below the path) have another content."""
        head = self._mirror.revision(self._mirror.branch).sha
        paths = {f"{self._mirror.path}/{name}".lstrip("/"): content for name, content in files.items()}
        changes = [file_change(path, self._file_mode(head, path), content) for path, content in paths.items()]
        return self._commit(head, message, *changes)

    def tip(self, branch: str) -> str | None:
        """The commit a branch of the remote is at; None when there is no such branch."""
        ref = f"refs/heads/{check_ref(branch)}"
        return self._mirror.remote_refs(ref).get(ref)

    def check_push(self, branch: str) -> None:
        """SourceRefused when the remote would surely not take a push, or has a hook to decide that.

        Git runs hooks of a repository on this machine as us, so we run none; nor do we move the followed branch
        past a hook that may refuse it.
        """
        local = self._mirror.address.local
        if local is None:
            return
        work = (local / ".git").is_dir()
        hooks = (local / ".git" if work else local) / "hooks"
        deciding = (hooks / name for name in ("pre-receive", "update"))
        guard = next((hook for hook in deciding if os.access(hook, os.X_OK)), None)
        if guard is not None and branch == self._mirror.branch:
            raise SourceRefused(
                f"the hook {guard} decides what {branch} takes, and gitops-agent runs no hooks of a repository",
                hint="add --branch-name undo and merge that branch as usual; or follow the repository over https "
                "or ssh",
            )
        if not work:
            return
        there = self._mirror.git.at(local / ".git")
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
        reason = self._mirror.send(sha, f"refs/heads/{name}")
        if "checked out" in reason:
            raise _checked_out(name, self._mirror.address.target)
        if reason:
            raise SourceRefused(
                f"branch {name} of {self._mirror.address.target} did not take commit {sha[:10]}: {reason}",
                hint="if the branch moved, try again; if it is protected, push to a new branch (--branch-name)",
            )

    def _merge(self, *, base: str, ours: str, theirs: str, what: str) -> str:
        """The three-way merge of trees. Git 2.38 takes its base from history, so a small one is made for it."""
        family = (("", base), (":1", ours), (":1", theirs))
        _, *sides = self._write(*(NewCommit(up, "base", [tree_change("", tree)], _EPOCH) for up, tree in family))
        options = ("--write-tree", "--no-messages", "--name-only", "-z")
        answer = self._mirror.git.local("merge-tree", *options, *sides, ok=(0, 1))
        tree, *paths = [part for part in answer.text.split("\0") if part]
        if answer.code == 0:
            return tree
        names = ", ".join(sorted({display(path) for path in paths})[:20])
        raise SourceRefused(
            f"commit {what[:10]} cannot be reverted cleanly: later commits changed the same places of {names}",
            hint="revert those later commits too, or restore an earlier state with --to",
        )

    def _file_mode(self, head: str, path: str) -> str:
        listed = self._mirror.git.local("ls-tree", "--full-tree", head, "--", path).text
        mode = listed.partition(" ")[0]
        if mode not in _FILES:
            raise SourceRefused(f"{display(path)} is no file of commit {head[:10]}", hint="see git ls-tree")
        return mode

    def _commit(self, head: str, message: str, *changes: bytes) -> str:
        (sha,) = self._write(NewCommit(head, message.strip() + "\n", changes))
        if self._mirror.tree_of(sha) == self._mirror.tree_of(head):
            raise NothingToDo(
                f"nothing to do: {self._mirror.branch} is already in that state", hint="see gitops-agent history"
            )
        return sha

    def _write(self, *commits: NewCommit) -> list[str]:
        with self._mirror.exclusive():
            return self._mirror.git.write_commits(OUTGOING, self._identity, *commits)
