"""A fleet as its users have it: a bare repository, a clone, the command line in a process of its own.

    fleet = Fleet(tmp_path)
    fleet.commit({"a.yaml": fleet.agent("a")})
    fleet.once()                    # the JSON answer; the exit code must be 0
    fleet.kill("a")
    with fleet.running():           # gitops-agent run in the background
        until(lambda: fleet.pid("a") != old)
    fleet.end()                     # ends every process that carries our mark, by pid

Every fleet has an instance and a tenant of its own, because an agent of the same name under another instance would
rightly be in the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jsonschema

from tests.report.values import SHAPES, schema
from tests.support.launcher import Launched, Launcher, Step, launcher
from tests.support.repositories import make_pair

PATIENCE = 60.0
"""How long anything may take, on a busy machine, before a test says that it never happened."""

CALL = 90.0
"""How long one call may take."""

GONE = ("ProcessGone", "Zombie")
"""Why a killed process is missing: which of the two depends on how soon pid 1 of this machine collects it."""

DEFAULT_POLICY = "default-policy.yaml"
"""Where the policy is that a fleet has when its test gives it none."""

RUNNER = "MANAGED_AGENT_RUNNER"
"""What marks the process that gitops-agent puts above each agent."""

T = TypeVar("T")
Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What one call of the command line ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.out)
        return value


def until(condition: Callable[[], T], what: str = "the condition", seconds: float = PATIENCE) -> T:
    """Poll until a condition holds and give its value; fail loudly when it never does."""
    asked = time.monotonic()
    deadline = asked + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} never came true"
        # To ask may cost more than what is waited for: a third of a core at most.
        time.sleep(max(0.02, 2 * (time.monotonic() - asked)))
        asked = time.monotonic()
    return found


def alive(pid: int) -> bool:
    """Whether a process runs (one that ended and was not collected does not)."""
    return state(pid) not in "ZX"


def state(pid: int) -> str:
    """How the kernel calls what a process does, in one letter; ``X`` when it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return stat.rpartition(")")[2].split()[0]


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; nothing when it is not ours to read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in raw.decode("utf-8", "replace").split("\0") if item)
    return {name: value for name, _, value in pairs}


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def signal_pid(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_trees(marked: Mapping[int, Mapping[str, str]]) -> bool:
    """Kill these processes and all below them; whether there were none. A runner ends by itself, after all that it
    collects; killed earlier, it would let go of those whose marks can no longer be seen."""
    below = {pid: _descendants(pid) for pid in marked}
    for pid, marks in marked.items():
        for each in below[pid]:
            signal_pid(each)
        if RUNNER not in marks or not below[pid]:
            signal_pid(pid)
    return not marked


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [each for child in children for each in (*_descendants(child), child)]


@cache
def _validator(shape: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(shape))


class Fleet:
    """One repository, one instance, one state directory, below one folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.instance = f"e2e-{uuid.uuid4().hex[:10]}"
        self.tenant = f"t{uuid.uuid4().hex[:8]}"
        self.state = folder / "state"
        self.bare, self.work = make_pair(folder)
        self.repo = str(self.bare)
        self.branch = "main"
        home = folder / "home"
        home.mkdir(parents=True)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "GITOPS_AGENT_LEASE_DIR": str(folder / "leases"),
            # Many fleets at once on one machine; a test that wants to be answered says where.
            "GITOPS_AGENT_LISTEN": "",
            # So that a checkout can be tested that is not the installed one.
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
            **environment,
        }

    # ----- what people do in Git

    def agent(self, name: str, *command: str, **spec: Any) -> str:
        """An agent document; ``runtime`` in ``spec`` is merged with a quick default."""
        runtime = {
            "driver": "process",
            "command": list(command) or ["sleep", "600"],
            "minUptime": "50ms",
            "stop": {"grace": "2s"},
            **spec.pop("runtime", {}),
        }
        document = {
            "apiVersion": "gitops-agent.dev/v1",
            "kind": "Agent",
            "metadata": {"name": name, "tenant": self.tenant, **spec.pop("metadata", {})},
            "spec": {**spec, "runtime": runtime},
        }
        return json.dumps(document, indent=2) + "\n"

    def agents(self, *names: str, **spec: Any) -> dict[str, str]:
        """Documents for several agents of one kind, by file name."""
        return {f"{name}.yaml": self.agent(name, **spec) for name in names}

    def policy(self, **spec: Any) -> str:
        """A Policy; waves follow each other at once where the bake is not what a test is about."""
        spec = {**spec, "rollout": {"bake": "0s", **spec.get("rollout", {})}}
        return json.dumps({"apiVersion": "gitops-agent.dev/v1", "kind": "Policy", "spec": spec}, indent=2) + "\n"

    def commit(self, files: Mapping[str, str | None], message: str = "", *, push: bool = True) -> str:
        """Write files (None removes one), commit, push; the sha."""
        for name, text in files.items():
            path = self.work / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._write_default_policy()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message or f"Change {', '.join(files)}")
        if push:
            self.push()
        return self.head()

    def _write_default_policy(self) -> None:
        """A policy of ours in ``DEFAULT_POLICY``, for as long as the test has none of its own."""
        own, ours = '"kind": "Policy"', self.work / DEFAULT_POLICY
        documents = (path for path in self.work.rglob("*.yaml") if path != ours)
        if any(own in path.read_text(encoding="utf-8", errors="replace") for path in documents):
            ours.unlink(missing_ok=True)
        elif not ours.exists():
            ours.write_text(self.policy(), encoding="utf-8")

    def push(self, *options: str) -> None:
        self.git("push", "-q", *options, "origin", f"HEAD:{self.branch}")

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def revert(self, *arguments: str) -> str:
        """Plain ``git revert`` and push; the new head."""
        self.git("revert", "--no-edit", *arguments)
        self.push()
        return self.head()

    def note(self, sha: str) -> str:
        """Our note on a commit, as a colleague sees it after fetching; nothing when there is none."""
        ref = f"refs/notes/gitops-agent/{self.instance}"
        self.git("fetch", "-q", "origin", f"+{ref}:{ref}", check=False)
        return self.git("notes", f"--ref={ref}", "show", sha, check=False)

    def git(self, *arguments: str, where: Path | None = None, check: bool = True) -> str:
        person = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
        }
        plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *arguments],
            cwd=where or self.work,
            env={**self.environment, **person, **plain},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, f"git {arguments}: {done.stderr}"
        return done.stdout.strip()

    # ----- the command line

    def call(self, verb: str, *arguments: str, **environment: str) -> Answer:
        """One call in a process of its own, with an environment that holds nothing but what we say."""
        return self.call_after((), verb, *arguments, **environment)

    def call_after(self, first: Sequence[Step], verb: str, *arguments: str, **environment: str) -> Answer:
        """One call that does something else first, in its own process."""
        words, world = self.command(verb, *arguments)[3:], {**self.environment, **environment}
        return Answer(*self._launcher.call(words, self.work, world, CALL, first))

    @property
    def _launcher(self) -> Launcher:
        return launcher(self.environment.get("PYTHONPATH", ""))

    def ask(self, verb: str, *arguments: str, code: int = 0, **environment: str) -> Json:
        """The JSON answer of a verb that must end with this exit code; its documented shape is checked."""
        answer = self.call(verb, *arguments, "-o", "json", **environment)
        assert answer.code == code, f"{verb}: exit {answer.code}, expected {code}\n{answer.out}\n{answer.err}"
        if (shape := "status" if verb == "once" else verb) in SHAPES:
            _validator(shape).validate(answer.json)
        return answer.json

    def once(self, *arguments: str, code: int = 0, **environment: str) -> Json:
        return self.ask("once", *arguments, code=code, **environment)

    def on_terminal(self, verb: str, *arguments: str, **environment: str) -> str:
        """What a person sees who types this at a terminal: stdout and stderr as one."""
        master, slave = pty.openpty()
        terminal = Path(os.ttyname(slave))
        words, world = self.command(verb, *arguments)[3:], {**self.environment, **environment}
        with ThreadPoolExecutor(1) as pool:
            shown = pool.submit(lambda: b"".join(_read_until_hung_up(master)))
            try:
                self._launcher.start(words, self.work, world, (terminal, terminal)).wait(PATIENCE)
            finally:
                os.close(slave)  # not earlier: a terminal that nobody has open is hung up
        return shown.result().decode().replace("\r\n", "\n")

    @contextlib.contextmanager
    def running(self, *arguments: str, first: Sequence[Step] = (), **environment: str) -> Iterator[Launched]:
        """``run`` in the background, polling once an hour: what it notices, it notices by event."""
        slow = {"GITOPS_AGENT_POLL_INTERVAL": "1h", "GITOPS_AGENT_RESYNC_INTERVAL": "1h"}
        words, world = self.command("run", *arguments)[3:], {**self.environment, **slow, **environment}
        log = self.state.parent / "daemon.log"
        log.touch()
        daemon = self._launcher.start(words, self.work, world, (log, log), first)
        try:
            yield daemon
        finally:
            if daemon.poll() is None:
                daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def daemon_log(self) -> str:
        return (self.state.parent / "daemon.log").read_text(encoding="utf-8", errors="replace")

    def command(self, verb: str, *arguments: str) -> list[str]:
        """The words of one call."""
        where = ["--instance", self.instance, "--state-dir", str(self.state)]
        if verb not in ("init", "validate", "schema", "demo"):
            where += ["--repo", self.repo, "--branch", self.branch]
        # Ours first: what a test gives wins.
        return [sys.executable, "-m", "gitops_agent", verb, *where, *arguments]

    # ----- what is there

    def status(self) -> Json:
        """What ``status -o json`` says, read without a process of its own: for polling."""
        from gitops_agent.errors import JournalError
        from gitops_agent.query.fleet import open_reader
        from gitops_agent.settings import Settings

        url = self.environment.get("GITOPS_AGENT_JOURNAL_URL", "")
        settings = Settings(instance=self.instance, state_dir=str(self.state), journal_url=url)
        try:
            with open_reader(settings, {}) as reader:
                shape: Json = json.loads(json.dumps(reader.fleet()))
        except JournalError:
            return {"commit": None, "enforced": None, "phase": None, "agents": [], "findings": []}
        return shape

    def await_phase(self, sha: str, phase: str) -> Json:
        """Wait until the newest commit is this one, in this phase."""

        def reached() -> Json | None:
            status = self.status()
            return status if (status["commit"], status["phase"]) == (sha, phase) else None

        return until(reached, f"{sha[:10]} {phase}") or {}

    def marked(self, name: str | None = None, *, runners: bool = False) -> dict[int, dict[str, str]]:
        """Every process that carries the mark of this instance, by pid: the kernel's word, not ours.
        ``runners``: also what gitops-agent puts above each agent."""
        wanted = f"{self.instance}/" if name is None else f"{self.instance}/{self.tenant}/{name}"
        found = {pid: environment_of(pid) for pid in all_pids()}
        return {
            pid: marks
            for pid, marks in found.items()
            if f"{marks.get('MANAGED_AGENT_OWNER', '')}".startswith(wanted)
            and (name is None or marks["MANAGED_AGENT_OWNER"] == wanted)
            and (runners or RUNNER not in marks)
            and alive(pid)
        }

    def pids(self, name: str | None = None) -> list[int]:
        return sorted(self.marked(name))

    def pid(self, name: str) -> int:
        """The one process of an agent."""
        (pid,) = self.pids(name)
        return pid

    def runners(self, name: str) -> list[int]:
        """What gitops-agent put above the agent: one for every copy of it."""
        return [pid for pid, marks in self.marked(name, runners=True).items() if RUNNER in marks]

    def main(self, name: str) -> int:
        """The one process that is the agent, as its runner says: also where it wrote over its marks."""
        (runner,) = self.runners(name)
        return int(Path(f"/proc/{runner}/comm").read_text().strip().split(":")[1])

    def kill(self, name: str) -> int:
        """``kill -9`` of an agent's first process; its pid, once it is gone."""
        pid = self.pids(name)[0]
        signal_pid(pid)
        until(lambda: not alive(pid), f"{pid} gone")
        return pid

    def key(self, name: str) -> str:
        return f"{self.tenant}/{name}"

    def row(self, answer: Json, name: str) -> Json:
        """One agent of a status answer."""
        found: Json = next(agent for agent in answer["agents"] if agent["agent"] == self.key(name))
        return found

    def condition(self, answer: Json, name: str, kind: str = "Ready") -> Json | None:
        rows = self.row(answer, name)["conditions"]
        return next((condition for condition in rows if condition["type"] == kind), None)

    def folder(self, name: str) -> Path:
        """Where an agent's bundle, logs and heartbeat are."""
        return self.state / "agents" / self.tenant / name

    def end(self) -> None:
        """End what this fleet started, by pid, until nothing marked is left."""
        until(lambda: kill_trees(self.marked(runners=True)), "the end of every agent")


def _read_until_hung_up(handle: int) -> Iterator[bytes]:
    try:
        while data := os.read(handle, 65536):
            yield data
    except OSError:
        pass  # the other end was closed: that is how terminals say it
    finally:
        os.close(handle)


def reasons(plan: Json) -> dict[str, str]:
    """Resource to reason, of the actions of a plan."""
    return {action["resource"].partition("/")[2]: action["reason"] for action in plan["actions"]}
