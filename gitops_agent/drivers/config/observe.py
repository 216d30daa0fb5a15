"""Reads bundle files. One that did not change since we wrote it, or last read it, costs one ``stat``."""

import os
from collections.abc import Sequence
from typing import Any

import orjson

from gitops_agent.drivers.api import (
    AgentKey,
    Base,
    Clock,
    Evidence,
    Fields,
    Observation,
    ObserveError,
    ObserveRequest,
    Owner,
)
from gitops_agent.drivers.config.spec import DRIVER, config_key
from gitops_agent.drivers.local.agent_dir import OUR_LIMITS, AgentDir, is_transient, read_regular

FILE = "config.json"
SIZE_CAP_BYTES = 16 * 2**20
KEYS = ("tenant", "name", "model", "instructions", "tools", "mcpServers", "limits")
MISSING = "<missing>"  # for a key that was removed: it must not compare equal to anything desired

Stamp = tuple[int, int, int, int]
CLOSED: Stamp = (0, 0, 0, 0)


class ConfigObserver:
    """The reading part of the config driver."""

    def __init__(self, dirs: AgentDir, clock: Clock) -> None:
        self._dirs = dirs
        self._clock = clock
        self._seen: dict[AgentKey, tuple[Stamp, Fields]] = {}

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Every bundle file in the scope, and the absence of those we once wrote."""
        now = self._clock.now()
        recorded = {key.agent: base for key, base in request.bases.items()}
        agents = request.scope if request.scope is not None else {*recorded, *self._dirs.agents()}
        found = (self._observation(agent, recorded.get(agent), now) for agent in agents)
        return [observation for observation in found if observation is not None]

    def live(self, agent: AgentKey, base: Base | None = None) -> Fields | None:
        """What the file of one agent says; None when there is none."""
        stamp = self._stamp(agent)
        if stamp is None:
            self._seen.pop(agent, None)
            return None
        seen = self._seen.get(agent)
        if seen is not None and seen[0] == stamp:
            return seen[1]
        if base is not None and base.handle == handle_of(stamp):
            return base.fields
        fields = self._read(agent)
        self._seen[agent] = (stamp, fields)
        return fields

    def _stamp(self, agent: AgentKey) -> Stamp | None:
        path = self._dirs.config(agent)
        try:
            return stamp_of(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            return CLOSED  # the agent closed its own folder: its problem, and no reason to be unreachable for all
        except OSError as problem:
            raise ObserveError(
                f"{config_key(agent)}: cannot look at {path}: {problem.strerror}", hint=f"check access to {path}"
            ) from None

    def _read(self, agent: AgentKey) -> Fields:
        try:
            with self._dirs.opened(agent) as folder:
                data, _ = read_regular(folder, FILE, SIZE_CAP_BYTES)
        except OSError as problem:
            if is_transient(problem):
                where = f"{config_key(agent)}: cannot read {self._dirs.config(agent)}"
                raise ObserveError(f"{where}: {problem.strerror}", hint=OUR_LIMITS) from None
            # A link, a pipe, a folder, a file without read permission: not what we wrote, so it differs.
            return _unreadable(problem.strerror or str(problem))
        return _parsed(data)

    def _observation(self, agent: AgentKey, base: Base | None, now: float) -> Observation | None:
        fields = self.live(agent, base)
        if fields is None and base is None:
            return None
        reason, state, message = _assess(fields, base)
        path = self._dirs.config(agent)
        return Observation(
            key=config_key(agent),
            driver=DRIVER,
            owner=Owner.OURS,
            fields=fields,
            state=state,
            observed_at=now,
            reason=reason,
            message=f"{path} {message}" if message else "",
            live={"path": path},
            evidence=(Evidence("file", f"{path} {message or 'is there'}", now),),
        )


def _assess(fields: Fields | None, base: Base | None) -> tuple[str | None, str, str]:
    if fields is None:
        return "ConfigLost", "Missing", "is gone"
    if base is not None and fields != base.fields:
        return "ConfigEdited", "Edited", "is not what we wrote"
    return None, "Present", ""


def _parsed(data: bytes) -> Fields:
    try:
        content: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _unreadable("not JSON")
    if not isinstance(content, dict):
        return _unreadable("not a JSON object")
    return Fields.of({**dict.fromkeys(KEYS, MISSING), **content})


def _unreadable(why: str) -> Fields:
    return Fields.of({**dict.fromkeys(KEYS, MISSING), "unreadable": why})


def stamp_of(found: os.stat_result) -> Stamp:
    """What tells one state of a file from the next."""
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def handle_of(stamp: Stamp) -> Fields:
    """A stamp for the journal, so that a new process need not read an untouched file again."""
    return Fields(b'{"stamp":[%d,%d,%d,%d]}' % stamp)
