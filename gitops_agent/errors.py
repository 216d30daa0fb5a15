"""The errors we raise on purpose, and how each is to be treated.

    GitopsAgentError            exit 1   a message, and a hint that says the way out
    ├── UsageError              exit 2   the call or the settings are wrong
    │   └── LockHeld            exit 2   another once or run holds the state directory, or the journal
    ├── InvalidDesiredState     exit 3   findings with addresses; the last good snapshot stays in force
    ├── SourceError             exit 6
    │   ├── SourceUnavailable            try again (``retry_after``); nothing that runs is changed
    │   └── SourceRefused                the source answered and we do not accept it (force-push, bad grammar)
    │       └── NothingToDo     exit 0   what was asked for is already so
    ├── ObserveError            exit 5   a driver could not give a complete answer: act on nothing of it
    ├── ApplyError              exit 5   a driver could not do it; ``permanent`` if trying again cannot help
    │   ├── NotYet                       nothing was done, as something else is to happen first
    │   └── EffectSpent                  it was tried, did not succeed, and must not be tried twice
    └── JournalError            exit 1   the journal cannot be read or written: stop acting
        ├── JournalTaken        exit 1   the shared journal goes on without this process: begin anew, or end
        └── NoJournal           exit 2   no pass has run in this state directory yet

Foreign exceptions are translated at the border, in one place per library, with ``from``.
"""

from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding


class GitopsAgentError(Exception):
    """Base of everything we raise on purpose: one sentence, and a hint that says the way out."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GitopsAgentError):
    """The call or the settings are wrong."""

    exit_code = 2


class LockHeld(UsageError):
    """Another once or run holds the state directory, or writes the shared journal."""


class InvalidDesiredState(GitopsAgentError):
    """The commit is refused whole; ``findings`` holds every error of it."""

    exit_code = 3

    def __init__(self, message: str, findings: tuple[Finding, ...], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = findings


class SourceError(GitopsAgentError):
    """Something about the Git source."""

    exit_code = 6


class SourceUnavailable(SourceError):
    """The source did not answer; try again, after ``retry_after`` seconds if it named them."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class SourceRefused(SourceError):
    """The source answered, and we do not accept the answer."""


class NothingToDo(SourceRefused):
    """What was asked for is already so: not a failure, and nothing was done."""

    exit_code = 0


class ObserveError(GitopsAgentError):
    """A driver could not give a complete answer, so nothing may be concluded from it."""

    exit_code = 5


class ApplyError(GitopsAgentError):
    """A driver could not do it. ``permanent``: trying again without a new commit cannot help. ``of_system``: it
    may be the live system that fails, so the circuit breaker counts it; not where that answered and refused."""

    exit_code = 5

    def __init__(self, message: str, *, hint: str = "", permanent: bool = False, of_system: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.permanent = permanent
        self.of_system = of_system


class NotYet(ApplyError):
    """A driver did nothing, because something else is to happen first. No failure, and no repair either.
    ``retry_after``: seconds for which the live system asked not to be tried again, if it named them."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class EffectSpent(ApplyError):
    """A one-shot effect was tried and did not succeed; it must not be tried again by itself. ``unknown``: whether
    it happened is not known. ``handle`` is kept in the base, so that it is not forgotten."""

    def __init__(self, message: str, handle: Fields, *, unknown: bool) -> None:
        super().__init__(message, permanent=True)
        self.handle = handle
        self.unknown = unknown


class JournalError(GitopsAgentError):
    """The journal cannot be read or written."""


class JournalTaken(JournalError):
    """Another process has taken over the shared journal, or it went back in time; this one writes nothing more."""


class NoJournal(JournalError):
    """No pass has run in this state directory yet: another one is meant, or it is too early to ask."""

    exit_code = 2
