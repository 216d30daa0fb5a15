"""The bundle of an agent on a local runtime, as a file the agent reads (``MANAGED_AGENT_CONFIG``).

What belongs here: writing, watching over and removing that file. What does not: what is in it
(``model/bundle.py``) and restarting an agent because of it (the runtime's digest covers that). A file that did not
change since we wrote it, or last read it, costs one ``stat``.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from gitops_agent.drivers.api import CONFIG, Class, Compilation, Context, ObserveRequest, Plugin, Reason
from gitops_agent.drivers.local.agent_dir import (
    BUNDLE,
    BUNDLE_CAP_BYTES,
    OUR_LIMITS,
    TRANSIENT,
    AgentDir,
    read_regular,
)
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.agent import Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base, Evidence, Observation, Owner
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Verb
from gitops_agent.support.atomic_file import remove_at, write_atomic_at

DRIVER = "config"
KEYS = ("tenant", "name", "model", "instructions", "tools", "mcpServers", "limits")
MISSING = "<missing>"  # for a key that was removed: it must not compare equal to anything desired
CLOSED = Fields(b'{"stamp":[0,0,0,0]}')


def config_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's bundle."""
    return ResourceKey(agent, Kind.CONFIG.value, "bundle")


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """One bundle for an agent whose runtime reads it from a file; stopped agents keep theirs."""
    runtime = asked.runtime
    if runtime is None or not runtime.bundle_file or asked.document.spec.lifecycle == "Retired":
        return ()
    return (Resource(key=config_key(asked.agent), driver=DRIVER, fields=asked.bundle),)


class ConfigDriver:
    """The config driver of one instance."""

    def __init__(self, context: Context) -> None:
        self._dirs = AgentDir(context.state_dir)
        self._clock = context.clock
        self._redactor = context.redactor
        self._seen: dict[AgentKey, tuple[Fields, Fields]] = {}  # the stamp of a file, and what was in it

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Every bundle file in the scope, and the absence of those we once wrote."""
        now = self._clock.now()
        recorded = {key.agent: base for key, base in request.bases.items()}
        agents = request.scope if request.scope is not None else {*recorded, *self._dirs.agents()}
        claims = {key.agent: claim for key, claim in request.claims.items()}
        found = (self._observation(agent, recorded.get(agent), claims.get(agent), now) for agent in agents)
        return [observation for observation in found if observation is not None]

    def live(self, agent: AgentKey, base: Base | None = None, claim: Resource | None = None) -> Fields | None:
        """What the file of one agent says, without secrets unless it is as expected; None when there is none."""
        wanted = base or claim
        expected = wanted.fields if wanted is not None else None
        stamp = self._stamp(agent)
        if stamp is None:
            self._seen.pop(agent, None)
            return None
        seen = self._seen.get(agent)
        if seen is not None and seen[0] == stamp:
            return seen[1]
        if base is not None and base.handle == stamp:
            return base.fields
        fields = self._read(agent)
        if fields != expected:
            # It was edited, perhaps by the agent itself: what differs is shown, kept and pushed.
            fields = Fields.of(self._redactor.tree(fields.value))
        self._seen[agent] = (stamp, fields)
        return fields

    def _stamp(self, agent: AgentKey) -> Fields | None:
        path = self._dirs.config(agent)
        try:
            return stamp_of(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            return CLOSED  # the agent closed its own folder: its problem, and no reason to be unreachable for all
        except OSError as problem:
            what = f"{config_key(agent)}: cannot look at {path}: {problem.strerror}"
            raise ObserveError(what, hint=f"check access to {path}") from None

    def _read(self, agent: AgentKey) -> Fields:
        try:
            with self._dirs.opened(agent) as folder:
                data, _ = read_regular(BUNDLE, BUNDLE_CAP_BYTES, folder)
        except OSError as problem:
            if problem.errno in TRANSIENT:
                where = f"{config_key(agent)}: cannot read {self._dirs.config(agent)}"
                raise ObserveError(f"{where}: {problem.strerror}", hint=OUR_LIMITS) from None
            # A link, a pipe, a folder, a file without read permission: not what we wrote, so it differs.
            return _compared({"unreadable": problem.strerror or f"{BUNDLE} is {problem}"})
        try:
            content = orjson.loads(data)
        except orjson.JSONDecodeError:
            return _compared({"unreadable": "not JSON"})
        return _compared(content if isinstance(content, dict) else {"unreadable": "not a JSON object"})

    def _observation(
        self, agent: AgentKey, base: Base | None, claim: Resource | None, now: float
    ) -> Observation | None:
        fields = self.live(agent, base, claim)
        if fields is None and base is None:
            return None
        reason, state, message = None, "Present", ""
        if fields is None:
            reason, state, message = "ConfigLost", "Missing", "is gone"
        elif base is not None and fields != base.fields:
            reason, state, message = "ConfigEdited", "Edited", "is not what we wrote"
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

    def unchanged(self, action: Action) -> bool:
        """Whether the file is still as planned."""
        return self.live(action.key.agent) == action.live

    def apply(self, action: Action, key: str) -> Applied:  # noqa: ARG002 - a rename is idempotent by nature
        """Write the bundle whole, or remove it."""
        path, folder = self._dirs.config(action.key.agent), self._dirs.folder(action.key.agent)
        try:
            if action.verb in (Verb.DELETE, Verb.STOP) or action.desired is None:
                self._delete(action.key.agent)
                return Applied(f"removed {path}")
            return Applied(f"wrote {path}", self._write(action.key.agent, action.desired))
        except OSError as problem:
            what = f"{action.key}: cannot write {path}: {problem.strerror or problem}"
            hint = f"make room and make sure that {folder} is a folder only we write to"
            raise ApplyError(what, hint=hint) from None

    def _write(self, agent: AgentKey, bundle: Fields) -> Fields:
        text = orjson.dumps(bundle.value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        with self._dirs.opened(agent, create=True) as folder:
            write_atomic_at(folder, BUNDLE, text)
            return stamp_of(os.stat(BUNDLE, dir_fd=folder, follow_symlinks=False))

    def _delete(self, agent: AgentKey) -> None:
        with suppress(FileNotFoundError, NotADirectoryError), self._dirs.opened(agent) as folder:
            remove_at(folder, BUNDLE)
        with suppress(OSError):  # logs and work stay: what an agent wrote is not ours to delete
            self._dirs.folder(agent).rmdir()


def _compared(content: Mapping[str, Any]) -> Fields:
    return Fields.of({**dict.fromkeys(KEYS, MISSING), **content})


def stamp_of(found: os.stat_result) -> Fields:
    """What tells one state of a file from the next; on record, so that a new process need not read it again."""
    return Fields(b'{"stamp":[%d,%d,%d,%d]}' % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


REASONS = {
    "ConfigEdited": Reason("The config bundle was edited in place.", about_fields=True),
    "ConfigLost": Reason("The config bundle is gone.", Class.MISSING_EXTERNAL),
}
PLUGIN = Plugin(DRIVER, (CONFIG,), resources, ConfigDriver, reasons=REASONS, local=True)
