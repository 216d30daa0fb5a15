"""The questions asked of the journal about the past: what was done, decided and seen, and records of commits."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from typing import Any, Self, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    FromClause,
    Label,
    Select,
    String,
    bindparam,
    func,
    or_,
    select,
    true,
    type_coerce,
)

from gitops_agent.journal import plans, schema, tables
from gitops_agent.journal.database import Database
from gitops_agent.journal.rows import Found, chunks, intent_of
from gitops_agent.journal.schema import commits, decisions, intents, observations
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Result
from gitops_agent.model.plan import Action, Class, Decision, Verb
from gitops_agent.model.status import CommitRecord
from gitops_agent.ports import ActionRecord, PlanRecord

T = TypeVar("T")

MAX_SEARCHED_INTENTS = 1000
"""How many intents are looked through for what was done lately."""

_COLUMNS = {"intent": "id", "before": "live", "after": "desired"}
_WORDS = ("verb", "drift_class", "confidence", "result")


def _column(field: str) -> Label[Any]:
    """The column of a field of ``ActionRecord``, which has plain words."""
    column: Column[Any] = intents.c[_COLUMNS.get(field, field)]
    return (type_coerce(column, String) if field in _WORDS else column).label(field)


_ENTRY = [_column(each.name) for each in fields(ActionRecord)]
_CHANGING = [verb for verb in Verb if verb.touches_live or verb is Verb.RELEASE]


def _repairs(found: FromClause) -> tuple[ColumnElement[bool], ...]:
    """What is true of actions against drift that were done after the parameter ``since``. ``found``: the intents
    to look through, chosen before by what they are indexed by: nearly all were done, and a database that has no
    statistics would begin with those."""
    return (
        found.c.drift_class.in_([member for member in Class if member.is_drift]),
        found.c.verb.in_([verb for verb in Verb if verb.touches_live]),
        found.c.result == Result.DONE,
        found.c.finished_at > bindparam("since"),
    )


def _newest(query: Select[Any]) -> FromClause:
    """The newest intents that a query finds, as many as are looked through."""
    return query.order_by(intents.c.seq.desc()).limit(MAX_SEARCHED_INTENTS).subquery()


# Asked in every pass that repairs something, and to build a statement takes as long as to carry it out.
_OF_ALL = _newest(select(intents))
_REPAIRED_LATELY = select(_OF_ALL).where(*_repairs(_OF_ALL)).order_by(_OF_ALL.c.seq.desc())
_OF_AGENT = _newest(select(intents).where(intents.c.agent == bindparam("of_agent")))
_REPAIRED_AT = select(_OF_AGENT.c.finished_at).where(
    *_repairs(_OF_AGENT), _OF_AGENT.c.duration > 0.0, _OF_AGENT.c.key == bindparam("of_key")
)


class History:
    """The journal as far as it is only read from the database. Close it, or use it in a ``with``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def term(self) -> int:
        """The number under which this process writes a shared journal: whoever takes over has a greater one, and
        from then on nothing more is written under this one. 0 without one."""
        return self._database.term

    def holder(self) -> str | None:
        """The process that works with the journal now, in words; None when there is none, or it cannot be seen."""
        return self._database.holder()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def commit_record(self, sha: str) -> CommitRecord | None:
        """The record of one commit, also of one that ``state().commits`` no longer holds."""
        return self._read(tables.records_among, [sha]).get(sha)

    def commits(
        self, limit: int | None = None, *, tree: str | None = None, sha: str = ""
    ) -> Sequence[CommitRecord]:
        """Records of commits, newest first: all, those of one tree, those whose sha begins so."""
        of_tree = true() if tree is None else commits.c.tree == tree
        return self._read(tables.records, of_tree, commits.c.sha.startswith(sha, autoescape=True), limit=limit)

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[ActionRecord]:
        """Executed actions, newest first; the one in progress has no result."""
        query = select(*_ENTRY).filter_by(**_given(agent=agent, commit=commit))
        found = self._found(query.order_by(intents.c.seq.desc()).limit(limit))
        return [ActionRecord(**{**row._mapping, "outcome": row.outcome or ""}) for row in found]

    def changed_agents(self, commit: str) -> int:
        """How many agents were changed for a commit: what it asked for was done to something of theirs."""
        asked = or_(intents.c.drift_class == Class.CHANGE, intents.c.base.is_distinct_from(intents.c.desired))
        query = select(func.count(intents.c.agent.distinct())).filter_by(commit=commit, result=Result.DONE)
        ((count,),) = self._found(query.where(intents.c.verb.in_(_CHANGING), asked))
        return int(count)

    def plans(self, digest: str = "", commits: Collection[str] | None = None) -> Sequence[PlanRecord]:
        """The plans on record whose digest begins so, once for each commit they were made for, newest first."""
        column = schema.plans.c
        of_commits = true() if commits is None else column.commit.in_(commits)
        return self._read(plans.records, column.plan.startswith(digest, autoescape=True), of_commits)

    def planned(self, digest: str) -> frozenset[str]:
        """The digests of the actions of a plan on record; empty when there is none."""
        return self._read(plans.actions_of, digest)

    def waiting(self, plan: PlanRecord) -> Sequence[tuple[AgentKey, str]]:
        """The agents of which a plan holds something for people, each with the verb of it, in the order of the
        plan; all that it is about, where nothing waits."""
        table, found = decisions.c, list[Found]()
        for part in chunks(self.planned(plan.digest)):
            query = select(table.agent, table.verb, table.held, table.decision, table.ordinal)
            found += self._found(query.where(table.digest.in_(part), table.commit == plan.commit))
        held = [row for row in found if row.held or row.decision is Decision.ASK] or found
        return [(row.agent, str(row.verb)) for row in sorted(held, key=lambda row: row.ordinal)]

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        """The digests of the actions of a plan that were done since a moment."""
        same = [decisions.c[name] == intents.c[name] for name in ("agent", "key", "verb")]
        done = (intents.c.result == Result.DONE, intents.c.finished_at >= since)
        found: set[str] = set()
        for part in chunks(self.planned(digest)):
            rows = self._found(select(intents).where(decisions.c.digest.in_(part), *same, *done))
            found |= {intent_of(row).action.digest for row in rows}
        return frozenset(found)

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """Actions against drift that were done since a moment, and when, among the newest of all: enough to know
        a mass by."""
        return [(intent_of(row).action, row.finished_at) for row in self._found(_REPAIRED_LATELY, since=since)]

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """When drift of a resource was repaired, among the newest of its agent. A settled intent took no time of
        ours, and does not count."""
        return [at for (at,) in self._found(_REPAIRED_AT, since=since, of_agent=key.agent, of_key=key)]

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """What was seen of an agent each time it changed, newest first: the answer to "since when"."""
        query = select(observations.c.value).filter_by(agent=agent)
        return [seen for (seen,) in self._found(query.order_by(observations.c.seq.desc()).limit(limit))]

    def _is_recorded(self, digest: str, commit: str) -> bool:
        """Whether a plan for a commit is on record."""
        return bool(self._found(select(schema.plans.c.plan).filter_by(plan=digest, commit=commit)))

    def _found(self, query: Select[Any], **values: object) -> Sequence[Any]:
        with self._database.reading() as connection:
            return connection.execute(query, values).all()

    def _read(self, query: Callable[..., T], *arguments: object, **options: object) -> T:
        with self._database.reading() as connection:
            return query(connection, *arguments, **options)


def _given(**conditions: Any) -> dict[str, Any]:
    return {name: value for name, value in conditions.items() if value is not None}
