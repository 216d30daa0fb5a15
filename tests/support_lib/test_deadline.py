"""A block has its time; what it waits for is cut then, and other blocks are not."""

from __future__ import annotations

import os
import threading

from gitops_agent.support.deadline import deadline

WAIT = 10.0


def test_what_is_late_is_cut_and_says_so() -> None:
    cut = threading.Event()
    with deadline(0.01, cut.set) as late:
        assert cut.wait(WAIT)
    assert late.is_set()


def test_what_ends_in_time_is_not_cut_afterwards() -> None:
    early, other = threading.Event(), threading.Event()
    with deadline(0.05, early.set) as late:
        pass
    with deadline(0.06, other.set):  # ends after the first would have
        assert other.wait(WAIT)
    assert not early.is_set()
    assert not late.is_set()


def test_a_short_limit_is_kept_beside_long_ones_that_began_before() -> None:
    long, short = threading.Event(), threading.Event()
    with deadline(3600.0, long.set), deadline(0.01, short.set):
        assert short.wait(WAIT)
    assert not long.is_set()


def test_a_cut_that_fails_keeps_no_other_from_being_made() -> None:
    other = threading.Event()

    def fails() -> None:
        raise OSError("gone")

    with deadline(0.01, fails) as late, deadline(0.02, other.set):
        assert other.wait(WAIT)
    assert late.is_set()


def test_a_forked_process_has_limits_of_its_own() -> None:
    with deadline(3600.0, threading.Event().set):
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            cut = threading.Event()
            with deadline(0.01, cut.set):
                os._exit(0 if cut.wait(WAIT) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
