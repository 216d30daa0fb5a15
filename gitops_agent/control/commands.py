"""OperatorCommands: the requests of operators: freeze, unfreeze, approve, retry.

Each one is checked against what the journal knows and written into it as a control, beside a running daemon and
without its lock; the next pass handles it. Nothing else is written here, and nothing is done.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gitops_agent.errors import UsageError
from gitops_agent.journal.place import journal_place
from gitops_agent.journal.store import SqlJournal, has_journal, open_journal
from gitops_agent.model.control import EVERYTHING, Control, ControlVerb, covers, freezes
from gitops_agent.model.key import AgentKey, listed, named
from gitops_agent.model.plan import Verb
from gitops_agent.model.quantity import ago, counted, epoch, iso, seconds
from gitops_agent.model.scalars import REF_PATTERN
from gitops_agent.model.status import APPROVED_BY
from gitops_agent.ports import Clock, PlanRecord
from gitops_agent.settings import Settings
from gitops_agent.support.clock import SystemClock

NAMES_LISTED = 5
SHORTEST_DIGEST, SHORTEST_SHA = 8, 7
_AGENTS_NAMED = 3
_NOUNS = {
    Verb.DELETE.value: "deletion",
    Verb.STOP.value: "stop",
    Verb.RELEASE.value: "release",
    Verb.RESTART.value: "restart",
    Verb.UPDATE.value: "update",
    Verb.CREATE.value: "start",
    Verb.ADOPT.value: "adoption",
    Verb.FORGET.value: "forgotten record",
}
"""What each verb is called when it is counted, what takes most away first."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The account that asks, and its machine. ``approvers``: the accounts that may approve; () all."""

    user: str
    host: str
    approvers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.user}@{self.host}"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What was written, what it means, and what to mind. ``approved``: each agent with what may be done to it."""

    controls: tuple[Control, ...]
    meaning: str
    warning: str = ""
    approved: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def open_commands(settings: Settings, *, create: bool) -> Iterator[OperatorCommands]:
    """The commands, on the journal of an instance; takes no lock. ``create``: also if there is none yet."""
    place = journal_place(settings)
    if has_journal(place) or not create:
        # Read first: a journal that needs a migration is not migrated under a daemon that uses it.
        open_journal(place, read_only=True).close()
    operator = Operator(_account(), socket.gethostname(), settings.approvers)
    with open_journal(place) as journal:
        yield OperatorCommands(journal, SystemClock(), operator)


