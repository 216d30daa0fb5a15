"""Where the source is, and what its branch and folder are called: our own allow-list grammar. Pure.

Every address from an operator or a file passes through these functions before git or GitPython sees it.
What is not plainly one of the accepted forms is refused; nothing is repaired, expanded or guessed. Error
texts never repeat user-info or a query, because passwords are put there.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from gitops_agent.errors import UsageError
from gitops_agent.support.text import clipped, escape_control

_Refuse = Callable[..., UsageError]

FORMS = "/path/to/repo, file:///path/to/repo, https://host/repo.git, ssh://git@host/repo.git or git@host:repo.git"

_HOST = r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
_USER = r"(?P<user>[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63})"
_PORT = r"(?::(?P<port>[0-9]{1,5}))?"
_REST = r"[A-Za-z0-9_~][A-Za-z0-9_.~+@%=,:/-]*"
_URL = re.compile(rf"(?:https?|ssh)://(?:{_USER}@)?{_HOST}{_PORT}(?P<path>/{_REST})", re.ASCII)
_SCP = re.compile(rf"(?:{_USER}@)?{_HOST}:(?P<path>/?{_REST})", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z0-9+.-]*:/")
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_USERINFO = re.compile(r"//[^/@]*@")

_REF = re.compile(r"\w[\w./+#@=,-]*")
_REVISION = re.compile(r"(?P<name>@|\w[\w./+#@=,-]*)(?P<walk>(?:[~^][0-9]{0,6})*)")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Address:
    """A repository. ``kind``: path, file, http, https or ssh. ``target``: what git is given. It holds no
    credentials, so it may be shown anywhere."""

    kind: str
    target: str
    host: str = ""
    port: int | None = None

    @property
    def local(self) -> Path | None:
        """The folder of a local repository; None for a remote one."""
        return Path(self.target) if self.kind in ("path", "file") else None

    @property
    def protocol(self) -> str:
        """The one protocol git may speak for this address, by git's name for it."""
        return "file" if self.local else self.kind


def display(text: str) -> str:
    """Untrusted text for an error: no user-info, no query, no control characters, not long."""
    shown = _USERINFO.sub("//***@", text).split("?", 1)[0]
    return clipped(escape_control(shown), 200)


def _refuse(what: str, text: str, found: str, hint: str = f"expected one of: {FORMS}") -> UsageError:
    return UsageError(f"{what} {display(text)!r}: {found}", hint=hint)


def parse_address(text: str, base_dir: Path | None = None) -> Address:
    """The address that a text gives; relative paths are taken from ``base_dir``. UsageError otherwise."""
    refuse = partial(_refuse, "repository", text)
    if not text.strip():
        raise UsageError("no repository is given", hint=f"give --repo or GITOPS_AGENT_REPO: {FORMS}")
    if _CONTROL.search(text):
        raise refuse("it contains a control character")
    if len(text) > 2048:
        raise refuse("it is longer than 2048 characters")
    if text.startswith("-"):
        raise refuse("it starts with a dash, so git could take it for an option")
    if "$" in text or text.startswith("~"):
        raise refuse("variables and ~ are not expanded", "write the address in full")
    if _HELPER.match(text):
        raise refuse("remote helpers (name::…) run commands and are not allowed")
    if text.lower().startswith("file:"):
        return _file(text, refuse)
    if _SCHEME.match(text):
        return _url(text, refuse)
    return _scp(text, refuse) or _path(text, base_dir, refuse)


def _file(text: str, refuse: _Refuse) -> Address:
    """``file:///absolute``; with a host it would mean another machine, which git does not do."""
    path = unquote(text[len("file://") :])
    if not text.startswith("file:///") or _CONTROL.search(path):
        raise refuse("a file address is file:// and an absolute path")
    if "?" in text or "#" in text:
        raise refuse("a file address has neither ? nor #", "give the folder by its plain path instead")
    return Address("file", str(Path(path)))


