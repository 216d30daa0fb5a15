"""``gitops-agent demo``: six acts on real processes or in a cluster, with real git and a real daemon."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from gitops_agent_demo.cluster import ClusterStage, cluster_obstacles
from gitops_agent_demo.obstacles import obstacles
from gitops_agent_demo.stage import Stage, StageError

SUPPORT = "acme/support-bot"
PROMPT = "agents/acme/prompts/support.md"


@dataclass(frozen=True, slots=True)
class Act:
    """One act: its title, what it is about, and what then happens."""

    title: str
    about: str
    play: Callable[[Stage], str]


def converge(stage: Stage) -> str:
    """Act 1: the fleet comes up from Git."""
    stage.start_daemon()
    stage.await_phase(stage.head(), "Converged")
    return f"{stage.fleet_words()}. One is stopped because Git says so."


def heal(stage: Stage) -> str:
    """Act 2: a process is killed, and comes back without a commit."""
    old = stage.kill(SUPPORT)
    new = stage.await_new_copy(SUPPORT, old)
    return f"Noticed by event, repaired: {SUPPORT} runs again as {stage.label} {new}."


def change(stage: Stage) -> str:
    """Act 3: a commit changes one agent, and only that one."""
    others = stage.copies(without=SUPPORT)
    old = stage.copy_of(SUPPORT)
    stage.edit(PROMPT, lambda text: text + "Always end with: Have a nice day.\n")
    sha = stage.push("Support: be nicer")
    stage.await_phase(sha, "Converged")
    new = stage.await_new_copy(SUPPORT, old)
    same = "untouched" if stage.copies(without=SUPPORT) == others else "CHANGED"
    return f"{SUPPORT} restarted with its new instructions as {new}; all other {stage.copies_word} are {same}."


def refuse(stage: Stage) -> str:
    """Act 4: a commit with a typo is refused whole; everything goes on running."""
    before = stage.copies()
    stage.edit("agents/acme/crm-bot.yaml", lambda text: text.replace("command:", "comand:"))
    sha = stage.push("CRM: a small tweak, what could go wrong")
    stage.await_phase(sha, "Invalid")
    for line in stage.findings():
        stage.say(f"  {line}")
    same = "is still running" if stage.copies() == before else "WAS TOUCHED"
    return f"Refused, with the place and the way out. The fleet {same} on the last good commit."


def typo(stage: Stage) -> str:
    """Act 5: a typo stops at the first agent it reaches."""
    before = stage.copies()
    stage.misspell()
    sha = stage.push("The new framework, everywhere at once")
    stage.await_phase(sha, "Degraded")
    stage.say("$ gitops-agent status")
    stage.say(f"  {stage.rollout()}")
    kept = set(before) <= set(stage.copies())
    same = f"all {stage.copies_word} of before still run" if kept else f"{stage.copies_word.upper()} WERE ENDED"
    return f"Held at the canary: {SUPPORT} and all others keep what they had, and {same}."


def revert(stage: Stage) -> str:
    """Act 6: three git reverts take the fleet back to where it started."""
    stage.say("$ git revert --no-edit HEAD HEAD~1 HEAD~2 && git push")
    sha = stage.revert(3)
    stage.await_phase(sha, "Converged")
    stage.say("")
    stage.say("$ git log --notes=gitops-agent/demo --format='%h %s%n    %N'")
    for line in stage.story():
        stage.say(f"  {line}")
    return "Every commit carries its own report, and the way back was Git's."


ACTS = (
    Act(
        "A fleet comes up from Git",
        "A bare repository with 3 tenants and 6 agents; gitops-agent follows it.",
        converge,
    ),
    Act("An agent is killed", "No commit changes, so this is drift: live moved, Git did not.", heal),
    Act("A commit changes one agent", "Its instructions get one more sentence; git push is all it takes.", change),
    Act("A bad commit arrives", "A typo in one document of one tenant.", refuse),
    Act("A typo", "Valid, reviewed, and wrong for every agent it reaches.", typo),
    Act("git revert", "The typo, the bad commit and the change before them are reverted, with plain git.", revert),
)


def play(*, keep: bool, kubeconfig: Path | None = None) -> int:
    """Play all acts, then leave nothing running. The exit code. ``kubeconfig``: in this cluster."""
    with _alone():
        return _play(keep=keep, kubeconfig=kubeconfig)


@contextmanager
def _alone() -> Iterator[None]:
    """One demo at a time on a machine: two would own the same agents and listen on the same ports."""
    path = Path(tempfile.gettempdir()) / f"gitops-agent-demo-{os.getuid()}.lock"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stdout.write("Another demo is running here; this one begins when it has ended.\n")
            sys.stdout.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _play(*, keep: bool, kubeconfig: Path | None) -> int:
    name = "desired-repo" if kubeconfig is None else "desired-repo-kubernetes"
    with as_file(files("gitops_agent_demo").joinpath(name)) as example:
        if found := obstacles(example) if kubeconfig is None else cluster_obstacles(kubeconfig):
            sys.stderr.write("".join(f"error: {each}\n" for each in found))
            return 2
        folder = Path(tempfile.mkdtemp(prefix="gitops-agent-demo-"))
        place = (folder, example, sys.stdout)
        stage = Stage(*place) if kubeconfig is None else ClusterStage(*place, kubeconfig)
    try:
        for number, act in enumerate(ACTS, start=1):
            stage.title(number, act.title, act.about)
            stage.applaud(act.play(stage))
    except StageError as problem:
        sys.stderr.write(f"\nthe demo stopped: {problem}\nlast lines of the daemon:\n{stage.daemon_log()}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return 130
    else:
        return 0
    finally:
        stage.say(f"\nCurtain: the daemon and {stage.end()}.")
        if keep:
            stage.say(f"The repository and the state directory are in {folder}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)
