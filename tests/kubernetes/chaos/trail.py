"""What really happened, by the audit log of the API server alone: who created, changed and deleted which object,
and who held the Lease at that moment. Times are those of the server, which runs on this machine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

READS = ("get", "list", "watch")
LEASES = "leases"
LATE_SECONDS = 12.0
"""After so long without a renewal others may lead. A leader stops at 8 s, and what is on its way then is held up
by the campaign for less than the rest."""


class Key(NamedTuple):
    """One object, as a request names it: the plural of its kind, its namespace and its name."""

    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Entry:
    """A request. ``answered`` and ``code`` are None when the server was killed before it could say."""

    user: str
    verb: str
    key: Key
    at: float
    answered: float | None = None
    code: int | None = None
    holder: str | None = None
    """Whom a write of a Lease names."""

    @property
    def may_have_happened(self) -> bool:
        return self.code is None or self.code < 300

    @property
    def created(self) -> bool:
        """Also an apply: it answers 201 where there was nothing."""
        return self.code == 201 and self.verb in ("create", "patch")


def read_trail(log: Path, since: int = 0) -> list[Entry]:
    """All requests behind a position of the log that say when they came, in that order."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    with log.open("rb") as file:
        file.seek(since)
        for line in file:
            if line.endswith(b"\n") and line.startswith(b"{"):  # a killed server may have left half a line
                one = json.loads(line)
                found[one["auditID"]][one["stage"]] = one
    return sorted((_entry(stages) for stages in found.values()), key=lambda entry: entry.at)


def _entry(stages: Mapping[str, Any]) -> Entry:
    last = stages.get("ResponseComplete") or stages.get("Panic")
    one = last or next(iter(stages.values()))
    about, body = one.get("objectRef") or {}, one.get("requestObject") or {}
    return Entry(
        user=one["user"]["username"],
        verb=one["verb"],
        key=Key(about.get("resource", ""), about.get("namespace", ""), about.get("name", "")),
        at=_seconds(one["requestReceivedTimestamp"]),
        answered=_seconds(last["stageTimestamp"]) if last else None,
        code=last["responseStatus"]["code"] if last and last.get("responseStatus") else None,
        holder=process_of((body.get("spec") or {}).get("holderIdentity")),
    )


def process_of(holder: str | None) -> str | None:
    """The name of the process that a Lease names, without the part of chance that each adds to it."""
    return None if holder is None else holder.partition("_")[0]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# -- what must never happen


def created_twice(trail: Sequence[Entry]) -> Iterator[str]:
    """Objects that were created although they were there: no deletion can have been between two creations."""
    creations, deletions = defaultdict[Key, list[Entry]](list), defaultdict[Key, list[Entry]](list)
    for entry in trail:
        if entry.created and entry.key.name:
            creations[entry.key].append(entry)
        elif entry.verb == "delete" and entry.may_have_happened:
            deletions[entry.key].append(entry)
    for key, entries in creations.items():
        for one, other in pairwise(entries):
            if not any(_may_be_between(each, one, other) for each in deletions[key]):
                yield f"{key} by {one.user}, and {other.at - one.at:.1f} s later by {other.user}"


def _may_be_between(entry: Entry, first: Entry, second: Entry) -> bool:
    ended = inf if entry.answered is None else entry.answered
    return ended >= first.at and entry.at <= (second.answered or second.at)


class Wanted(NamedTuple):
    """What Git asked for from some moment on."""

    since: float
    objects: frozenset[Key]


KEPT = ("deployments", "statefulsets", "configmaps", "secrets", "services", "pods", "namespaces")


def wrongly_deleted(
    trail: Sequence[Entry], users: Sequence[str], history: Sequence[Wanted], lag: float
) -> Iterator[str]:
    """Objects that one of ours deleted although Git had them: now, and for as long as a commit may be on its way.
    Nobody in the campaign asks for a restart, so every deletion of a pod is wrong too."""
    for entry in trail:
        if entry.user not in users or entry.verb != "delete" or entry.key.resource not in KEPT:
            continue
        if entry.may_have_happened and not _was_unwanted(entry, history, lag):
            yield f"{entry.key} by {entry.user}, and Git had it"


def _was_unwanted(entry: Entry, history: Sequence[Wanted], lag: float) -> bool:
    if entry.key.resource in ("pods", "namespaces"):
        return False
    for wanted, after in pairwise((*history, Wanted(inf, frozenset()))):
        was_head = wanted.since <= entry.at and after.since >= entry.at - lag
        if was_head and entry.key not in wanted.objects:
            return True
    return False


def stale_writes(trail: Sequence[Entry], users: Mapping[str, str], lease: str) -> Iterator[str]:
    """Changes by one that did not hold the Lease when they came, or had not renewed it for as long as it is good
    for. ``users``: by what identity each user of the API is a candidate."""
    votes = [entry for entry in trail if _is_vote(entry, lease)]
    for entry in trail:
        if entry.user in users and _changes(entry):
            what = _stale(entry, users[entry.user], votes)
            if what:
                yield f"{entry.verb} {entry.key} by {users[entry.user]}: {what}"


def _is_vote(entry: Entry, lease: str) -> bool:
    named = entry.key.name == lease or (entry.verb == "create" and not entry.key.name)
    return entry.key.resource == LEASES and entry.verb not in READS and named


def _changes(entry: Entry) -> bool:
    resource = entry.key.resource
    return entry.verb not in READS and resource not in (LEASES, "") and not resource.endswith("reviews")


def _stale(entry: Entry, identity: str, votes: Sequence[Entry]) -> str:
    """Why a change was not its author's to make; "" when it was."""
    known = [vote for vote in votes if vote.code in (200, 201) and (vote.answered or inf) <= entry.at]
    if not known:
        return "nobody led"
    # One whose answer was lost may have won.
    own = [
        v.at for v in votes if v.user == entry.user and v.may_have_happened and v.at <= entry.at and v.holder != ""
    ]
    last = max(known, key=lambda vote: vote.answered or 0.0)
    if last.holder != identity and not (own and max(own) > last.at):
        return f"{entry.at - (last.answered or 0.0):.2f} s after the Lease was {last.holder or 'nobody'}'s"
    if not own or entry.at - max(own) > LATE_SECONDS:
        return f"{entry.at - max(own, default=0.0):.2f} s after its last renewal"
    return ""


# -- changes of leader


@dataclass(frozen=True)
class Change:
    """Another process took the Lease."""

    at: float
    holder: str


def changes_of_leader(trail: Sequence[Entry], lease: str) -> list[Change]:
    """Every time that the Lease got another holder, in order; giving it back is not one."""
    found: list[Change] = []
    for vote in trail:
        won = _is_vote(vote, lease) and vote.code in (200, 201) and vote.holder
        if won and vote.holder and (not found or found[-1].holder != vote.holder):
            found.append(Change(vote.answered or vote.at, vote.holder))
    return found


@dataclass(frozen=True)
class Span:
    """From when to when something lasted."""

    since: float
    until: float


def overlap(span: Span, others: Sequence[Span]) -> float:
    """Seconds of a span in which at least one of the others lasted."""
    total, reached = 0.0, span.since
    for other in sorted(others, key=lambda each: each.since):
        since, until = max(other.since, reached), min(other.until, span.until)
        if until > since:
            total, reached = total + until - since, until
    return total
