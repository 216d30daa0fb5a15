"""What sinks have not delivered yet: per sink and commit the newest version of the record."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, select

from gitops_agent.journal.schema import owed as table

Owed = Mapping[str, Mapping[str, int]]

_UP_TO = table.delete().where(
    table.c.sink == bindparam("sink"),
    table.c.commit == bindparam("commit"),
    table.c.version <= bindparam("version"),
)


def read(connection: Connection) -> Owed:
    """By the name of the sink, the shas of commits and the newest versions."""
    found: dict[str, dict[str, int]] = {}
    for sink, sha, version in connection.execute(select(table)):
        found.setdefault(sink, {})[sha] = version
    return found


def owe(connection: Connection, sinks: Iterable[str], shas: Iterable[str], version: int) -> None:
    """Write that each sink owes this version of each commit, in place of an earlier one."""
    rows = [{"sink": sink, "commit": sha, "version": version} for sink in sinks for sha in shas]
    connection.execute(_UP_TO, rows)
    connection.execute(table.insert(), rows)


def forget(connection: Connection, sink: str, versions: Mapping[str, int]) -> None:
    """Delete the rows of a sink up to these versions of commits."""
    rows = [{"sink": sink, "commit": sha, "version": version} for sha, version in versions.items()]
    connection.execute(_UP_TO, rows)
