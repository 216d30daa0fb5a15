"""The values that stand in documents: names, texts, durations, addresses, patches; what each may look like.

They stay the text that was written, and are checked in the compiled validator, which keeps ten thousand documents
fast; ``model/quantity.py`` turns durations and amounts into numbers.
"""

from collections import Counter
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from gitops_agent.model.quantity import (
    CPU_PATTERN,
    DURATION_PATTERN,
    MEMORY_PATTERN,
    MOMENT_PATTERN,
    PERCENT_PATTERN,
    epoch,
    seconds,
)

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
REF_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"
ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
LABEL_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
# Text reaches terminals, notes and pages: control characters other than tab and line feed stop here.
TEXT_PATTERN = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"
WORD_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]+$"
ARGUMENT_PATTERN = r"^[^\x00]*$"
URL_PATTERN = r"^https?://[A-Za-z0-9.\-\[\]:]+(/[^\s\x00-\x1f]*)?$"
HOST_PATTERN = r"^[a-z0-9_]([a-z0-9.\-_]{0,251}[a-z0-9])?$"
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$"
HEADER_VALUE_PATTERN = r"^[\x20-\x7e]*$"
URL_PATH_PATTERN = r"^/[^\s\x00-\x1f]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
AgentRef = Annotated[str, StringConstraints(pattern=REF_PATTERN)]
EnvName = Annotated[str, StringConstraints(pattern=ENV_PATTERN)]
LabelText = Annotated[str, StringConstraints(max_length=63, pattern=LABEL_PATTERN)]
Text = Annotated[str, StringConstraints(max_length=4096, pattern=TEXT_PATTERN)]
Word = Annotated[str, StringConstraints(max_length=256, pattern=WORD_PATTERN)]
Argument = Annotated[str, StringConstraints(max_length=32768, pattern=ARGUMENT_PATTERN)]
Memory = Annotated[str, StringConstraints(pattern=MEMORY_PATTERN)]
Cpu = Annotated[str, StringConstraints(pattern=CPU_PATTERN)]
Percent = Annotated[str, StringConstraints(pattern=PERCENT_PATTERN)]
HttpUrl = Annotated[str, StringConstraints(pattern=URL_PATTERN, max_length=2048)]
HeaderName = Annotated[str, StringConstraints(pattern=HEADER_PATTERN)]
HeaderValue = Annotated[str, StringConstraints(pattern=HEADER_VALUE_PATTERN, max_length=4096)]
RelativePath = Annotated[str, StringConstraints(max_length=1024, pattern=WORD_PATTERN)]


# Whatever waits is bounded: nothing that is written in a document may hold us, or itself, for ever.


class OutOfBounds(ValueError):
    """A value of the right form that says too little or too much; the message is what was expected."""


class Bounds:
    """The shortest and the longest duration that a field takes, both as people write them."""

    def __init__(self, longest: str, shortest: str = "0s") -> None:
        self.expected = f"a duration of at most {longest}"
        self.expected += "" if shortest == "0s" else f" and at least {shortest}"
        self._shortest, self._longest = seconds(shortest), seconds(longest)

    def __call__(self, text: str) -> str:
        """The same text; an error when it says too little or too much."""
        if not self._shortest <= seconds(text) <= self._longest:
            raise OutOfBounds(self.expected)
        return text


_Length = Annotated[str, StringConstraints(pattern=DURATION_PATTERN)]
Duration = Annotated[_Length, AfterValidator(Bounds("30d"))]
UpToADay = Annotated[_Length, AfterValidator(Bounds("24h"))]
UpToAnHour = Annotated[_Length, AfterValidator(Bounds("1h"))]
ProbePeriod = Annotated[_Length, AfterValidator(Bounds("1h", "100ms"))]
ProbeTimeout = Annotated[_Length, AfterValidator(Bounds("1m", "1ms"))]
HookTimeout = Annotated[_Length, AfterValidator(Bounds("1h", "1ms"))]


def _real(moment: str) -> str:
    epoch(moment)
    return moment


Moment = Annotated[str, StringConstraints(pattern=MOMENT_PATTERN), AfterValidator(_real)]

_OPERANDS = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": None}


def _is_pointer(value: object) -> bool:
    return isinstance(value, str) and (value == "" or value.startswith("/"))


def _patch(patch: dict[str, Any]) -> dict[str, Any]:
    """One operation of RFC 6902."""
    operation = patch.get("op")
    if not isinstance(operation, str) or operation not in _OPERANDS:
        raise ValueError(f"op must be one of {', '.join(_OPERANDS)}")
    operand = _OPERANDS[operation]
    if not _is_pointer(patch.get("path")) or (operand == "from" and not _is_pointer(patch.get("from"))):
        raise ValueError("path and from are JSON pointers such as /spec/runtime/replicas")
    if operand is not None and operand not in patch:
        raise ValueError(f"{operation} needs {operand}")
    return patch


Patch = Annotated[dict[str, Any], AfterValidator(_patch)]

_Named = TypeVar("_Named")


def distinct(items: tuple[_Named, ...]) -> tuple[_Named, ...]:
    """Refuse two items of one name: which of them holds would be a guess."""
    names = [getattr(item, "name", item) for item in items]
    if len(set(names)) != len(names):
        twice = sorted(str(name)[:64] for name, count in Counter(names).items() if count > 1)[:5]
        raise ValueError(f"each name may stand once; given more than once: {', '.join(twice)}")
    return items


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""A list in settings; in the environment it is written with commas."""
