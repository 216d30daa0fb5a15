"""One probe: an HTTP request to the address of an agent, or a command run as the agent."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from gitops_agent.drivers.api import ExecResult, Executing, RunAs
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.targets import HealthTarget, ProbeSpec
from gitops_agent.support.http import HttpError, request
from gitops_agent.support.text import one_line

_READ_CAP_BYTES = 4096
_HEADERS = {"User-Agent": "gitops-agent-probe"}
_COMMAND_CHARACTERS, _ANSWER_CHARACTERS = 60, 200


def timeout_of(spec: ProbeSpec) -> float:
    """How many seconds a probe has to answer."""
    return seconds(spec.get("timeout", "1s")) or 1.0


def probe(spec: ProbeSpec, target: HealthTarget) -> ExecResult:
    """The answer of one probe; what goes wrong is an answer too, never an exception.
    An HTTP probe reaches the addresses that the driver reports and nothing else, whatever a document says. Where
    there are several, all must answer."""
    timeout = timeout_of(spec)
    try:
        if http_spec := spec.get("http"):
            return _http(target.addresses, http_spec["port"], http_spec.get("path", "/"), timeout)
        if target.executing is None:
            return ExecResult(False, "this runtime cannot run commands")
        return _exec(spec["exec"]["command"], target, timeout, target.executing)
    except (Exception, SystemExit) as problem:  # one agent's probe must not stop those of its siblings
        return ExecResult(False, f"unexpected {type(problem).__name__} in the probe")


def _exec(command: Sequence[str], target: HealthTarget, timeout: float, executing: Executing) -> ExecResult:
    """The answer of a command run as one copy, with the command and the begin of its output."""
    answer = executing.exec(target.agent, command, timeout, RunAs(instance=target.instance))
    shown = one_line(shlex.join(command), _COMMAND_CHARACTERS)
    return replace(answer, message=f"{shown}: {one_line(answer.message, _ANSWER_CHARACTERS)}")


def _http(addresses: Sequence[str], port: int, path: str, timeout: float) -> ExecResult:
    """The answer of the first address that fails, or of the last."""
    answer = ExecResult(False, f"GET :{port}{path}: the runtime reports no address to probe")
    for address in addresses:
        asked = f"GET {address if len(addresses) > 1 else ''}:{port}{path}"
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"
        try:
            status = request("GET", url, timeout=timeout, headers=_HEADERS, body_cap=_READ_CAP_BYTES).status
        except HttpError as problem:
            return ExecResult(False, f"{asked}: {problem}")
        answer = ExecResult(200 <= status < 400, f"{asked}: {status}")
        if not answer.ok:
            break
    return answer
