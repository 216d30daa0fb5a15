"""Settings: defaults, then the file, then ``GITOPS_AGENT_…``, then command-line options. Later wins.

Every field is documented where it is declared; ``gitops-agent doctor`` prints the values in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from gitops_agent.errors import UsageError
from gitops_agent.model.quantity import seconds

PREFIX = "GITOPS_AGENT_"


def _duration(value: object) -> object:
    return seconds(value) if isinstance(value, str) and not value.replace(".", "", 1).isdigit() else value


Seconds = Annotated[float, BeforeValidator(_duration), Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Limits(_Section):
    """What one commit may ask of the parser."""

    files: Annotated[int, Field(ge=1, description="Files read below the path.")] = 100_000
    file_bytes: Annotated[int, Field(ge=1, description="Size of one YAML file.")] = 1_048_576
    total_bytes: Annotated[int, Field(ge=1, description="Size of all files read of one commit.")] = 536_870_912
    documents: Annotated[int, Field(ge=1, description="Documents in one file.")] = 1_000
    depth: Annotated[int, Field(ge=1, le=200, description="Nesting of one document.")] = 32
    aliases: Annotated[int, Field(ge=0, description="YAML aliases in one document.")] = 64
    located: Annotated[
        int, Field(ge=0, description="Broken documents given exact columns; further ones get their first line.")
    ] = 500
    instructions_bytes: Annotated[int, Field(ge=1, description="Size of one instructionsFrom file.")] = 262_144


class Settings(_Section):
    """Everything about one instance that is not desired state."""

    repo: Annotated[
        str, Field(description="URL or path of the desired repository (path, file, http, https or ssh).")
    ] = ""
    branch: Annotated[str, Field(description="The branch to follow.")] = "main"
    path: Annotated[str, Field(description="The folder of the repository to read.")] = "."
    instance: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
        Field(description="The name of this gitops-agent; it marks what we own and names our notes."),
    ] = "default"
    state_dir: Annotated[
        str, Field(description="Where the mirror, the journal, logs and config bundles live.")
    ] = ""

    poll_interval: Annotated[Seconds, Field(description="How often the remote is asked, with jitter.")] = 30.0
    resync_interval: Annotated[Seconds, Field(description="How often every agent is observed.")] = 60.0
    timeout: Annotated[Seconds, Field(description="How long `once` may take.")] = 600.0
    git_timeout: Annotated[Seconds, Field(description="How long one git call to the remote may take.")] = 120.0
    parallelism: Annotated[int, Field(ge=1, le=64, description="Driver calls at the same time.")] = 8
    push: Annotated[bool, Field(description="Whether notes are pushed to the remote.")] = True
    retention: Annotated[Seconds, Field(description="How long history stays in the journal.")] = 30 * 86400.0

    token_file: Annotated[str | None, Field(description="File with the token for http(s).")] = None
    token_env: Annotated[str | None, Field(description="Environment variable with the token for http(s).")] = None
    username: Annotated[str, Field(description="User name that goes with the token.")] = "git"
    ssh_key: Annotated[str | None, Field(description="Private key file for ssh.")] = None
    known_hosts: Annotated[
        str | None, Field(description="known_hosts file for ssh; without it ssh is refused.")
    ] = None

    author_name: Annotated[str, Field(description="Name on commits and notes we write.")] = "gitops-agent"
    author_email: Annotated[str, Field(description="Address on commits and notes we write.")] = (
        "gitops-agent@localhost"
    )

    sentry_dsn: Annotated[
        str | None, Field(description="Where unexpected errors are reported; off when empty.")
    ] = None
    log_format: Annotated[Literal["auto", "json", "text"], Field(description="Form of the logs on stderr.")] = (
        "auto"
    )
    limits: Limits = Limits()

    @property
    def state(self) -> Path:
        """The state directory as a path."""
        return Path(self.state_dir)


def default_state_dir(instance: str, environment: Mapping[str, str]) -> str:
    """Where state lives when nobody says: the user's state folder, one folder per instance."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", ".")) / ".local" / "state")
    return str(Path(home) / "gitops-agent" / instance)


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that ``GITOPS_AGENT_…`` variables give; sections are joined by two underscores."""
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable == PREFIX + "CONFIG":
            continue
        *sections, name = variable.removeprefix(PREFIX).lower().split("__")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
        target[name] = text
    return values


def _snake(layer: Mapping[str, Any], section: type[BaseModel]) -> dict[str, Any]:
    """A layer of the file under our own names, sections included, so that layers merge key by key."""
    by_alias = {to_camel(name): name for name in section.model_fields}
    named = {by_alias.get(key, key): value for key, value in layer.items()}
    if isinstance(named.get("limits"), Mapping):
        named["limits"] = _snake(named["limits"], Limits)
    return named


def build_settings(
    file: Mapping[str, Any], environment: Mapping[str, str], options: Mapping[str, Any]
) -> Settings:
    """Merge the layers; UsageError names every wrong value and where it came from."""
    layers = (
        _snake(file, Settings),
        from_environment(environment),
        {key: value for key, value in options.items() if value is not None},
    )
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = {**merged[key], **value} if both else value
    try:
        settings = Settings(**merged)
    except ValidationError as problem:
        lines = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors()]
        raise UsageError(
            "settings are not valid: " + "; ".join(lines), hint="see gitops-agent doctor --help"
        ) from None
    if settings.state_dir:
        return settings
    return settings.model_copy(update={"state_dir": default_state_dir(settings.instance, environment)})
