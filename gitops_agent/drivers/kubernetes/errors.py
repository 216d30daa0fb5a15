"""What the API server, or the way to it, answers instead of success: one error, and what it means for an action.

The only place that reads the texts of the API server. Every kind of refusal has its own ``reason``, sentence and
way out; ``permanent`` only where nothing but a new commit can help.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from gitops_agent.drivers.api import ApplyError, NotYet, ObserveError

REFUSED, CUT, TIMEOUT, TLS, UNREACHABLE = (
    "ConnectionRefused",
    "ConnectionCut",
    "Timeout",
    "TlsFailed",
    "Unreachable",
)
"""Reasons of errors without an answer (``status`` 0)."""

_OF_CLUSTER = frozenset({REFUSED, CUT, TIMEOUT, TLS, UNREACHABLE})
_OF_CLUSTER |= {"Unauthorized", "ServerError", "Unavailable", "ConversionFailed"}
"""Reasons that any other request may meet as well; all others are about one agent, its tenant or its namespace."""

GONE_SECONDS = 2.0
THROTTLED_SECONDS = 1.0
_MAX_FIELDS = 5
_MAX_TEXT = 500
_MAX_WAIT_SECONDS = 3600.0


class Cause(NamedTuple):
    """One detail of a refusal: the field it is about, and what is said of it."""

    reason: str
    field: str
    message: str


class ApiError(Exception):
    """A request that did not succeed. ``status``: that of HTTP, 0 when no answer came. ``reason``: a word of the
    API, or one of the constants above. ``retry_after``: seconds that the server asked to wait."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        causes: tuple[Cause, ...] = (),
    ) -> None:
        super().__init__(f"{status or 'no answer'} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message
        self.retry_after, self.causes = retry_after, causes

    @property
    def answered(self) -> bool:
        """Whether the API server answered at all."""
        return self.status != 0

    @property
    def expired(self) -> bool:
        """Whether the version that was asked for is too old (410): list again."""
        return self.status == 410 or self.reason in ("Expired", "Gone")


class Rejected(ApplyError):
    """An action that the API server did not carry out. ``reason``: one word for what stood in the way.
    ``conflicts``: the fields that another manager owns, with its name."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        hint: str = "",
        permanent: bool = False,
        conflicts: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message, hint=hint, permanent=permanent, of_system=reason in _OF_CLUSTER)
        self.reason, self.conflicts = reason, conflicts


class Delayed(NotYet):
    """Nothing was done, as the API server asks for patience. ``retry_after``: for how many seconds."""

    def __init__(self, reason: str, message: str, *, retry_after: float, hint: str = "") -> None:
        super().__init__(message, hint=hint, retry_after=retry_after)
        self.reason = reason


def from_status(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error that an answer of the API server says, be it a Status object or the page of a proxy."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        text = body[:_MAX_TEXT].decode("utf-8", "replace").strip()
        said = {"message": text or f"HTTP {status}"}
    return from_status_object(said, status, headers.get("Retry-After"))


def from_status_object(said: Mapping[str, Any], status: int = 0, retry_after: str | None = None) -> ApiError:
    """The error that a Status object says, such as the object of an ERROR event of a watch."""
    code = said.get("code")
    number = status or (code if isinstance(code, int) else 500)
    details = said.get("details")
    details = details if isinstance(details, dict) else {}
    causes = tuple(
        Cause(str(each.get("reason", "")), str(each.get("field", "")), str(each.get("message", "")))
        for each in details.get("causes") or ()
        if isinstance(each, dict)
    )
    asked = _seconds(retry_after) or _seconds(details.get("retryAfterSeconds"))
    reason = str(said.get("reason") or _REASONS.get(number, "Unknown"))
    return ApiError(number, reason, str(said.get("message") or reason), asked, causes)


_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Gone", 422: "Invalid"}
_REASONS |= {429: "TooManyRequests", 500: "InternalError", 502: "BadGateway", 503: "ServiceUnavailable"}
_REASONS |= {504: "Timeout"}


def _seconds(text: object) -> float | None:
    try:
        wait = float(str(text))
    except ValueError:
        return None
    return min(wait, _MAX_WAIT_SECONDS) if wait > 0 else None


# -- what an error means for an action

_RBAC = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?:.* in the namespace "(?P<namespace>[^"]*)")?'
)
_QUOTA = re.compile(r"exceeded quota: (?P<name>[^,]+), (?P<numbers>requested: .*)")
_QUOTA_UNSET = re.compile(r"failed quota: (?P<name>[^:]+): (?P<numbers>must specify .*)")
_WEBHOOK = re.compile(
    r'admission webhook "(?P<name>[^"]+)" denied the request(?: without explanation)?:? ?(?P<why>.*)'
)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)'.* denied request: (?P<why>.*)")
_POD_SECURITY = re.compile(r'violates (?P<name>PodSecurity "[^"]+"): (?P<why>.*)')
_CALL_FAILED = re.compile(r'failed calling webhook "(?P<name>[^"]+)"')
_MANAGER = re.compile(r'conflict with "(?P<manager>[^"]+)"')
_TERMINATING = "because it is being terminated"
_SLOW = "check the network and the API server's load"
_NOT_SERVED = ("could not find the requested resource", "page not found")
_APPLYING = re.compile(r"apply (?P<kind>\w+) (?P<namespace>[^/]+)/(?P<name>.+)")
_IMMUTABLE = ("immutable", "updates to statefulset spec", "may not change once set")
_NOT_TYPED = "failed to create typed patch object"
"""A field of the wrong type, for which the API server blames itself (500)."""


FENCING = "gitops-agent-fencing"
_NO_PARAMS = "no params found"
_NO_LEASE = "its binding must name the Lease of this instance: paramRef.name is gitops-agent-<instance>"


def apply_error(problem: ApiError, doing: str) -> Rejected | Delayed:
    """What an error means for the action that it ended. ``doing``: what was tried, as in ``apply Deployment
    a/b``."""
    if not problem.answered:
        return _transport(problem, doing)
    rule = _BY_STATUS.get(problem.status)
    if rule is None:
        rule = _server if problem.status >= 500 else _other
    return rule(problem, doing)


def observe_error(problem: ApiError, doing: str) -> ObserveError:
    """What an error means for a look at the cluster."""
    if problem.reason in (CUT, TIMEOUT) and not problem.answered:
        return ObserveError(f"{doing}: {problem.message}", hint=_SLOW)
    meant = apply_error(problem, doing)
    return ObserveError(meant.message, hint=meant.hint)


def missing_right(problem: ApiError) -> str:
    """The right that is missing, as in ``list secrets in namespace a``; "" when that is not the problem."""
    found = _RBAC.search(problem.message) if problem.status == 403 else None
    if found is None:
        return ""
    group = found["group"]
    resource = found["resource"] + (f".{group}" if group else "")
    where = f"in namespace {found['namespace']}" if found["namespace"] else "in all namespaces"
    return f"{found['verb']} {resource} {where}"


def _transport(problem: ApiError, doing: str) -> Rejected:
    unknown = "whether it happened is not known; trying again is safe"
    if problem.reason == REFUSED:
        return Rejected(
            problem.reason,
            f"{doing}: the API server does not accept connections: {problem.message}",
            hint="check that it runs, and the address in the kubeconfig",
        )
    if problem.reason == TLS:
        return Rejected(
            problem.reason,
            f"{doing}: the certificate of the API server is not trusted: {problem.message}",
            hint="check certificate-authority and server in the kubeconfig",
        )
    if problem.reason == UNREACHABLE:
        return Rejected(
            problem.reason,
            f"{doing}: the API server cannot be reached: {problem.message}",
            hint="check the network and the address in the kubeconfig",
        )
    return Rejected(problem.reason, f"{doing}: {problem.message}; {unknown}", hint=_SLOW)


def _unauthorized(_problem: ApiError, doing: str) -> Rejected:
    return Rejected(
        "Unauthorized",
        f"{doing}: the API server does not accept our credentials",
        hint="renew the token or the certificate in the kubeconfig, which is read again when it changes",
    )


def _forbidden(problem: ApiError, doing: str) -> Rejected | Delayed:
    text = problem.message
    if any(cause.reason == "NamespaceTerminating" for cause in problem.causes) or _TERMINATING in text:
        return _terminating(doing)
    right = missing_right(problem)
    if right:
        found = _RBAC.search(text)
        user = found["user"] if found else ""
        return Rejected("Forbidden", f"{doing}: {user} may not {right}", hint=f"grant it by a Role: {right}")
    quota = _QUOTA.search(text) or _QUOTA_UNSET.search(text)
    if quota:
        return Rejected(
            "QuotaExceeded",
            f"{doing}: quota {quota['name']} is used up ({quota['numbers']})",
            hint=f"raise ResourceQuota {quota['name']}, ask for less, or retire agents",
        )
    return _denied(problem, doing)


def _denied(problem: ApiError, doing: str) -> Rejected:
    """A refusal by admission, named by who refused."""
    text = problem.message
    for kind, pattern in (("webhook ", _WEBHOOK), ("policy ", _POLICY), ("", _POD_SECURITY)):
        found = pattern.search(text)
        if found:
            who = f"{kind}{found['name']}"
            why = found["why"] or "no reason was given"
            way_out = _NO_LEASE if _NO_PARAMS in why and found["name"] == FENCING else f"follow or change {who}"
            return Rejected("AdmissionDenied", f"{doing}: {who} denied it: {why}", hint=way_out)
    return Rejected(
        "AdmissionDenied", f"{doing}: the cluster denied it: {text}", hint="see the cluster's policies"
    )


def _invalid(problem: ApiError, doing: str) -> Rejected:
    if _WEBHOOK.search(problem.message) or _POLICY.search(problem.message):
        return _denied(problem, doing)
    fields = [f"{each.field}: {each.message}" for each in problem.causes if each.field][:_MAX_FIELDS]
    more = len(problem.causes) - len(fields)
    listed = "; ".join(fields) + (f" and {more} more" if fields and more > 0 else "")
    return Rejected(
        "Invalid",
        f"{doing}: the API server calls it invalid: {listed or problem.message}",
        hint=_anew(doing, problem.message) or "correct runtime.kubernetes in the document",
        permanent=True,
    )


def _anew(doing: str, message: str) -> str:
    """How an object is made anew, where a field of it cannot be changed; "" where that is not the problem."""
    found = _APPLYING.fullmatch(doing)
    if found is None or not any(text in message for text in _IMMUTABLE):
        return ""
    what = f"{found['kind'].lower()} {found['name']}"
    deleted = f"kubectl -n {found['namespace']} delete {what} --cascade=orphan"
    return f"undo it, or: {deleted}; gitops-agent retry {found['name']} makes it again at once"


def _not_found(problem: ApiError, doing: str) -> Rejected | Delayed:
    if problem.message.startswith("namespaces "):
        return Rejected(
            "NamespaceGone",
            f"{doing}: its namespace is gone ({problem.message})",
            hint="it is made again with the next try; without the right for that, make it by hand",
        )
    if any(text in problem.message for text in _NOT_SERVED):
        return Rejected("NotServed", f"{doing}: this cluster does not serve that kind", hint="check its version")
    return Rejected("NotFound", f"{doing}: {problem.message}", hint="it is looked at again with the next pass")


def _conflict(problem: ApiError, doing: str) -> Rejected | Delayed:
    conflicts = tuple(
        (cause.field, found["manager"])
        for cause in problem.causes
        if cause.reason == "FieldManagerConflict" and (found := _MANAGER.search(cause.message))
    )
    if conflicts:
        listed = ", ".join(f"{name} ({manager})" for name, manager in conflicts[:_MAX_FIELDS])
        more = f" and {len(conflicts) - _MAX_FIELDS} more" if len(conflicts) > _MAX_FIELDS else ""
        return Rejected(
            "FieldConflict",
            f"{doing}: others manage these fields: {listed}{more}",
            hint="leave the fields out of Git, or give Git authority over them",
            conflicts=conflicts,
        )
    if problem.reason == "AlreadyExists":
        if "being deleted" in problem.message:
            return Delayed("Terminating", f"{doing}: it is still being deleted", retry_after=GONE_SECONDS)
        return Rejected(
            "AlreadyExists", f"{doing}: it is already there", hint="looked at again with the next pass"
        )
    if _TERMINATING in problem.message:
        return _terminating(doing)
    return Rejected(
        "Changed",
        f"{doing}: it was changed or replaced by another in the meantime",
        hint="it is looked at again with the next pass",
    )


def _terminating(doing: str) -> Delayed:
    return Delayed(
        "Terminating",
        f"{doing}: its namespace is being deleted",
        retry_after=GONE_SECONDS,
        hint="it is made again when that is over; if it hangs, see kubectl describe namespace",
    )


def _expired(_problem: ApiError, doing: str) -> Rejected:
    return Rejected(
        "Expired", f"{doing}: what we know of it is too old", hint="looked at again with the next pass"
    )


def _throttled(problem: ApiError, doing: str) -> Delayed:
    wait = problem.retry_after or THROTTLED_SECONDS
    return Delayed(
        "Throttled",
        f"{doing}: the API server is busy and asks to wait {wait:g} s; nothing was done",
        retry_after=wait,
        hint="see its priority and fairness settings if this lasts",
    )


def _server(problem: ApiError, doing: str) -> Rejected:
    if _NOT_TYPED in problem.message:
        return _invalid(problem, doing)
    found = _CALL_FAILED.search(problem.message)
    if found:
        name = found["name"]
        return Rejected(
            "WebhookUnavailable",
            f"{doing}: webhook {name} does not answer, and nothing passes without it",
            hint=f"repair webhook {name}, or set its failurePolicy to Ignore",
        )
    if "conversion webhook" in problem.message:
        return Rejected(
            "ConversionFailed", f"{doing}: {problem.message}", hint="repair the conversion webhook of that kind"
        )
    return Rejected(
        "ServerError" if problem.status == 500 else "Unavailable",
        f"{doing}: the API server failed ({problem.status}: {problem.message}); trying again is safe",
        hint="see the logs of the API server if this lasts",
    )


def _bad_request(problem: ApiError, doing: str) -> Rejected:
    if _WEBHOOK.search(problem.message) or _POLICY.search(problem.message):
        return _denied(problem, doing)
    return Rejected(
        "BadRequest",
        f"{doing}: the API server cannot read it: {problem.message}",
        hint="correct runtime.kubernetes in the document",
        permanent=True,
    )


def _other(problem: ApiError, doing: str) -> Rejected:
    if _WEBHOOK.search(problem.message):
        return _denied(problem, doing)
    return Rejected(problem.reason, f"{doing}: {problem.message} ({problem.status})")


_BY_STATUS: Mapping[int, Callable[[ApiError, str], Rejected | Delayed]] = {
    400: _bad_request,
    401: _unauthorized,
    403: _forbidden,
    404: _not_found,
    409: _conflict,
    410: _expired,
    422: _invalid,
    429: _throttled,
}
