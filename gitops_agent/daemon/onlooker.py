"""Onlooker: who is told what the two loops of ``run`` do, passes and polls, as it happens."""

from __future__ import annotations

from gitops_agent.status.proceedings import PassResult


class Onlooker:
    """Does not care; who does, overrides. Called on the thread of the loop it is about: return at once."""

    def resting(self, seconds: float) -> None:
        """The next pass begins in so many seconds at the latest."""

    def began(self) -> None:
        """A pass begins."""

    def passed(self, result: PassResult) -> None:
        """A pass was completed."""

    def failed(self) -> None:
        """A pass ended in an error that nobody foresaw."""

    def asking(self) -> None:
        """The source is being asked."""

    def asked(self, *, answered: bool, next_in: float) -> None:
        """The source was asked, and is asked again in so many seconds."""
