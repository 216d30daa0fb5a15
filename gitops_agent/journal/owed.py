"""What sinks have not delivered yet: per sink and commit the newest version of the record."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, select

from gitops_agent.journal.schema import owed as table
from gitops_agent.journal.statements import insert

Owed = Mapping[str, Mapping[str, int]]

_ROW = (table.c.sink == bindparam("of_sink"), table.c.commit_sha == bindparam("of_sha"))
_UP_TO = table.delete().where(*_ROW, table.c.version <= bindparam("up_to"))


def read(connection: Connection) -> dict[str, dict[str, int]]:
    """By the name of the sink, the shas of commits and the newest versions."""
    found: dict[str, dict[str, int]] = {}
    for sink, sha, version in connection.execute(select(table)):
        found.setdefault(sink, {})[sha] = version
    return found


def owe(connection: Connection, sinks: Collection[str], shas: Collection[str], version: int) -> None:
    """Write that each sink owes this version of each commit, in place of an earlier one."""
    forget(connection, {sink: dict.fromkeys(shas, version) for sink in sinks})
    insert(
        connection,
        table,
        [{"sink": sink, "commit_sha": sha, "version": version} for sink in sinks for sha in shas],
    )


def forget(connection: Connection, versions: Owed) -> None:
    """Delete the rows of sinks and commits up to these versions."""
    if gone := [
        {"of_sink": sink, "of_sha": sha, "up_to": version}
        for sink, of_sink in versions.items()
        for sha, version in of_sink.items()
    ]:
        connection.execute(_UP_TO, gone)


def with_more(known: Owed, sinks: Collection[str], shas: Collection[str], version: int) -> Owed:
    """What is owed after ``owe``."""
    more = dict.fromkeys(shas, version)
    return {**known, **{sink: {**known.get(sink, {}), **more} for sink in sinks}}


def without(known: Owed, sink: str, versions: Mapping[str, int]) -> Owed:
    """What is owed after ``forget``."""
    left = {sha: found for sha, found in known.get(sink, {}).items() if found > versions.get(sha, 0)}
    return {**{name: each for name, each in known.items() if name != sink}, **({sink: left} if left else {})}
