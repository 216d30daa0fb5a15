"""Plans on record: which actions each had, how many of them wait for people, and what was decided, said once.

A plan is kept so that it can be approved by its digest, and so that it is known what an approval covers. The
oldest of a commit leave when there is too much of them: people approve what they are shown, and that is a recent
one.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from sqlalchemy import ColumnElement, Connection, func, select

from gitops_agent.journal import schema
from gitops_agent.journal.rows import CHUNK_ROWS, Found, Row, insert, to_row
from gitops_agent.model.fields import DIGEST_BYTES
from gitops_agent.model.plan import Action, Decision, Plan
from gitops_agent.ports import PlanRecord

MAX_BYTES = 4 * 2**20
"""How much the plans of one commit may take, apart from their decisions: those of 250,000 actions."""

TRIMMED_EVERY = 16
"""How many plans are written before the oldest are looked for again."""

Mark = tuple[str, str]
"""A plan on record: its digest, and the commit that it was made for."""

Decided = tuple[str, bool, str]
"""What makes a decision another one: the digest of the action, whether a guard holds it, what becomes of it."""


def decided(action: Action, plan: Plan) -> Decided:
    """What tells a decision of a plan from others."""
    return action.digest, action.key in plan.held, action.decision.value


def plan_row(plan: Plan, at: float) -> Row:
    """A plan as a row."""
    waiting = sum(action.key in plan.held or action.decision is Decision.ASK for action in plan.actions)
    return {
        "plan": plan.digest,
        "commit": plan.commit,
        "at": at,
        "actions": packed(action.digest for action in plan.actions),
        "waiting": waiting,
        "agents": len({action.key.agent for action in plan.actions}),
    }


def decision_rows(plan: Plan, at: float, on_record: Collection[Decided]) -> Iterator[Row]:
    """The decisions of a plan that are not on record, as rows."""
    for ordinal, action in enumerate(plan.actions):
        if (found := decided(action, plan)) not in on_record:
            own = {"plan": plan.digest, "commit": plan.commit, "at": at, "ordinal": ordinal}
            yield to_row(schema.decisions, action, **own, agent=action.key.agent, held=found[1], digest=found[0])


def packed(digests: Iterable[str]) -> bytes:
    """Digests as bytes, in order; what is none (journals before version 5 had empty ones) is left out."""
    return b"".join(bytes.fromhex(each) for each in digests if len(each) == 2 * DIGEST_BYTES)


def unpacked(found: bytes) -> frozenset[str]:
    """The digests again."""
    return frozenset(found[at : at + DIGEST_BYTES].hex() for at in range(0, len(found), DIGEST_BYTES))


def decisions_of(connection: Connection, commit: str) -> set[Decided]:
    """What was decided for a commit."""
    table = schema.decisions.c
    query = select(table.digest, table.held, table.decision).where(table.commit == commit)
    return {(digest, held, decision.value) for digest, held, decision in connection.execute(query)}


def records(connection: Connection, *conditions: ColumnElement[bool]) -> list[PlanRecord]:
    """The plans for which all of this holds, newest first."""
    table = schema.plans.c
    size = func.length(table.actions) / DIGEST_BYTES
    query = select(table.plan, table.commit, table.at, size, table.waiting, table.agents).where(*conditions)
    found = connection.execute(query.order_by(table.at.desc()))
    return [PlanRecord(plan, commit, at, int(count), *more) for plan, commit, at, count, *more in found]


def actions_of(connection: Connection, digest: str) -> frozenset[str]:
    """The digests of the actions of a plan; empty when it is not on record."""
    found = connection.execute(select(schema.plans.c.actions).where(schema.plans.c.plan == digest)).scalars()
    return frozenset[str]().union(*map(unpacked, found))


def trim(connection: Connection, commits: Iterable[str], kept: Collection[str]) -> None:
    """Drop the oldest plans of some commits beyond the limit, apart from some (those that were approved)."""
    table = schema.plans
    for commit in commits:
        size = func.length(table.c.actions)
        query = select(table.c.plan, size).where(table.c.commit == commit).order_by(table.c.at.desc())
        room = MAX_BYTES
        for number, (plan, taken) in enumerate(connection.execute(query).all()):
            room -= taken
            if number and room < 0 and plan not in kept:
                connection.execute(table.delete().where(table.c.plan == plan, table.c.commit == commit))


def create_table(connection: Connection) -> None:
    """The step to version 6: plans get a table of their own, made of their decisions."""
    schema.plans.create(connection)
    table = schema.decisions.c
    order = (table.plan, table.commit, table.ordinal)
    columns = (table.plan, table.commit, table.at, table.digest, table.agent, table.held, table.decision)
    found = connection.execute(select(*columns).order_by(*order)).yield_per(CHUNK_ROWS)
    made = [_plan_of(list(rows)) for _, rows in groupby(found, key=attrgetter("plan", "commit"))]
    insert(connection, schema.plans, made)


def _plan_of(rows: Sequence[Found]) -> Row:
    first = rows[0]
    return {
        "plan": first.plan,
        "commit": first.commit,
        "at": first.at,
        "actions": packed(row.digest for row in rows),
        "waiting": sum(row.held or row.decision is Decision.ASK for row in rows),
        "agents": len({row.agent for row in rows}),
    }
