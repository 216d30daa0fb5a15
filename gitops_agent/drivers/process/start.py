"""Starts agents as child processes: own session and group, output to the log, nothing inherited."""

import subprocess
from functools import partial

from gitops_agent.drivers.local.driver import LocalDriver
from gitops_agent.drivers.local.start import Launcher, Program
from gitops_agent.drivers.process import DRIVER


class ChildLauncher(Launcher):
    """Starts a program as a child of ours that outlives us."""

    def launch(self, program: Program) -> int:
        """Fork and exec in C, which is safe while other threads run; returns when the program was entered."""
        child = subprocess.Popen(
            program.command,
            cwd=program.workdir,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=program.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # The registry waits for it, and agents outlive us: Popen must neither wait nor warn that it still runs.
        child.returncode = 0
        # First of all: should anything fail from here on, it is still ours to reap, and its marks tell the rest.
        self.context.registry.adopt_child(child.pid, program.agent, program.replica)
        return child.pid


build = partial(LocalDriver, DRIVER, ChildLauncher)
"""The process driver of a Context, perhaps with Options."""
