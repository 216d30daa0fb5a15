"""The questions ``explain`` and ``history`` ask of the journal: what was done, decided and seen, newest first."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, Select, case, func, or_, select

from gitops_agent.journal import rows, schema
from gitops_agent.model.codec import from_json
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Result
from gitops_agent.model.plan import Action, Class, Decision, Verb
from gitops_agent.ports import ActionRecord, DecisionRecord, PlanRecord

MAX_SEARCHED_INTENTS = 1000
"""How many intents are looked through for what was done lately."""

_RECORD_ONLY = [verb.value for verb in Verb if not verb.touches_live]
_ENTRY = [
    column for column in schema.intents.c if column.name not in ("base", "handle", "patch", "outcome_handle")
]


def entries(
    connection: Connection, agent: AgentKey | None, commit: str | None, limit: int
) -> Sequence[ActionRecord]:
    """Executed actions, newest first; the one in progress has no result."""
    table = schema.intents
    query = select(*_ENTRY).order_by(table.c.seq.desc()).limit(limit)
    if agent is not None:
        query = query.where(table.c.agent == str(agent))
    if commit is not None:
        query = query.where(table.c.commit_sha == commit)
    return [rows.action_record_of(row) for row in connection.execute(query)]


def decisions(
    connection: Connection, agent: AgentKey | None, commit: str | None, limit: int
) -> Sequence[DecisionRecord]:
    """What plans decided, newest plan first and in the order of the plan."""
    table = schema.decisions
    query: Select[tuple[object, ...]] = select(table)
    if agent is not None:
        query = query.where(table.c.agent == str(agent))
    if commit is not None:
        query = query.where(table.c.commit_sha == commit)
    query = query.order_by(table.c.at.desc(), table.c.plan, table.c.ordinal).limit(limit)
    return [rows.decision_of(row) for row in connection.execute(query)]


def plans(connection: Connection, digest: str, commits: Collection[str] | None) -> Sequence[PlanRecord]:
    """The plans on record whose digest begins so, once for each commit they were made for, newest first."""
    table = schema.decisions
    waits = case((or_(table.c.held, table.c.decision == Decision.ASK.value), 1), else_=0)
    counts = (func.max(table.c.at).label("at"), func.count().label("actions"), func.sum(waits).label("waiting"))
    agents = func.count(table.c.agent.distinct()).label("agents")
    query = select(table.c.plan, table.c.commit_sha, *counts, agents).where(
        table.c.plan.startswith(digest, autoescape=True)
    )
    if commits is not None:
        query = query.where(table.c.commit_sha.in_(commits))
    query = query.group_by(table.c.plan, table.c.commit_sha).order_by(func.max(table.c.at).desc())
    return [PlanRecord(*row) for row in connection.execute(query)]


def planned(connection: Connection, digest: str) -> frozenset[str]:
    """The digests of the actions of a plan on record; empty when there is none."""
    table = schema.decisions
    found = connection.execute(select(table.c.digest).where(table.c.plan == digest))
    return frozenset(text for text in found.scalars() if text)


def is_recorded(connection: Connection, digest: str, commit: str) -> bool:
    """Whether the decisions of a plan for a commit are on record."""
    table = schema.decisions
    query = select(table.c.plan).where(table.c.plan == digest, table.c.commit_sha == commit).limit(1)
    return connection.execute(query).first() is not None


def observations(connection: Connection, agent: AgentKey, limit: int) -> Sequence[Observation]:
    """What was seen of an agent each time it changed, newest first: the answer to "since when"."""
    table = schema.observations
    query = select(table.c.value).where(table.c.agent == str(agent)).order_by(table.c.seq.desc()).limit(limit)
    return [from_json(Observation, value) for value in connection.execute(query).scalars()]


def carried_out(connection: Connection, digest: str, since: float) -> frozenset[str]:
    """The digests of the actions of a plan that were done since a moment."""
    done, made = schema.intents, schema.decisions
    same = (made.c.agent == done.c.agent, made.c.key == done.c.key, made.c.verb == done.c.verb)
    query = select(done).where(
        made.c.plan == digest, *same, done.c.result == Result.DONE.value, done.c.finished_at >= since
    )
    return frozenset(rows.intent_of(row).action.digest for row in connection.execute(query))


_DRIFT = [member.value for member in Class if member.is_drift]


def recently_repaired(connection: Connection, since: float) -> Sequence[tuple[Action, float]]:
    """Actions against drift that were done since a moment, among the newest of all: enough to know a mass by."""
    newest = select(schema.intents).order_by(schema.intents.c.seq.desc()).limit(MAX_SEARCHED_INTENTS).subquery()
    query = select(newest).where(
        newest.c.drift_class.in_(_DRIFT),
        newest.c.verb.not_in(_RECORD_ONLY),
        newest.c.result == Result.DONE.value,
        newest.c.finished_at > since,
    )
    return [(rows.intent_of(row).action, row.finished_at) for row in connection.execute(query)]


def repairs(connection: Connection, key: ResourceKey, since: float) -> Sequence[float]:
    """When drift of a resource was repaired. A settled intent took no time of ours, and does not count."""
    table = schema.intents
    query = select(table.c.finished_at).where(
        table.c.agent == str(key.agent),
        table.c.key == str(key),
        table.c.drift_class.in_(_DRIFT),
        table.c.verb.not_in(_RECORD_ONLY),
        table.c.result == Result.DONE.value,
        table.c.duration > 0.0,
        table.c.finished_at > since,
    )
    return list(connection.execute(query).scalars())
