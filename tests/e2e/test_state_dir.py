"""The state directory over time: it does not grow for ever, and only its owner reads it."""

from __future__ import annotations

import sqlite3

from tests.support.fleet import Fleet


def ask(fleet: Fleet, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(fleet.state / "journal.db")
    with connection:
        found = connection.execute(statement).fetchall()
    connection.close()
    return found


def test_once_drops_what_is_old(fleet: Fleet) -> None:
    own = {"GITOPS_AGENT_RETENTION": "1ms", "GITOPS_AGENT_FOLDER_RETENTION": "1ms"}
    fleet.commit(fleet.agents("a", "b"))
    fleet.once(**own)
    assert ask(fleet, "SELECT count(*) FROM intents") == [(0,)], "done, reported, and no longer wanted"
    assert fleet.folder("a").exists()
    fleet.commit({"a.yaml": None})
    fleet.once(**own)
    assert fleet.folder("a").exists(), "once an hour is enough"
    ask(fleet, "UPDATE state SET value = '1.0' WHERE part = 'journal.pruned_at'")
    fleet.once(**own)
    assert not fleet.folder("a").exists()
    assert fleet.folder("b").exists()
    assert fleet.pid("b")