class OperatorCommands:
    """The verbs, on one journal, by one operator."""

    def __init__(self, journal: SqlJournal, clock: Clock, operator: Operator) -> None:
        self._journal = journal
        self._clock = clock
        self._operator = operator

    def holder(self) -> str | None:
        """The gitops-agent that works with the journal now, in words; None when there is none."""
        return self._journal.holder()

    def freeze(self, scope: str, reason: str, until: str | None) -> CommandResult:
        """Acting stops within the scope, from the next pass on."""
        _check_scope(scope)
        end = None if until is None else self._moment(until)
        control = self._control(ControlVerb.FREEZE, scope, _reason(reason), end)
        known = self._journal.state().status.agents
        count = sum(covers(scope, key) for key in known)
        lone = "" if count or not known else f"no agent known now is in the scope {scope}: it holds nothing yet"
        lasts = f"until {iso(end)}" if end else f"until gitops-agent unfreeze --scope '{scope}' --reason TEXT"
        meaning = f"frozen: {_in_words(scope)}, {lasts}. Nothing is changed or repaired there; looking goes on"
        return self._record([control], meaning, lone)

    def unfreeze(self, scope: str, reason: str, *, everything: bool = False) -> CommandResult:
        """Lift the freezes of a scope, or all of them: one row for each scope."""
        why = _reason(reason)
        in_force = freezes(self._journal.state().control.controls, self._clock.now())
        lifted = [each for each in in_force if everything or each.target == scope]
        if not lifted:
            raise _not_frozen(scope, in_force, everything)
        if by_guard := any(each.plan for each in lifted):
            self._check_may_approve("lifting a freeze that a guard set approves what it had stopped")
        scopes = list(dict.fromkeys(each.target for each in lifted))
        controls = [self._control(ControlVerb.UNFREEZE, each, why) for each in scopes]
        left = [each for each in in_force if each not in lifted]
        also = f"still frozen: {_listed(left)}" if left else ""
        approved = "; with it, what the guard had stopped is approved" if by_guard else ""
        return self._record(controls, f"no longer frozen: {', '.join(map(_in_words, scopes))}{approved}", also)

    def approve(self, digest: str, reason: str) -> CommandResult:
        """Let a plan pass that waits for people, as long as nothing it was decided on moves."""
        self._check_may_approve("approving")
        plan = self._plan(digest.strip().lower())
        self._check_is_open(plan)
        control = self._control(ControlVerb.APPROVE, plan.digest, reason.strip())
        state = self._journal.state()
        converged = state.commits.converged_before(state.source.head)
        if converged and converged.finished_at:
            # A clock that was set back must not make the approval one of the past.
            control = replace(control, at=max(control.at, converged.finished_at))
        approved = _hardest_verbs(self._journal.waiting(plan))
        what = f"{_size(plan)} of commit {plan.commit[:10]}, planned {self._ago(plan)}"
        meaning = (
            f"approved: {_approved_words(approved)}\n"
            f"plan {plan.digest} ({what}). It covers these actions while desired and live stay as is"
        )
        return replace(self._record([control], meaning), approved=approved)

    def retry(self, target: str, reason: str) -> CommandResult:
        """Try again at once what has failed: an agent, or a commit whose rollout was held."""
        found = self._target(target.strip())
        control = self._control(ControlVerb.RETRY, found, reason.strip())
        what = f"agent {found}" if "/" in found else f"commit {found[:10]}"
        return self._record([control], f"retrying {what} now")

    # -- what is meant

    def _plan(self, digest: str) -> PlanRecord:
        """The plan on record that begins so, of a commit that matters; UsageError with what waits otherwise."""
        current = self._current()
        long_enough = len(digest) >= SHORTEST_DIGEST and re.fullmatch(r"[0-9a-f]+", digest)
        found = self._journal.plans(digest) if long_enough else []
        here = [plan for plan in found if plan.commit in current]
        if len({plan.digest for plan in here}) == 1:
            return here[0]
        raise UsageError(self._no_plan(digest, found, here), hint=self._waiting(current))

    def _check_is_open(self, plan: PlanRecord) -> None:
        """Approving what is done would approve the same plan unasked, should it come again. If it did, it is asked
        about: by a commit that is open, or by the last pass."""
        wanted = self._journal.planned(plan.digest)
        done = bool(wanted) and wanted <= self._journal.carried_out(plan.digest, plan.at)
        if done and not self._is_asked(plan.digest):
            raise UsageError(
                f"plan {plan.digest} ({_size(plan)}) is done already, so there is nothing to approve",
                hint=self._waiting(self._current()),
            )

    def _is_asked(self, digest: str) -> bool:
        state = self._journal.state()
        asked = any(digest in each.detail for each in state.status.findings if each.code != APPROVED_BY)
        return asked or (state.head is not None and not state.head.phase.terminal)

    def _current(self) -> set[str]:
        """The commits a pass plans for: the newest valid one too, which goes on below an invalid head."""
        state = self._journal.state()
        source, enforced, rollout = state.source, state.rollout.enforced, state.rollout.rollout
        return {sha for sha in (source.head, source.valid, enforced, rollout.commit if rollout else None) if sha}

    def _no_plan(self, digest: str, found: Sequence[PlanRecord], here: Sequence[PlanRecord]) -> str:
        if len(digest) < SHORTEST_DIGEST:
            return f"{digest!r} is too short for a digest: give {SHORTEST_DIGEST} characters or more of it"
        if here:
            some = ", ".join(plan.digest for plan in here[:NAMES_LISTED])
            return f"more than one plan begins with {digest!r}: {some}"
        if found:
            head = (self._journal.state().source.head or "")[:10]
            return (
                f"plan {found[0].digest} is of commit {found[0].commit[:10]}, and the newest is {head}: "
                "approving it would approve nothing"
            )
        return f"no plan on record has the digest {digest!r}, so nothing was approved"

    def _waiting(self, current: Iterable[str]) -> str:
        waiting = [plan for plan in self._journal.plans(commits=list(current)) if plan.waiting]
        if not waiting:
            return "no plan on record waits for people; one is on record once a pass of once or run has met it"
        return "plans that wait: " + "; ".join(
            f"{plan.digest} (commit {plan.commit[:10]}, {counted(plan.actions, 'action')}, {self._ago(plan)})"
            for plan in waiting[:NAMES_LISTED]
        )

    def _ago(self, plan: PlanRecord) -> str:
        return ago(plan.at, self._clock.now())

    def _target(self, text: str) -> str:
        """``tenant/name`` or a full sha; UsageError with what there is otherwise."""
        state = self._journal.state()
        known = {*state.status.agents, *(key.agent for key in state.reconcile.bases)}
        is_sha = re.fullmatch(r"[0-9a-f]{4,64}", text) and len(text) >= SHORTEST_SHA
        commits = [each.sha for each in self._journal.commits(sha=text)] if is_sha else []
        if len(found := [*map(str, named(text, known)), *commits]) == 1:
            return found[0]
        problem = "more than one agent or commit is" if found else "no agent and no commit on record is"
        some = listed(text, found, known, NAMES_LISTED)
        raise UsageError(
            f"{problem} called {text!r}",
            hint=f"give tenant/name, or {SHORTEST_SHA} characters or more of a commit; there are: {some}",
        )

    def _moment(self, text: str) -> float:
        now = self._clock.now()
        try:
            moment = epoch(text) if "T" in text else now + seconds(text)
        except ValueError:
            expected = "a duration such as 30m or 2h, or a moment such as 2030-01-31T18:00:00Z"
            raise UsageError(f"--until: {text!r} is not {expected}") from None
        if moment <= now:
            raise UsageError(f"--until: {iso(moment)} is not in the future", hint=f"it is {iso(now)} now")
        return moment

    # -- how it is written

    def _check_may_approve(self, what: str) -> None:
        operator, approvers = self._operator, self._operator.approvers
        if approvers and operator.user not in approvers and str(operator) not in approvers:
            raise UsageError(
                f"{operator} may not approve: {what}, and `approvers` in the settings names others",
                hint=f"let one of them do it: {', '.join(approvers)}",
            )

    def _control(self, verb: ControlVerb, target: str, reason: str, until: float | None = None) -> Control:
        return Control(verb, target, str(self._operator), self._clock.now(), " ".join(reason.split()), until)

    def _record(self, controls: Sequence[Control], meaning: str, warning: str = "") -> CommandResult:
        for control in controls:
            self._journal.control(control)
        return CommandResult(tuple(controls), meaning, warning)


