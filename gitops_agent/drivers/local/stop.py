"""Ends a replica: its signal to the whole group, a grace, then SIGKILL for everything that is left of its tree;
its runner goes last, by itself.

A pid is only ever signalled after it was checked against its start time, so that a reused pid is safe.
"""

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from gitops_agent.drivers.local.procfs import Identity, ProcessInfo, ProcessTable

KILL_ROUNDS = 5
KILL_WAIT_SECONDS = 2.0
MAX_POLL_SECONDS = 60.0  # more milliseconds than poll() takes could come of a long grace
NO_PIDFD_POLL_SECONDS = 0.05  # for processes without a pidfd


def open_pidfd(identity: Identity, table: ProcessTable) -> int | None:
    """A handle on exactly this process; None when it is gone, or where the kernel has no such handles."""
    try:
        handle = os.pidfd_open(identity[0])
    except OSError:
        return None
    with ExitStack() as unless_exact:
        unless_exact.callback(os.close, handle)
        if table.find(identity) is None:
            return None
        unless_exact.pop_all()
    return handle


def send(proc: ProcessInfo, number: int, table: ProcessTable) -> None:
    """Signal exactly this process, if it is there and ours to signal."""
    handle = open_pidfd(proc.identity, table)
    try:
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
        elif table.find(proc.identity) is not None:
            os.kill(proc.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or not ours to signal (a setuid tool): survivors are named in the end
    finally:
        if handle is not None:
            os.close(handle)


def send_group(leader: ProcessInfo, number: int, table: ProcessTable) -> bool:
    """Signal the group that a process leads; whether there was one. Never the group that we are in ourselves."""
    if leader.group != leader.pid or leader.group == os.getpgrp() or table.find(leader.identity) is None:
        return False
    if is_runner(leader):
        return False  # its group is not the agent's, or (on a terminal) also its own
    try:
        os.killpg(leader.group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def wait_gone(procs: Iterable[ProcessInfo], seconds: float, table: ProcessTable, reap: Callable[[], None]) -> None:
    """Wait until all of these ended, or the time is over."""
    deadline = time.monotonic() + seconds
    unreachable = []
    with selectors.PollSelector() as selector, ExitStack() as opened:
        for proc in procs:
            handle = open_pidfd(proc.identity, table)
            if handle is not None:
                opened.callback(os.close, handle)
                selector.register(handle, selectors.EVENT_READ)
            elif table.is_alive(proc.identity):
                unreachable.append(proc)
        while (selector.get_map() or unreachable) and (left := deadline - time.monotonic()) > 0:
            pause = min(left, NO_PIDFD_POLL_SECONDS if unreachable else MAX_POLL_SECONDS)
            for key, _ in selector.select(pause):
                selector.unregister(key.fd)
            unreachable = [proc for proc in unreachable if table.is_alive(proc.identity)]
    reap()


def end_tree(
    leader: ProcessInfo,
    members: Callable[[], Iterable[ProcessInfo]],
    how: tuple[int, float],
    table: ProcessTable,
    reap: Callable[[], None],
) -> tuple[ProcessInfo, ...]:
    """Stop a replica and its tree by signal and grace, then kill; what could not be ended.
    ``members`` sweeps: asked again before every kill, it sees what was forked in the meantime. What was once a
    member stays one, although its parents are gone by then. A runner collects what escapes, and ends by itself
    when nothing is left: it is not signalled, and killed only when it is the last."""
    number, grace = how
    me = os.getpid()
    remembered = {proc.pid: proc for proc in members() if proc.pid != me}
    grouped = send_group(leader, number, table)
    # A suspended process answers no signal but this one.
    send_group(leader, signal.SIGCONT, table)
    for proc in remembered.values():
        if is_runner(proc):
            send(proc, signal.SIGCONT, table)
        elif not grouped or proc.group != leader.group:
            send(proc, number, table)
            send(proc, signal.SIGCONT, table)
    wait_gone(remembered.values(), grace, table, reap)
    for _ in range(KILL_ROUNDS):
        remembered.update({proc.pid: proc for proc in members() if proc.pid != me})
        left = [proc for proc in remembered.values() if table.is_alive(proc.identity)]
        if not left:
            return ()
        for proc in [proc for proc in left if not is_runner(proc)] or left:
            send(proc, signal.SIGKILL, table)
        wait_gone(left, KILL_WAIT_SECONDS, table, reap)
    left = [proc for proc in remembered.values() if table.is_alive(proc.identity)]
    return tuple([proc for proc in left if not is_runner(proc)] or left)


def is_runner(proc: ProcessInfo) -> bool:
    """Whether it is the runner of a replica rather than part of it."""
    return proc.marks is not None and proc.marks.runner
