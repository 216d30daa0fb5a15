"""The stage of the demo: a bare repository, a clone to commit from, a daemon, and what ``status`` says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

INSTANCE = "demo"
TYPO = ("/readyz", "/raedyz")
DEADLINE_SECONDS = 40.0
POLL_SECONDS = 0.1
_BOLD, _GREEN, _DIM, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[2m", "\x1b[0m"


class StageError(Exception):
    """Something did not happen in time, or a command failed."""


def shorten(ended: Sequence[object]) -> str:
    """How many processes, in words."""
    return f"{len(ended)} agent process{'es' if len(ended) != 1 else ''}"


class Stage:
    """Real git, a real daemon, real processes; everything below one temporary folder.
    A copy of an agent is known by its ``label`` (pid, pod); ``copies_word`` is what people call several."""

    label, copies_word = "pid", "processes"

    def __init__(self, folder: Path, example: Path, out: TextIO) -> None:
        self._out = out
        self._bare, self._clone, self._state = folder / "fleet.git", folder / "clone", folder / "state"
        self._log = folder / "daemon.log"
        self._daemon: subprocess.Popen[bytes] | None = None
        # Agents get our PATH and nothing else of ours: put the Python that has our package first on it.
        self._env = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(folder),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "GITOPS_AGENT_LISTEN": "",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "You",
            "GIT_AUTHOR_EMAIL": "you@localhost",
            "GIT_COMMITTER_NAME": "You",
            "GIT_COMMITTER_EMAIL": "you@localhost",
        }
        self._git("init", "-q", "--bare", "-b", "main", str(self._bare), where=folder)
        shutil.copytree(example, self._clone)
        self._git("init", "-q", "-b", "main")
        self._git("remote", "add", "origin", str(self._bare))
        self._commit("A fleet of six agents")

    # -- output

    def title(self, number: int, title: str, about: str) -> None:
        """The heading of an act."""
        self.say(f"\n{self._paint(f'Act {number}: {title}', _BOLD)}\n{about}\n")

    def applaud(self, text: str) -> None:
        """How an act ended."""
        self.say(self._paint(f"✔ {text}", _GREEN))

    def say(self, text: str) -> None:
        """One line."""
        self._out.write(text + "\n")
        self._out.flush()

    # -- git

    def head(self) -> str:
        """The newest commit."""
        return self._git("rev-parse", "HEAD").strip()

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        """Change one file of the clone, and show the difference."""
        file = self._clone / path
        file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
        for line in self._git("diff", "-U0", "--", path).splitlines()[4:]:
            self.say(f"  {line}")

    def push(self, message: str) -> str:
        """Commit everything and push it."""
        self.say(f"$ git commit -am '{message}' && git push")
        self._commit(message)
        return self.head()

    def revert(self, count: int) -> str:
        """Take back the newest commits, newest first."""
        self._git("revert", "--no-edit", *(f"HEAD~{number}" for number in range(count)))
        self._git("push", "-q", "origin", "main")
        return self.head()

    def story(self) -> list[str]:
        """The log of the branch with the first line of every note."""
        self._await("the notes to be pushed", lambda: self._notes_pushed() or None)
        self._git("fetch", "-q", "origin", "+refs/notes/*:refs/notes/*")
        log = self._git("log", f"--notes=gitops-agent/{INSTANCE}", "--format=%x00%h %s%n%N")
        commits = [block.strip().splitlines() for block in log.split("\x00") if block.strip()]
        return [line for lines in commits for line in (lines[0], f"    {lines[1] if len(lines) > 1 else ''}")]

    def _notes_pushed(self) -> bool:
        listed = self._git("ls-remote", "origin", f"refs/notes/gitops-agent/{INSTANCE}")
        if not listed:
            return False
        self._git("fetch", "-q", "origin", "+refs/notes/*:refs/notes/*")
        noted = self._git("notes", f"--ref=gitops-agent/{INSTANCE}", "show", self.head(), check=False)
        return "Converged" in noted.split("\n", 1)[0]

    def _commit(self, message: str) -> None:
        self._git("add", "-A")
        self._git("commit", "-q", "-m", message)
        self._git("push", "-q", "origin", "main")

    def _git(self, *arguments: str, where: Path | None = None, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=where or self._clone,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise StageError(f"git {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    # -- the daemon, and its status

    def start_daemon(self) -> None:
        """``gitops-agent run`` in the background."""
        self.say("$ gitops-agent run --repo fleet.git --instance demo &")
        with self._log.open("wb") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "gitops_agent", "run", *self._where()],
                env=self._env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def daemon_log(self) -> str:
        """The end of what the daemon wrote."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        return "\n".join(text.splitlines()[-15:])

    def await_phase(self, sha: str, phase: str) -> None:
        """Wait until the newest commit is in this phase, showing the fleet meanwhile."""
        self._await(f"{sha[:10]} to be {phase}", lambda: self._is_in(sha, phase) or None)

    def fleet_words(self) -> str:
        """How the fleet is, as ``status`` says it: ``6 of 6 ready; 1 stopped``."""
        from gitops_agent.report.status_text import words_of_fleet

        return words_of_fleet(self._status())

    def findings(self) -> list[str]:
        """What the newest commit was refused for."""
        from gitops_agent.report.words import sentence

        found = self._status()["findings"]
        return [f"{f['address']}: {sentence(f['summary'])} {f['detail']}".rstrip() for f in found]

    def rollout(self) -> str:
        """How far the newest commit has got, and why no further."""
        from gitops_agent.report.words import sentence

        held = self._status()["rollout"] or {}
        waves = " and ".join(map(str, held.get("waves", [])))
        return sentence(f"rollout in waves of {waves}, held after {held.get('released')}: {held.get('failed')}")

    def copy_of(self, agent: str) -> str:
        """The pid of an agent's process."""
        found: str = self._await(f"{agent} to run", lambda: next(iter(self._copies().get(agent, [])), None))
        return found

    def kill(self, agent: str) -> str:
        """End an agent behind gitops-agent's back; what was ended."""
        old = self.copy_of(agent)
        self.say(f"$ kill -9 {old}        # {agent}")
        os.kill(int(old), signal.SIGKILL)
        return old

    def misspell(self) -> None:
        """Misspell the path of the health check, for every agent that has it."""
        for name in ("crm-bot", "support-bot"):
            self.edit(f"agents/acme/{name}.yaml", lambda text: text.replace("comand:", "command:").replace(*TYPO))

    def await_new_copy(self, agent: str, old: str) -> str:
        """The copy of an agent once it is another one and Ready."""

        def found() -> str | None:
            new = next(iter(self._copies().get(agent, [])), old)
            return new if new != old and self._is_ready(agent) else None

        copy: str = self._await(f"{agent} to run again", found)
        return copy

    def copies(self, without: str = "") -> list[str]:
        """All copies of all agents but those of one."""
        return sorted(each for agent, found in self._copies().items() if agent != without for each in found)

    def _is_ready(self, agent: str) -> bool:
        return any(row["agent"] == agent and row["ready"] for row in self._status()["agents"])

    def _is_in(self, sha: str, phase: str) -> bool:
        status = self._status()
        self._show(status)
        return bool(status["commit"] == sha and status["phase"] == phase)

    def _copies(self) -> dict[str, list[str]]:
        return {
            agent["agent"]: [
                str(copy[self.label]) for r in agent["resources"] for copy in r["live"].get("replicas", ())
            ]
            for agent in self._status()["agents"]
        }

    def _status(self) -> dict[str, Any]:
        """What ``gitops-agent status -o json`` says, without starting a process for each look."""
        from gitops_agent.errors import JournalError
        from gitops_agent.query.fleet import open_reader
        from gitops_agent.settings import Settings

        settings = Settings(instance=INSTANCE, state_dir=str(self._state))
        try:
            with open_reader(settings, {}) as reader:
                shape: dict[str, Any] = json.loads(json.dumps(reader.fleet()))
        except JournalError:
            return {"commit": None, "phase": None, "agents": [], "findings": [], "rollout": None}
        return shape

    def _where(self) -> list[str]:
        return ["--repo", str(self._bare), "--instance", INSTANCE, "--state-dir", str(self._state)]

    # -- waiting and ending

    def _await(self, what: str, look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            found = look()
            if found is not None:
                self._show(None)
                return found
            if self._daemon is not None and self._daemon.poll() is not None:
                raise StageError(f"the daemon ended with code {self._daemon.returncode}")
            time.sleep(POLL_SECONDS)
        raise StageError(f"waited {DEADLINE_SECONDS:.0f} s for {what}")

    def _show(self, status: dict[str, Any] | None) -> None:
        """On a terminal, one line that follows the fleet; None ends it."""
        if not self._out.isatty():
            return
        if status is None:
            self._out.write("\r\x1b[K")
        else:
            marks = "  ".join(f"{'●' if a['ready'] else '○'} {a['agent']}" for a in status["agents"])
            self._out.write(f"\r\x1b[K{_DIM}{status['phase'] or '…'}{_PLAIN}  {marks}"[: _width()])
        self._out.flush()

    def end(self) -> str:
        """End the daemon, then every process of the fleet; what became of them, in words."""
        self._end_daemon()
        ended = shorten(_end_marked(f"{INSTANCE}/", str(self._state)))
        return f"{ended} were ended; nothing is left running"

    def _end_daemon(self) -> None:
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(15)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._out.isatty() and "NO_COLOR" not in os.environ else text


def _width() -> int:
    return shutil.get_terminal_size().columns + 8


def _end_marked(owner: str, state: str) -> list[int]:
    """End the processes that carry our mark and belong to this state directory."""
    import psutil

    ours = []
    for process in psutil.process_iter():
        try:
            marks = process.environ()
        except psutil.Error:
            continue
        if marks.get("MANAGED_AGENT_OWNER", "").startswith(owner) and state in marks.get(
            "MANAGED_AGENT_CONFIG", ""
        ):
            ours.append(process)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in ours:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(ours, timeout=5)
        if not alive:
            break
    return [process.pid for process in ours]
