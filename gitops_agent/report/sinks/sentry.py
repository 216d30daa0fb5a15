"""The sink that sends unexpected errors to Sentry. Off, and not even imported, without a DSN.

A client of our own, bound for the time of one call, instead of ``sentry_sdk.init``: nothing global, no hooks into
libraries, nothing collected that we did not hand over. What we raise on purpose (``errors.py``) is a condition
that is reported elsewhere, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gitops_agent import __version__
from gitops_agent.errors import GitopsAgentError, UsageError
from gitops_agent.model.passes import PassResult
from gitops_agent.ports import Sink
from gitops_agent.settings import Settings
from gitops_agent.support.secrets import Redactor

if TYPE_CHECKING:
    from sentry_sdk.client import _Client

# What the SDK adds by itself and no report needs: the host, the command line, installed packages.
_DROPPED = ("server_name", "modules", "extra", "request", "user", "breadcrumbs", "threads")
_OPTIONS: Mapping[str, Any] = {
    "release": f"gitops-agent@{__version__}",
    "default_integrations": False,
    "auto_enabling_integrations": False,
    "auto_session_tracking": False,
    "send_client_reports": False,
    "include_local_variables": False,
    "max_request_body_size": "never",
    "max_breadcrumbs": 0,
    "server_name": "",
    "traces_sample_rate": None,
    "enable_backpressure_handling": False,
    "propagate_traces": False,
    "shutdown_timeout": 2,
}


class SentrySink(Sink):
    """Sends errors given to ``capture``; passes only name the commit they are filed under."""

    name = "sentry"

    def __init__(self, client: _Client, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._commit: str | None = None

    def on_pass(self, result: PassResult) -> None:
        """Remember the newest commit, which errors that name none are filed under."""
        self._commit = result.commit or self._commit

    def capture(self, error: BaseException, **about: str | None) -> None:
        """Send one unexpected error, and what it was about (commit, agent, driver); drop known conditions."""
        from sentry_sdk import new_scope

        tags = {**about, "commit": about.get("commit") or self._commit, "instance": self._instance}
        with new_scope() as scope:
            scope.set_client(self._client)
            scope.set_tags({name: value for name, value in tags.items() if value is not None})
            scope.capture_exception(error)

    def close(self, timeout: float = 2.0) -> None:
        """Send what is left (the transport drops what it cannot send) and end the transport."""
        self._client.close(timeout=timeout)


def setup_sentry(settings: Settings, redactor: Redactor) -> SentrySink | None:
    """The sink for the DSN in the settings; None without one; UsageError when it cannot work."""
    if not settings.sentry_dsn:
        return None
    try:
        from sentry_sdk import Client
        from sentry_sdk.utils import BadDsn
    except ImportError:
        raise UsageError(
            "sentryDsn is set, but the package sentry-sdk is not installed",
            hint="pip install 'gitops-agent[sentry]', or remove sentryDsn from the settings",
        ) from None
    try:
        client = Client(dsn=settings.sentry_dsn, before_send=partial(_scrubbed, redactor), **_OPTIONS)
    except BadDsn:
        # The DSN holds a key: it is not repeated.
        raise UsageError(
            "sentryDsn is not a DSN of Sentry",
            hint="expected https://KEY@HOST/PROJECT, as Sentry's settings show it",
        ) from None
    return SentrySink(client, settings.instance)


def _scrubbed(redactor: Redactor, event: Any, hint: dict[str, Any]) -> Any:
    """What is sent of an event, masked; None for a condition that we raised on purpose."""
    error = (hint.get("exc_info") or (None, None, None))[1]
    if isinstance(error, GitopsAgentError):
        return None
    return redactor.tree({key: value for key, value in event.items() if key not in _DROPPED})
