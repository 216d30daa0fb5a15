"""The values of secrets that agents refer to: resolved here, written into the cluster, and never kept by us.

Whether a secret was rotated since is told by a salted digest on the Secret object itself: who may read that may
read the Secret as well, so it gives nothing away. The salt alone, which is chance, names the writing: the template
of the pods carries it, so that pods of an earlier one are known, whatever ended us between the two.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from gitops_agent.drivers.api import ApplyError, Redactor
from gitops_agent.drivers.local.environment import resolved
from gitops_agent.drivers.local.secret_files import SecretFiles

_SALT_BYTES = 16


class SecretValues:
    """Resolves references. Teaches the redactor every value."""

    def __init__(self, redactor: Redactor, environment: Mapping[str, str] | None = None) -> None:
        self._redactor = redactor
        self._environment = os.environ if environment is None else environment
        self._files = SecretFiles()

    def resolve(
        self, owner: str, references: Iterable[Mapping[str, Any]], *, look: bool = False
    ) -> dict[str, str]:
        """The values by name; ApplyError names what cannot be had. ``look``: for a comparison, so do not wait."""
        read = self._files.look if look else self._files.read
        found = {}
        for each in references:
            source = f"{owner}: variable {each['name']} cannot be set"
            found[each["name"]] = resolved(source, each["secretRef"], self._environment, read)
        self._redactor.learn(found.values())
        return found

    def is_rotated(self, owner: str, references: Iterable[Mapping[str, Any]], mark: str) -> bool:
        """Whether the values of now differ from those that a mark was made of. What cannot be read now is not
        taken to be rotated: the next apply would say what is missing."""
        try:
            return bool(mark) and not fits(mark, self.resolve(owner, references, look=True))
        except ApplyError:
            return False


def encoded(values: Mapping[str, str]) -> dict[str, str]:
    """The values as a Secret holds them."""
    return {name: base64.b64encode(_bytes(value)).decode() for name, value in values.items()}


def decoded(data: Mapping[str, str]) -> dict[str, str]:
    """The values that a Secret holds."""
    return {name: base64.b64decode(value).decode("utf-8", "surrogateescape") for name, value in data.items()}


def marked(values: Mapping[str, str], salt: str = "") -> str:
    """A mark by which the same values are known again: a salt and a digest."""
    salt = salt or secrets.token_hex(_SALT_BYTES)
    hashed = blake2b(salt.encode(), digest_size=32)
    for name in sorted(values):
        hashed.update(blake2b(name.encode()).digest() + blake2b(_bytes(values[name])).digest())
    return f"{salt}.{hashed.hexdigest()}"


def fits(mark: str, values: Mapping[str, str]) -> bool:
    """Whether a mark was made of these values."""
    # As bytes: a mark that was edited by hand may be any text, and only ASCII is compared as text.
    return secrets.compare_digest(mark.encode(), marked(values, writing_of(mark)).encode())


def writing_of(mark: str) -> str:
    """The writing of a Secret that a mark is of: the salt, of which nothing about the values can be learned."""
    return mark.partition(".")[0]


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")
