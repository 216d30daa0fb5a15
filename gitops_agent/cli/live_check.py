"""What ``doctor --live`` asks, in a module of its own: a health check runs all day, so it loads little."""

from gitops_agent.settings import Settings
from gitops_agent.support.http import HttpError, request

_TIMEOUT_SECONDS = 5
_MAX_BYTES = 4096
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - where to ask, not where to listen


def live_answer(settings: Settings) -> tuple[bool, str]:
    """Whether the gitops-agent that serves ``listen`` is alive, and its words. A standby is alive as well."""
    host, _, port = settings.listen.rpartition(":")
    if not port.strip("0"):
        return False, "no known port is served: give `listen` one"
    where = f"{_LOOPBACK.get(host, host)}:{port}"
    try:
        answer = request("GET", f"http://{where}/livez", timeout=_TIMEOUT_SECONDS, body_cap=_MAX_BYTES)
    except HttpError as problem:
        return False, f"{where} does not answer: {problem}"
    return answer.status == 200, answer.body.decode(errors="replace").strip()
