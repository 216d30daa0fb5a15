"""Credentials for the remote: a token for http(s), a key and known hosts for ssh.

Credentials are read anew for every call, so that a rotated token is picked up, and travel in the environment of
the one git process that needs them: never on a command line, in a configuration file or in an error.
"""

import base64
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from gitops_agent.errors import UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.address import LOOPBACK, Address
from gitops_agent.source.git_environment import config_variables

_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")
_USERNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")

# What git_errors.py reads status and headers from.
_TRACED = {"GIT_TRACE_CURL": "2", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}

_SSH_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "GlobalKnownHostsFile": "/dev/null",
    "UpdateHostKeys": "no",
    "VerifyHostKeyDNS": "no",
    "IdentitiesOnly": "yes",
    "IdentityAgent": "none",
    "PreferredAuthentications": "publickey",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ProxyCommand": "none",
    "ForwardAgent": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "ConnectTimeout": "20",
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "2",
    "LogLevel": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Variables for one git process, and the texts that must never be shown. Masks itself."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def credentials_for(address: Address, settings: Settings, environment: Mapping[str, str]) -> Credentials:
    """What the remote at this address asks for; UsageError says what is missing and how to give it."""
    if address.kind == "ssh":
        return Credentials({"GIT_SSH_COMMAND": _ssh_command(settings), "GIT_SSH_VARIANT": "ssh"})
    if address.kind not in ("http", "https"):
        return Credentials()
    if settings.token_file or settings.token_env:
        return _bearer(address, settings, _token(settings, environment))
    return Credentials(_TRACED)


def _token(settings: Settings, environment: Mapping[str, str]) -> str:
    if settings.token_file:
        where = f"token file {settings.token_file}"
        try:
            token = Path(settings.token_file).read_text(encoding="ascii", errors="replace").strip()
        except OSError as problem:
            raise UsageError(
                f"{where} cannot be read: {problem.strerror}", hint="create it or change tokenFile"
            ) from None
    else:
        where = f"environment variable {settings.token_env}"
        token = environment.get(settings.token_env or "", "").strip()
    if not token:
        raise UsageError(f"{where} holds no token", hint="put the token there, on one line")
    if not _TOKEN.fullmatch(token):
        raise UsageError(f"{where} does not hold a token", hint="expected one line of printable ASCII, no spaces")
    return token


def _bearer(address: Address, settings: Settings, token: str) -> Credentials:
    """The header goes to this scheme, host and port only; redirects are refused elsewhere."""
    if address.kind == "http" and address.host not in LOOPBACK:
        raise UsageError(
            f"repository {address.target}: a token would travel in clear text",
            hint="use https:// for this repository",
        )
    if not _USERNAME.fullmatch(settings.username):
        raise UsageError("username is not a plain user name", hint="expected letters, digits and . _ @ + -")
    pair = base64.b64encode(f"{settings.username}:{token}".encode()).decode()
    origin = f"{address.kind}://{address.host}" + (f":{address.port}" if address.port else "") + "/"
    variables = config_variables({f"http.{origin}.extraHeader": f"Authorization: Basic {pair}"})
    return Credentials({**_TRACED, **variables}, (pair, token, quote(token, safe="")))


def _ssh_command(settings: Settings) -> str:
    known = _readable(
        settings.known_hosts, "knownHosts", "a known_hosts file with the host key (see ssh-keyscan, and verify it)"
    )
    key = _readable(settings.ssh_key, "sshKey", "the private key file")
    options = {**_SSH_OPTIONS, "UserKnownHostsFile": f'"{known}"', "IdentityFile": f'"{key}"'}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return shlex.join(["ssh", "-F", "/dev/null", *words])


def _readable(value: str | None, setting: str, meaning: str) -> str:
    variable = "GITOPS_AGENT_" + re.sub("([A-Z])", r"_\1", setting).upper()
    way_out = f"set {setting} ({variable}) to {meaning}"
    if not value:
        raise UsageError(f"ssh needs {setting}: host keys and keys of this user are not used", hint=way_out)
    path = Path(value).absolute()
    if not path.is_file():
        raise UsageError(f"{setting} {value}: there is no such file", hint=way_out)
    # ssh reads % and quotes in these options in its own way.
    if any(mark in str(path) for mark in '%"\\\n'):
        raise UsageError(f'{setting} {value!r} contains one of % " \\', hint="move the file to a plain path")
    return str(path)
