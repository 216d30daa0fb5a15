"""The world git runs in: the whole environment, configuration and identity, built from nothing. Pure.

Git takes orders from many places (three configuration files, dozens of variables, templates, hooks, helpers).
Here is the complete list of what it gets from us; all the rest of the process environment is taken away.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gitops_agent.errors import UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.address import Address

OLDEST = (2, 38)
"""The oldest git that knows all that we rely on."""

KEPT = frozenset(
    {"PATH", "TMPDIR", "TZ"}
    | {name for low in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (low, low.upper())}
)
"""What git may see of our own environment: where programs are, and how to reach the network."""

NOWHERE = os.devnull

_CONFIG = {
    "core.hooksPath": NOWHERE,
    "core.fsmonitor": "false",
    "core.attributesFile": NOWHERE,
    "core.askPass": "",
    "core.sshCommand": "",
    "core.alternateRefsCommand": "",
    # A blob above this is streamed, never held in memory: a bomb costs disk and time, both of which are bounded.
    "core.bigFileThreshold": "16m",
    "init.templateDir": "",
    "init.defaultBranch": "main",
    "credential.helper": "",
    "credential.interactive": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "fetch.fsckObjects": "true",
    "transfer.fsckObjects": "true",
    # Old tools wrote these into histories that are still alive; neither can do harm.
    "fetch.fsck.zeroPaddedFilemode": "ignore",
    "fetch.fsck.badTimezone": "ignore",
    "transfer.bundleURI": "false",
    "fetch.writeCommitGraph": "false",
    "http.followRedirects": "false",
    "http.sslVerify": "true",
    # A server that drips bytes: less than 1 kB/s for 20 s is as good as no answer.
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "20",
    "http.cookieFile": "",
    "http.saveCookies": "false",
    "protocol.allow": "never",
    "protocol.version": "2",
    # Commits that a force-push left behind may still be the ones in force: never prune.
    "gc.pruneExpire": "never",
    "gc.cruftPacks": "true",
    "gc.autoDetach": "false",
    "gc.writeCommitGraph": "false",
    "maintenance.auto": "false",
    "log.showSignature": "false",
}


def config_text(address: Address, environment: Mapping[str, str], trusted: Sequence[Path] = ()) -> str:
    """The configuration file that takes the place of the user's. ``trusted``: folders others may own.

    A file and not variables: git hides ``GIT_CONFIG_COUNT`` from the upload-pack it starts on a local
    repository, and that is where ``safe.directory`` must be known.
    """
    values = {**_CONFIG, f"protocol.{address.protocol}.allow": "always"}
    if bundle := environment.get("SSL_CERT_FILE"):
        values["http.sslCAInfo"] = bundle
    pairs = list(values.items())
    pairs += [("safe.directory", str(place)) for folder in trusted for place in (folder, folder / ".git")]
    return "".join(_line(name, value) for name, value in pairs)


def _line(name: str, value: str) -> str:
    """One ``[section "sub"] key = "value"`` line; a newline can therefore never start a new key."""
    section, _, key = name.rpartition(".")
    head, _, sub = section.partition(".")
    heading = f'[{head} "{_quote(sub)}"]' if sub else f"[{head}]"
    return f'{heading} {key} = "{_quote(value)}"\n'


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "")


def base_environment(environment: Mapping[str, str], address: Address, config: str) -> dict[str, str]:
    """Every variable of a git process that needs no credentials."""
    kept = {name: value for name, value in environment.items() if name in KEPT}
    kept.setdefault("PATH", os.defpath)
    return kept | {
        "HOME": NOWHERE,  # also where curl would look for .netrc
        "XDG_CONFIG_HOME": NOWHERE,
        "LANGUAGE": "C",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": NOWHERE,
        "GIT_CONFIG_GLOBAL": config,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "cat",
        "GIT_ALLOW_PROTOCOL": address.protocol,
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_FLUSH": "1",
    }


def config_variables(rules: Mapping[str, str]) -> dict[str, str]:
    """The variables that give one git process more configuration."""
    pairs = {
        f"GIT_CONFIG_{part}_{number}": text
        for number, rule in enumerate(rules.items())
        for part, text in zip(("KEY", "VALUE"), rule, strict=True)
    }
    return {"GIT_CONFIG_COUNT": str(len(rules)), **pairs}


class Identity(NamedTuple):
    """Author and committer in one."""

    name: str
    email: str

    @property
    def variables(self) -> dict[str, str]:
        """The same for a git process."""
        pairs = self._asdict().items()
        return {f"GIT_{role}_{key.upper()}": value for role in ("AUTHOR", "COMMITTER") for key, value in pairs}


def identity(settings: Settings) -> Identity:
    """The identity of our commits and notes; UsageError when git cannot write it."""
    for name, value in (("authorName", settings.author_name), ("authorEmail", settings.author_email)):
        if re.search(r"[\x00-\x1f\x7f<>]", value) or not value.strip():
            raise UsageError(
                f"{name} {value!r} cannot be written into a commit", hint="use plain text without < >"
            )
    return Identity(settings.author_name.strip(), settings.author_email.strip())
