"""The parent of one agent: a program of its own that outlives us, carries the marks and collects orphans.

    python -I -S runner.py REPORT GROUP COMMAND...

It is a subreaper: whatever an agent leaves behind (a daemon, a worker that lost its master) becomes its child and
stays below it, whatever its environment or title says. Its own name, which the process table shows, says which
process is the agent (``run:4711``) and, while something is left of it, how that ended (``run:4711:0``). When the
agent is suspended or resumed, which the kernel tells its parent alone, it touches the agent's folder, which
gitops-agent watches. When nothing is left it ends as the agent did. It decides nothing: to end what is left is
gitops-agent's work.

One of these runs beside each agent, so it imports only what is built into Python (3 MB of memory of its own, 10 ms
to start; ``os``, ``signal`` and ``ctypes`` would cost a third more memory and twice the time).

``REPORT``: a descriptor on which it says the pid of the agent, or minus the errno when it did not start; ``-`` for
none. ``GROUP``: the ``cgroup.procs`` that it joins first, ``-`` for none. The agent leads a session of its own,
unless it is on a terminal: that has one session.
"""

import _signal  # type: ignore[import-not-found]
import posix

RUNNER = "MANAGED_AGENT_RUNNER"
"""The mark of a runner, which no agent gets."""
PASSED = "MANAGED_AGENT_ENV_"
"""Before the name of each variable of the agent but its marks: ``LD_PRELOAD`` is not for its runner."""
HEARTBEAT = "MANAGED_AGENT_HEARTBEAT"
"""Where the agent writes its heartbeats: in its folder."""
NONE = "-"
NAME = "run"

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells have it
_ENOENT = 2
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_FROM_KERNEL = 128
_FORWARDED = frozenset(
    {_signal.SIGTERM, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2}
)


def agent_environment(block: bytes) -> dict[bytes, bytes]:
    """The environment of the agent, from that of its runner."""
    mark, prefix = RUNNER.encode(), PASSED.encode()
    given = [line.partition(b"=") for line in block.split(b"\0") if b"=" in line]
    own = {name: value for name, _, value in given if name != mark and not name.startswith(prefix)}
    return own | {name[len(prefix) :]: value for name, _, value in given if name.startswith(prefix)}


def run(report: str, group: str, command: list[str]) -> None:
    """Start the agent, stay until nothing is left of it, end as it did."""
    # Not posix.environ, to which Python adds a locale of its own.
    environment = agent_environment(_read("/proc/self/environ"))
    signals = _signal.valid_signals()
    _signal.pthread_sigmask(_signal.SIG_BLOCK, signals)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if group != NONE:
        _write(group, b"0")
    agent = _start(command, environment, report)
    _write("/proc/self/comm", f"{NAME}:{agent}".encode())
    _tell(report, agent)
    folder = environment.get(HEARTBEAT.encode(), b"").rpartition(b"/")[0]
    ended: int | None = None
    while True:
        caught = _signal.sigwaitinfo(signals)
        if caught.si_signo == _signal.SIGCHLD:
            ended = _collect(agent, ended, folder)
        elif ended is None and caught.si_signo in _FORWARDED and not _was_for_all(caught.si_signo, caught.si_code):
            _send(agent, caught.si_signo)


def _start(command: list[str], environment: dict[bytes, bytes], report: str) -> int:
    if report != NONE:
        posix.set_inheritable(int(report), False)
    posix.putenv(b"PATH", environment.get(b"PATH", b""))  # where posix_spawnp searches
    try:
        return posix.posix_spawnp(
            command[0],
            command,
            environment,
            setsid=not posix.isatty(0),
            setsigmask=(),
            setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ),  # which Python ignores
        )
    except OSError as problem:
        _tell(report, -(problem.errno or 1))
        posix.write(2, f"gitops-agent: {command[0]}: {problem.strerror}\n".encode())
        posix._exit(_NOT_FOUND if problem.errno == _ENOENT else _NOT_EXECUTABLE)


def _collect(agent: int, ended: int | None, folder: bytes) -> int | None:
    """Collect every child that ended; how the agent did, or None while it runs. Does not return after the last."""
    known = ended
    try:
        while True:
            pid, status = posix.waitpid(-1, posix.WNOHANG | posix.WUNTRACED | posix.WCONTINUED)
            if pid == 0:
                break
            if pid != agent:
                continue
            if posix.WIFSTOPPED(status) or posix.WIFCONTINUED(status):
                _touch(folder)
            else:
                ended = posix.waitstatus_to_exitcode(status)
    except ChildProcessError:
        _end_as(ended or 0)
    if ended is not None and known is None:
        _write("/proc/self/comm", f"{NAME}:{agent}:{ended}".encode())
    return ended


def _end_as(status: int) -> None:
    if status < 0:
        _prctl(_PR_SET_DUMPABLE, 0)  # a core of us would tell nothing of the agent
        if -status != _signal.SIGKILL:
            _signal.signal(-status, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        posix.kill(posix.getpid(), -status)
    posix._exit(status if status >= 0 else 128 - status)


def _was_for_all(number: int, code: int) -> bool:
    """Whether a key on the terminal sent it, and so to the agent as well. A hangup is for us alone."""
    return code == _FROM_KERNEL and number != _signal.SIGHUP


def _send(pid: int, number: int) -> None:
    try:
        posix.kill(pid, number)
    except OSError:
        pass  # another user's by now (setuid)


def _tell(report: str, number: int) -> None:
    if report == NONE:
        return
    try:
        posix.write(int(report), str(number).encode())
    except OSError:
        pass  # gitops-agent was killed meanwhile: it will find us
    posix.close(int(report))


def _read(path: str) -> bytes:
    handle = posix.open(path, posix.O_RDONLY)
    data = b""
    while part := posix.read(handle, 65536):
        data += part
    posix.close(handle)
    return data


def _write(path: str, data: bytes) -> None:
    try:
        handle = posix.open(path, posix.O_WRONLY)
        try:
            posix.write(handle, data)
        finally:
            posix.close(handle)
    except OSError:
        pass  # a group that is gone again, a /proc that is read-only: the agent runs all the same


def _touch(folder: bytes) -> None:
    try:
        posix.utime(folder, follow_symlinks=False)
    except OSError:
        pass  # removed: the next observation finds the agent as it is


def _prctl(option: int, value: int) -> None:
    try:
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_function(prctl, (option, value, 0, 0, 0))
    except (ImportError, AttributeError, OSError):
        pass  # a Python without it: orphans are then known by their environment alone


if __name__ == "__main__":
    import sys

    run(sys.argv[1], sys.argv[2], sys.argv[3:])
