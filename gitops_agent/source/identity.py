"""The identity of our commits and notes, from the settings. Pure."""

import re
from typing import NamedTuple

from gitops_agent.errors import UsageError
from gitops_agent.settings import Settings

_CRUD = re.compile(r"[\x00-\x1f\x7f<>]")


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
    """The identity in the settings; UsageError when git cannot write it."""
    for name, value in (("authorName", settings.author_name), ("authorEmail", settings.author_email)):
        if _CRUD.search(value) or not value.strip():
            raise UsageError(
                f"{name} {value!r} cannot be written into a commit", hint="use plain text without < >"
            )
    return Identity(settings.author_name.strip(), settings.author_email.strip())