def _url(text: str, refuse: _Refuse) -> Address:
    scheme = text.split(":", 1)[0]
    if scheme not in ("http", "https", "ssh"):
        raise refuse(f"{scheme} is not an accepted protocol")
    authority = text.split("/", 3)[2] if text.count("/") >= 2 else ""
    if "@" in authority and scheme != "ssh":
        raise refuse(
            "user and password do not belong in the address",
            "remove them and set tokenFile or tokenEnv (and username)",
        )
    if "@" in authority and ":" in authority.rsplit("@", 1)[0]:
        raise refuse("a password does not belong in the address", "remove it and set sshKey and knownHosts")
    found = _URL.fullmatch(text)
    if found is None or _has_dots(found["path"]):
        raise refuse("it is not a plain URL (scheme, host, port, path)")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65536:
        raise refuse("the port is not between 1 and 65535")
    return Address(scheme, text, found["host"].lower(), port)


def _scp(text: str, refuse: _Refuse) -> Address | None:
    """``git@host:path``: only when no slash comes before the first colon, as git reads it."""
    if ":" not in text or "/" in text.split(":", 1)[0]:
        return None
    found = _SCP.fullmatch(text)
    if found is None or _has_dots(found["path"]):
        raise refuse("it is neither user@host:path nor a path", "write a path with a colon as ./a:b")
    return Address("ssh", text, found["host"].lower())


def _path(text: str, base_dir: Path | None, refuse: _Refuse) -> Address:
    path = Path(text)
    if not path.is_absolute():
        if base_dir is None:
            raise refuse("a relative path means nothing here", "give the absolute path")
        path = base_dir / path
    return Address("path", str(path))


def _has_dots(path: str) -> bool:
    """Whether a part of a path is ``..``, also when it is percent-encoded."""
    return ".." in unquote(path).split("/")


def check_ref(name: str) -> str:
    """The branch name, if it is one; UsageError otherwise."""
    hint = "expected a branch name such as main or team/prod"
    if _OBJECT_ID.fullmatch(name):
        raise _refuse("branch", name, "this is a commit id", hint)
    if name.startswith("refs/"):
        raise _refuse("branch", name, "this is a full ref", "leave refs/heads/ away")
    if name in ("HEAD", "@") or not _REF.fullmatch(name) or not _well_formed(name):
        raise _refuse("branch", name, "this is not a name git accepts for a branch", hint)
    return name


def _well_formed(name: str) -> bool:
    """What git itself asks of a ref name, for names of our characters."""
    parts = name.split("/")
    plain = all(part and not part.startswith((".", "-")) and not part.endswith((".lock", ".")) for part in parts)
    return plain and ".." not in name and len(name.encode()) <= 200


def check_revision(text: str) -> tuple[str, str]:
    """The name and walk of a commit reference (sha, branch, ``HEAD~2``); UsageError otherwise."""
    found = _REVISION.fullmatch(text)
    if found is None or not (found["name"] == "@" or _well_formed(found["name"])):
        raise _refuse("commit", text, "this does not name a commit", "give a sha, a branch or HEAD~1")
    name = "HEAD" if found["name"] == "@" else found["name"]
    return name, found["walk"]


def check_path(path: str) -> str:
    """The sub-folder in its one spelling ("" for the whole repository); UsageError when it could leave it."""
    hint = "expected a folder inside the repository, such as clusters/prod"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith(("/", "~", "-")) or ".." in parts:
        raise _refuse("path", path, "it does not stay inside the repository", hint)
    if _CONTROL.search(path) or any(mark in path for mark in "\\:$"):
        raise _refuse("path", path, "it contains a character that is not allowed", hint)
    if any(part.lower() == ".git" or part.startswith("-") for part in parts) or len(path) > 1024:
        raise _refuse("path", path, "it cannot be a folder of the repository", hint)
    return "/".join(parts)
