"""The types documents are made of: strict models, and texts checked by pattern.

Durations and quantities stay the text that was written (checked in the compiled validator, which keeps ten
thousand documents fast); ``model/quantity.py`` turns them into numbers.
"""

from collections import Counter
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from gitops_agent.model.quantity import (
    CPU_PATTERN,
    DURATION_PATTERN,
    MEMORY_PATTERN,
    MOMENT_PATTERN,
    PERCENT_PATTERN,
    epoch,
)

API_VERSION = "gitops-agent.dev/v1"
API_GROUP = "gitops-agent.dev/"

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
URL_PATH_PATTERN = r"^/[^\s\x00-\x1f]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
AgentRef = Annotated[str, StringConstraints(pattern=REF_PATTERN)]
EnvName = Annotated[str, StringConstraints(pattern=ENV_PATTERN)]
LabelText = Annotated[str, StringConstraints(max_length=63, pattern=LABEL_PATTERN)]
Text = Annotated[str, StringConstraints(max_length=4096, pattern=TEXT_PATTERN)]
Word = Annotated[str, StringConstraints(max_length=256, pattern=WORD_PATTERN)]
Argument = Annotated[str, StringConstraints(max_length=32768, pattern=ARGUMENT_PATTERN)]
Duration = Annotated[str, StringConstraints(pattern=DURATION_PATTERN)]
Memory = Annotated[str, StringConstraints(pattern=MEMORY_PATTERN)]
Cpu = Annotated[str, StringConstraints(pattern=CPU_PATTERN)]
Percent = Annotated[str, StringConstraints(pattern=PERCENT_PATTERN)]
HttpUrl = Annotated[str, StringConstraints(pattern=URL_PATTERN, max_length=2048)]
RelativePath = Annotated[str, StringConstraints(max_length=1024, pattern=WORD_PATTERN)]


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


class Strict(BaseModel):
    """Camel case outside, frozen inside, nothing unknown, nothing coerced."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=False,
        allow_inf_nan=False,
        # A rejected document may hold what no traceback must show.
        hide_input_in_errors=True,
    )


class SecretRef(Strict):
    """Where a secret is found; the secret itself is never written in Git."""

    provider: Literal["env", "file"]
    name: Word

    @model_validator(mode="after")
    def _names_a_variable(self) -> "SecretRef":
        if self.provider == "env" and not (self.name.isascii() and self.name.isidentifier()):
            raise ValueError("with provider env, name is that of an environment variable")
        return self


class Metadata(Strict):
    """The name of a document."""

    name: Name
    tenant: Name | None = None
    labels: dict[LabelText, LabelText] = Field(default_factory=dict)
