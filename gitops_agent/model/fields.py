"""Fields: the content of one resource as canonical JSON.

Keeping the bytes instead of nested dictionaries makes the value really immutable, equality and digests cheap,
and ten thousand agents small in memory; the few that differ are decoded on demand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

JSON = Any


def canonical(value: JSON) -> bytes:
    """The one byte form of a JSON value: sorted keys, no white space."""
    # A copy: what orjson returns keeps the whole 4 kB of its buffer alive, ten times what most values need.
    return bytes(memoryview(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)))


DIGEST_BYTES = 16


def digest(data: bytes) -> str:
    """A short stable name for some bytes (128 bits, hexadecimal)."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fields:
    """An immutable JSON object. Two are equal when their canonical bytes are."""

    raw: bytes

    @classmethod
    def of(cls, value: Mapping[str, JSON]) -> "Fields":
        """Freeze a mapping."""
        return cls(canonical(value))

    @property
    def value(self) -> dict[str, JSON]:
        """A new, mutable copy of the object."""
        decoded: dict[str, JSON] = orjson.loads(self.raw)
        return decoded

    @property
    def digest(self) -> str:
        """The digest of the canonical bytes."""
        return digest(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fields) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        # Content may hold what a log must not: show the name of the value, not the value.
        return f"Fields({self.digest[:12]})"
