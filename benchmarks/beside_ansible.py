"""Side by side with ansible-pull: the same 100 local units from the same repository, brought up, then left alone.

A unit is a file with its settings and a running process (``sleep``). For us each is an agent. For Ansible each is
a ``template`` task for the file, and one shell loop starts whichever of the processes do not run: the cheapest
playbook that ends in the same state, facts not gathered, pipelining on. Its no-change run is a full one, because
``--only-if-changed`` looks at Git alone and would not notice a dead process; the time of that is in the note.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks import Row
from benchmarks.fleet import commit, git
from benchmarks.timing import moment, say, timed

UNITS = 100
MARK = "BENCH_UNIT"

_AGENT = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {{name: unit-{number:03}, tenant: bench}}
spec:
  runtime:
    driver: process
    command: [sleep, "3600"]
    env: [{{name: {mark}, value: {owner}}}]
  instructions: You are unit {number}.
"""

_PLAYBOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: the file of the unit
      ansible.builtin.template: {{src: unit.j2, dest: "{units}/{{{{ item }}}}.conf", mode: "0600"}}
      loop: "{{{{ range(0, {count}) | list }}}}"
    - name: the processes of the units
      ansible.builtin.shell: |
        for unit in {units}/*.conf; do
          if ! kill -0 "$(cat "$unit.pid" 2>/dev/null)" 2>/dev/null; then
            {mark}={owner} setsid sleep 3600 </dev/null >/dev/null 2>&1 &
            echo $! >"$unit.pid"
            echo started
          fi
        done
      register: starting
      changed_when: "'started' in starting.stdout"
"""
_TEMPLATE = "instructions: You are unit {{ item }}.\n"


def run(count: int = UNITS) -> list[Row]:
    """Both tools, first run and no-change run."""
    owner = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder, _ended(owner):
        place = Path(folder)
        _repository(place, count, owner)
        ours = _both("gitops-agent", lambda: _gitops_agent(place), count, owner)
    with tempfile.TemporaryDirectory() as folder, _ended(owner):
        place = Path(folder)
        _repository(place, count, owner)
        theirs = _both("ansible-pull", lambda: _ansible_pull(place), count, owner)
        glance = _told("ansible-pull --only-if-changed", lambda: _ansible_pull(place, "--only-if-changed"))
    names = (f"first convergence of {count} units", f"no-change run over {count} units")
    glances = ("", f"; --only-if-changed, which looks at no unit: {moment(glance)}")
    return [
        Row(f"{name}: ansible-pull / ours", his / mine, note=f"{moment(mine)} against {moment(his)}{more}")
        for name, mine, his, more in zip(names, ours, theirs, glances, strict=True)
    ]


def _both(name: str, work: Callable[[], None], count: int, owner: str) -> tuple[float, float]:
    first = _told(f"{name}, first run", work)
    pids = {process.pid for process in _units(owner)}
    if len(pids) != count:
        raise AssertionError(f"{name}: {len(pids)} of {count} units run")
    again = _told(f"{name}, no-change run", work)
    if {process.pid for process in _units(owner)} != pids:
        raise AssertionError(f"{name}: the second run changed something")
    return first, again


def _told(what: str, work: Callable[[], None]) -> float:
    say(f"{what} …")
    taken = timed(work)
    say(f"{what}: {moment(taken)}")
    return taken


def _repository(place: Path, count: int, owner: str) -> None:
    """One bare repository with both: agents below ``fleet/``, the playbook at the top."""
    repo = place / "repo.git"
    repo.mkdir()
    (place / "units").mkdir()
    git(repo, "init", "--quiet", "--bare", "--initial-branch", "main", ".")
    words = {"units": place / "units", "count": count, "mark": MARK, "owner": owner}
    agents = {
        f"fleet/agents/bench/unit-{number:03}.yaml": _AGENT.format(number=number, **words)
        for number in range(count)
    }
    commit(repo, {**agents, "local.yml": _PLAYBOOK.format(**words), "unit.j2": _TEMPLATE})


def _gitops_agent(place: Path) -> None:
    where = ["--repo", str(place / "repo.git"), "--path", "fleet", "--state-dir", str(place / "state")]
    _quietly([sys.executable, "-m", "gitops_agent", "once", "--no-push", "--instance", "bench", *where], {})


def _ansible_pull(place: Path, *options: str) -> None:
    program = shutil.which(
        "ansible-pull", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if program is None:
        raise FileNotFoundError("ansible-pull is not installed: pip install '.[bench]', as `make bench` does")
    where = ["-U", f"file://{place / 'repo.git'}", "-C", "main", "-d", str(place / "checkout"), "-i", "localhost,"]
    ansible = {
        # Without it Ansible looks for a Python by itself and may find one that does not work.
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_HOME": str(place / "ansible"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PATH": os.pathsep.join([str(Path(program).parent), os.environ["PATH"]]),
    }
    _quietly([program, *options, *where, "local.yml"], ansible)


def _quietly(command: list[str], more: Mapping[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GITOPS_AGENT_")}
    done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(
            f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )


def _units(owner: str) -> Iterator[psutil.Process]:
    """The processes of the units, found by their mark."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == owner and process.name() == "sleep":
                yield process
        except psutil.Error:
            continue


@contextmanager
def _ended(owner: str) -> Iterator[None]:
    """End every unit on the way out, by its pid."""
    try:
        yield
    finally:
        for process in list(_units(owner)):
            process.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    print(*run(), sep="\n")
