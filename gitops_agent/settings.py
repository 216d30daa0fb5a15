"""Settings: defaults, then the file, then ``GITOPS_AGENT_…``, then command-line options. Later wins.

Every field is documented where it is declared; ``gitops-agent doctor`` prints the values in force.
"""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import ErrorDetails

from gitops_agent.errors import UsageError
from gitops_agent.model.quantity import seconds
from gitops_agent.model.scalars import Texts

PREFIX = "GITOPS_AGENT_"

JOURNAL_URL = (
    r"^postgres(?:ql)?://(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?(?P<hosts>[^@/?#]*)"
    r"(?:/(?P<database>[^@/?#]*))?(?:\?(?P<query>[^#]*))?$"
)
"""What the address of a shared journal looks like, so that its password is known wherever it stands."""


def _duration(value: object) -> object:
    return seconds(value) if isinstance(value, str) and not value.replace(".", "", 1).isdigit() else value


Seconds = Annotated[float, BeforeValidator(_duration), Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Limits(_Section):
    """What one commit may ask of the parser."""

    files: int = Field(100_000, ge=1, description="Files read below the path.")
    file_bytes: int = Field(1_048_576, ge=1, description="Size of one YAML file.")
    total_bytes: int = Field(536_870_912, ge=1, description="Size of all files read of one commit.")
    documents: int = Field(1_000, ge=1, description="Documents in one file.")
    depth: int = Field(32, ge=1, le=200, description="Nesting of one document.")
    aliases: int = Field(64, ge=0, description="YAML aliases in one document.")
    located: int = Field(
        500, ge=0, description="Broken documents given exact columns; further ones get their first line."
    )
    instructions_bytes: int = Field(262_144, ge=1, description="Size of one instructionsFrom file.")


class Settings(_Section):
    """Everything about one instance that is not desired state."""

    repo: str = Field("", description="URL or path of the desired repository (path, file, http, https or ssh).")
    branch: str = Field("main", description="The branch to follow.")
    path: str = Field(".", description="The folder of the repository to read.")
    instance: str = Field(
        "default",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="The name of this gitops-agent; it marks what we own and names our notes.",
    )
    state_dir: str = Field("", description="Where the mirror, the journal, logs and config bundles live.")
    journal_url: str = Field(
        "",
        pattern=rf"^$|{JOURNAL_URL}",
        description="The PostgreSQL database that holds the journal, as `postgresql://user:password@host:5432/database`"
        ": for a journal that outlives this machine. Without it the journal is a file in the state directory.",
    )
    journal_url_file: str = Field(
        "", description="File with that URL, so that its password is in no environment and no list of processes."
    )
    lease_dir: str = Field("", description="Where all of one host meet, so that one at a time acts on an agent.")
    election: str = Field(
        "",
        description="The driver that elects one of several `run` of this instance; the others stand by. Empty: "
        "this is the only one.",
    )
    identity: str = Field(
        "",
        description="The name of this process in an election, with a part of chance added; else that of the host.",
    )

    poll_interval: Seconds = Field(
        30.0,
        description="How often the remote is asked: up to a fifth later, and after failures twice as long each "
        "time, up to 10 minutes.",
    )
    resync_interval: Seconds = Field(60.0, description="How often every agent is observed, a tenth more or less.")
    timeout: Seconds = Field(600.0, description="How long `once` may take.")
    git_timeout: Seconds = Field(120.0, description="How long one git call to the remote may take.")
    parallelism: int = Field(
        8,
        ge=1,
        le=64,
        description="Actions of one kind (hooks, stops, restarts, others) at the same time; slow ones give way.",
    )
    push: bool = Field(
        True, description="Whether notes, reverts and imports are pushed to the remote (not asked by `rollback`)."
    )
    retention: Seconds = Field(30 * 86400.0, description="How long history stays in the journal.")
    folder_retention: Seconds = Field(
        7 * 86400.0,
        description="How long the folder of an ended agent stays (its logs, its `work`); `0s`: for ever.",
    )
    import_after: Seconds = Field(
        60.0, description="How long a value must have been live before a branch proposes it (`authority: live`)."
    )
    drift_report: str | None = Field(
        None, description="File to which drift reports are written: JSON if it ends in `.json`, else text."
    )
    drift_note: bool = Field(False, description="Whether drift reports are kept as a note on the newest commit.")
    drift_interval: Seconds = Field(
        86400.0, description="How often `run` writes its drift report, the first when it starts; `0s`: never."
    )

    listen: str = Field(
        "127.0.0.1:9733",
        pattern=r"^(|(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5})$",
        description="Where `run` serves `/metrics`, `/livez` and `/readyz`, without a password, so on this "
        "machine only unless set otherwise; port 0 takes any free one, nothing serves nothing.",
    )
    livez_grace: Seconds = Field(
        300.0, description="How much longer than it should a pass or a poll may take before `/livez` turns red."
    )

    token_file: str | None = Field(None, description="File with the token for http(s).")
    token_env: str | None = Field(None, description="Environment variable with the token for http(s).")
    username: str = Field("git", description="User name that goes with the token.")
    ssh_key: str | None = Field(None, description="Private key file for ssh.")
    known_hosts: str | None = Field(None, description="known_hosts file for ssh; without it ssh is refused.")

    author_name: str = Field("gitops-agent", description="Name on commits and notes we write.")
    author_email: str = Field("gitops-agent@localhost", description="Address on commits and notes we write.")

    approvers: Texts = Field(
        (),
        description="The approvers of plans: addresses of authors in Git, user names on the command line; "
        "with commas in the environment. Empty: all that can push, or write the state directory.",
    )
    allowed_signers: str | None = Field(
        None,
        description="An ssh allowed-signers file; approvals in Git then count only signed by one of them.",
    )

    hook_hosts: Texts = Field(
        (),
        description="The hosts that HTTP hooks may call, each as `host` or `host:port`, loopback too; with "
        "commas in the environment. Empty: none.",
    )

    drivers: dict[str, dict[str, Any]] = Field(
        {},
        description="Settings of the drivers, by name; each has its own, and all take `rate` (actions a "
        "second) and `burst` (actions at once).",
    )

    sentry_dsn: str | None = Field(None, description="Where unexpected errors are reported; off when empty.")
    log_format: Literal["auto", "json", "text"] = Field("auto", description="Form of the logs on stderr.")
    limits: Limits = Limits()

    @property
    def state(self) -> Path:
        """The state directory as a path."""
        return Path(self.state_dir)


def default_state_dir(instance: str, environment: Mapping[str, str]) -> str:
    """Where state lives by default: the user's state folder, one folder per instance."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", ".")) / ".local" / "state")
    return str(Path(home) / "gitops-agent" / instance)


def default_lease_dir(environment: Mapping[str, str]) -> str:
    """Where leases live by default: the user's runtime folder, or else one below the temporary folder.
    It must be the same for a login, a service and a cron job of one user, so a runtime folder is used also where
    the environment names none, and TMPDIR is not asked."""
    user = os.geteuid()
    for runtime in (environment.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        if runtime and _is_folder_of(user, Path(runtime)):
            return str(Path(runtime) / "gitops-agent")
    return f"/tmp/gitops-agent-{user}"  # noqa: S108 - leases check the owner before use


def _is_folder_of(user: int, path: Path) -> bool:
    try:
        return path.is_absolute() and path.is_dir() and path.stat().st_uid == user
    except OSError:
        return False


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that ``GITOPS_AGENT_…`` variables give; sections are joined by two underscores."""
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable == PREFIX + "CONFIG":
            continue
        *sections, name = variable.removeprefix(PREFIX).lower().split("__")
        target = values
        for section in sections:
            if not isinstance(target.get(section), dict):
                target[section] = {}
            target = target[section]
        target[name] = text
    return values


def _snake(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer of the file under our own names, sections included, so that layers merge key by key."""
    named = {_FIELDS.get(key, key): value for key, value in layer.items()}
    if isinstance(named.get("limits"), Mapping):
        named["limits"] = _snake(named["limits"])
    return named


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, sections in sections; where both say something, what ``above`` says. A setting of a driver is
    ``allowExec`` in the file and ``allow_exec`` in the environment, and is one and the same."""
    merged = dict(below)
    spellings = {to_snake(key): key for key in below}
    for name, value in above.items():
        key = name if name in below else spellings.get(to_snake(name), name)
        known = merged.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return merged


def build_settings(
    file: Mapping[str, Any],
    environment: Mapping[str, str],
    options: Mapping[str, Any],
    *,
    file_name: str = "",
) -> Settings:
    """Merge the layers; UsageError names every wrong value and where it came from."""
    layers = (
        _snake(file),
        from_environment(environment),
        {key: value for key, value in options.items() if value is not None},
    )
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merged(merged, layer)
    try:
        settings = Settings(**merged)
    except ValidationError as problem:
        lines = [_complaint(error, layers, file_name) for error in problem.errors()]
        hint = "see docs/configuration.md for all settings; gitops-agent doctor prints those in force"
        raise UsageError("; ".join(lines), hint=hint) from None
    missing = {
        "state_dir": settings.state_dir or default_state_dir(settings.instance, environment),
        "lease_dir": settings.lease_dir or default_lease_dir(environment),
    }
    return settings.model_copy(update=missing)


_FIELDS = {to_camel(name): name for section in (Settings, Limits) for name in section.model_fields}
_PRIVATE = ("repo", "sentry_dsn", "journal_url")  # people put passwords there
_EXPECTED = {
    "instance": "a name of lower-case letters, digits and dashes, at most 63",
    "journal_url": "a URL such as postgresql://user:password@host:5432/database, special characters as %40",
    "listen": "an address such as 127.0.0.1:9733 or [::1]:9733, or nothing",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a duration such as 500ms, 30s, 2m or 1h30m",
    "float_type": "a duration such as 500ms, 30s, 2m or 1h30m",
    "value_error": "a duration such as 500ms, 30s, 2m or 1h30m",
    "string_type": "a text",
    "tuple_type": "a list of texts",
    "model_type": "settings below it, each with a name of its own",
}


def _complaint(error: ErrorDetails, layers: Sequence[Mapping[str, Any]], file_name: str) -> str:
    """One wrong setting: its name as it was written, where, what was found and what was expected."""
    path = tuple(_FIELDS.get(str(part), str(part)) for part in error["loc"])
    names = [_in_file(path, file_name), PREFIX + "__".join(path).upper(), f"--{path[0].replace('_', '-')}"]
    given = [name for layer, name in zip(layers, names, strict=True) if _is_given(layer, path)]
    name = given[-1] if given else ".".join(path)
    if error["type"] == "extra_forbidden":
        return f"{name}: there is no such setting{_nearest(path, in_file=name == names[0])}"
    found = "" if path[0] in _PRIVATE else f"{error['input']!r} is not "
    return f"{name}: {found}{_expected(error, path)}"


def _in_file(path: Sequence[str], file_name: str) -> str:
    written = {name: alias for alias, name in _FIELDS.items()}
    return f"{'.'.join(written.get(part, part) for part in path)} in {file_name or 'the settings file'}"


def _is_given(layer: Mapping[str, Any], path: Sequence[str]) -> bool:
    value: Any = layer
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _expected(error: ErrorDetails, path: Sequence[str]) -> str:
    limits = error.get("ctx", {})
    if error["type"] == "greater_than_equal":
        return f"at least {limits['ge']:g}"
    if error["type"] == "less_than_equal":
        return f"at most {limits['le']:g}"
    if error["type"] == "literal_error":
        return f"one of {limits['expected']}".replace("'", "")
    return _EXPECTED.get(path[-1]) or _EXPECTED.get(error["type"]) or f"valid ({error['msg']})"


def _nearest(path: Sequence[str], *, in_file: bool) -> str:
    """``; did you mean …?`` in the spelling of the place where it stands."""
    section = Limits if path[0] == "limits" and len(path) > 1 else Settings
    close = get_close_matches(path[-1].lower(), list(section.model_fields), n=1)
    if not close:
        return ""
    meant = (*path[:-1], close[0])
    shown = ".".join(map(to_camel, meant)) if in_file else PREFIX + "__".join(meant).upper()
    return f"; did you mean {shown}?"
