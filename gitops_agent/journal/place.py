"""Where the journal of an instance is: a folder of this machine (SQLite), or a shared database (PostgreSQL)."""

import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, unquote

from gitops_agent.errors import UsageError
from gitops_agent.settings import JOURNAL_URL, Settings

MAX_NAME_BYTES = 63
"""The longest name that PostgreSQL keeps whole."""

_PARTS = re.compile(JOURNAL_URL)


@dataclass(frozen=True, slots=True)
class SharedJournal:
    """The journal of one instance in a PostgreSQL database; several instances may share the database."""

    url: str = field(repr=False)
    instance: str

    @property
    def schema(self) -> str:
        """The PostgreSQL schema that holds its tables; the name of an instance has no underscore of its own."""
        name = f"gitops_agent_{self.instance.replace('-', '_')}"
        if len(name) <= MAX_NAME_BYTES:
            return name
        mark = sha256(name.encode()).hexdigest()[:8]
        return f"{name[: MAX_NAME_BYTES - 9]}_{mark}"

    @property
    def secrets(self) -> list[str]:
        """The passwords in the address, as they are written and as they are meant."""
        found = _PARTS.match(self.url)
        if found is None:
            return [self.url]
        written = [found["password"] or "", *parse_qs(found["query"] or "").get("password", [])]
        return [form for each in written if each for form in (each, unquote(each))]

    def __str__(self) -> str:
        found = _PARTS.match(self.url)
        if found is None:
            return "journal_url"
        user = f"{found['user']}@" if found["user"] else ""
        return f"postgresql://{user}{found['hosts']}/{found['database'] or ''} (schema {self.schema})"


Place = Path | SharedJournal


def journal_place(settings: Settings) -> Place:
    """The place of an instance's journal; UsageError when the settings say none that can be used."""
    url = settings.journal_url or _kept_url(settings.journal_url_file)
    return SharedJournal(url, settings.instance) if url else settings.state


def _kept_url(path: str) -> str:
    if not path:
        return ""
    try:
        url = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{path}: the address of the journal cannot be read: {why}",
            hint="correct journalUrlFile or GITOPS_AGENT_JOURNAL_URL_FILE; the file holds one URL, nothing else",
        ) from problem
    if _PARTS.match(url) is None:
        raise UsageError(
            f"{path}: this is not the address of a PostgreSQL database",
            hint="write postgresql://user:password@host:5432/database; special characters of a password as %40",
        )
    return url


def journal_secrets(settings: Settings) -> list[str]:
    """The passwords of the journal, for a redactor; none when its address cannot be read."""
    try:
        place = journal_place(settings)
    except UsageError:
        return []
    return place.secrets if isinstance(place, SharedJournal) else []
