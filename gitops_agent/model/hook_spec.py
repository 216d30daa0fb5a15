"""What a document says about hooks: a command or an HTTP call, once in the life of an agent."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from gitops_agent.model.scalars import Argument, HeaderName, HeaderValue, HookTimeout, HttpUrl, distinct
from gitops_agent.model.strict import ONE_SOURCE, Strict, ValueFrom, instead_of

ONE_CALL = "give exactly one of command and http"

OWN_HEADERS = frozenset(
    {
        *("host", "content-length", "content-type", "connection", "transfer-encoding", "te", "trailer"),
        *("expect", "upgrade", "user-agent", "idempotency-key"),
    }
)
"""Headers that belong to the request itself, in lower case: never authored."""


def _free(name: str) -> str:
    if name.lower() in OWN_HEADERS:
        raise ValueError("this header is set by gitops-agent")
    return name


def _distinct_headers(headers: "tuple[Header, ...]") -> "tuple[Header, ...]":
    distinct(tuple(header.name.lower() for header in headers))
    return headers


class Header(Strict):
    """One header of an HTTP call: its value, or where that is found (all of it, such as ``Bearer …``)."""

    name: Annotated[HeaderName, AfterValidator(_free)]
    value: HeaderValue | None = None
    value_from: Annotated[ValueFrom | None, instead_of("value", ONE_SOURCE)] = None

    @model_validator(mode="after")
    def _one_source(self) -> "Header":
        if self.value is None and self.value_from is None:
            raise ValueError(ONE_SOURCE)
        return self


class HttpHook(Strict):
    """One HTTP call, with the idempotency key as a header. The host must be on the list ``hookHosts``."""

    url: HttpUrl
    method: Literal["POST", "PUT"] = "POST"
    headers: Annotated[tuple[Header, ...], Field(max_length=32), AfterValidator(_distinct_headers)] = ()


class Hook(Strict):
    """One call, made at most once: a command run as the agent, or an HTTP call."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1)] | None = None
    http: Annotated[HttpHook | None, instead_of("command", ONE_CALL)] = None
    timeout: HookTimeout = "30s"

    @model_validator(mode="after")
    def _one_way(self) -> "Hook":
        if self.command is None and self.http is None:
            raise ValueError(ONE_CALL)
        return self


class Hooks(Strict):
    """What is called once in the life of an agent: when it is Ready for the first time, and when it has ended."""

    on_provisioned: Hook | None = None
    on_retired: Hook | None = None
