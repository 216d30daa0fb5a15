"""What every model of a document is built on: strictness, rules over two fields, and where secrets are found."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo
from pydantic.alias_generators import to_camel

from gitops_agent.model.scalars import Word

ONE_SOURCE = "give exactly one of value and valueFrom"


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


# Rules over two fields are rules of the later one, so that no other error hides them.


def _names_a_variable(name: str, info: ValidationInfo) -> str:
    if info.data.get("provider") == "env" and not (name.isascii() and name.isidentifier()):
        raise ValueError("with provider env, name is that of an environment variable")
    return name


def instead_of(other: str, rule: str) -> AfterValidator:
    """A field that may only be given when another one is not."""

    def alone(value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get(other) is not None:
            raise ValueError(rule)
        return value

    return AfterValidator(alone)


class SecretRef(Strict):
    """Where a secret is found; the secret itself is never written in Git."""

    provider: Literal["env", "file"]
    name: Annotated[Word, AfterValidator(_names_a_variable)]


class ValueFrom(Strict):
    """The source of an environment variable that is not written in Git."""

    secret_ref: SecretRef