def _account() -> str:
    """The account we run under, as the kernel has it: a variable in the environment may hold anything."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def _size(plan: PlanRecord) -> str:
    return f"{counted(plan.actions, 'action')} on {counted(plan.agents, 'agent')}"


def _hardest_verbs(waiting: Iterable[tuple[AgentKey, str]]) -> dict[str, str]:
    """The verb that takes most away, for each agent: its parts follow it."""
    found: dict[str, str] = {}
    for agent, verb in waiting:
        found[str(agent)] = min(verb, found.get(str(agent), verb), key=list(_NOUNS).index)
    return found


def _approved_words(approved: Mapping[str, str]) -> str:
    """``4 deletions: acme/a, acme/b, acme/c and 1 more``."""
    parts = []
    for verb, noun in _NOUNS.items():
        if names := sorted(agent for agent, own in approved.items() if own == verb):
            more = f" and {len(names) - _AGENTS_NAMED} more" if len(names) > _AGENTS_NAMED else ""
            parts.append(f"{counted(len(names), noun)}: {', '.join(names[:_AGENTS_NAMED])}{more}")
    return "; ".join(parts) or "nothing that is on record by name"


def _reason(text: str) -> str:
    if not text.strip():
        raise UsageError("--reason is empty", hint="say in a few words why, for later readers")
    return text


def _check_scope(scope: str) -> None:
    if scope != EVERYTHING and not re.fullmatch(REF_PATTERN, scope):
        raise UsageError(
            f"--scope: {scope!r} is not a scope", hint="give '*' for everything, TENANT or TENANT/NAME"
        )


def _in_words(scope: str) -> str:
    if scope == EVERYTHING:
        return "everything"
    return f"agent {scope}" if "/" in scope else f"tenant {scope}"


def _listed(in_force: Iterable[Control]) -> str:
    return "; ".join(
        f"{each.target} since {iso(each.at)} by {each.actor}: {each.reason}"
        + (f" (until {iso(each.until)})" if each.until else "")
        for each in in_force
    )


def _not_frozen(scope: str, in_force: Sequence[Control], everything: bool) -> UsageError:
    what = "nothing" if everything or not in_force else f"the scope {scope}"
    by_git = "a freeze by Git (Policy.freeze) is lifted by a commit without it"
    found = f"freezes in force: {_listed(in_force)}; {by_git}" if in_force else by_git
    state = "is frozen" if what == "nothing" else "is not frozen"
    return UsageError(f"{what} {state} by an operator or a guard", hint=found)
