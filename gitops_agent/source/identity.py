"""Who our commits and notes are by: the identity in settings, as git wants it. Pure."""

from __future__ import annotations

import re

from gitops_agent.errors import UsageError
from gitops_agent.settings import Settings

_CRUD = re.compile(r"[\x00-\x1f\x7f<>]")


def identity(settings: Settings) -> dict[str, str]:
    """The variables that name author and committer; UsageError when the settings hold what git cannot write."""
    for name, value in (("authorName", settings.author_name), ("authorEmail", settings.author_email)):
        if _CRUD.search(value) or not value.strip():
            raise UsageError(
                f"{name} {value!r} cannot be written into a commit", hint="use plain text without < >"
            )
    who = {"NAME": settings.author_name.strip(), "EMAIL": settings.author_email.strip()}
    return {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in who.items()}
