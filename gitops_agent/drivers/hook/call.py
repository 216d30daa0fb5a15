"""One call of one hook: a command run as the agent, or an HTTP call. Three ends are told apart: it did not get
through (it may be tried again), it got through and was refused, or its end is unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gitops_agent.drivers.api import ApplyError, EffectSpent, Executing, Fields, ResourceKey, RunAs
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result
from gitops_agent.support.http import NotAnswered, NotSent, endpoint, request

ANSWER_CHARACTERS = 500
"""How much of an answer is kept."""

KEY_VARIABLE = "MANAGED_AGENT_HOOK_KEY"
KEY_HEADER = "Idempotency-Key"
_HEADERS = {"Content-Type": "application/json", "User-Agent": "gitops-agent"}


@dataclass(frozen=True, slots=True)
class HookCall:
    """What is to be called: the fields of a hook, for one generation of its agent."""

    hook: ResourceKey
    fields: Mapping[str, Any]
    generation: str

    def key(self, instance: str) -> str:
        """The idempotency key: the same for every try of one hook in one generation."""
        return f"{instance}/{self.hook.agent}/{self.generation}/{self.hook.id}"

    def spent(self, said: str, result: Result) -> EffectSpent:
        """The error of a call that got through and did not succeed."""
        kept = said[:ANSWER_CHARACTERS]
        handle = OneShot(self.generation, result, kept).handle
        return EffectSpent(f"{self.hook}: {kept}", handle, unknown=result is Result.UNKNOWN)


class Caller:
    """Calls hooks for one instance."""

    def __init__(
        self, instance: str, hosts: tuple[str, ...], executing: Callable[[str], Executing | None]
    ) -> None:
        self._instance = instance
        self._hosts = frozenset(hosts)
        self._executing = executing

    def call(self, call: HookCall) -> str:
        """What it answered; ApplyError or EffectSpent otherwise."""
        said = self._command(call) if call.fields["command"] else self._http(call)
        return said[:ANSWER_CHARACTERS]

    def _command(self, call: HookCall) -> str:
        runtime = call.fields["runtime"]
        runner = self._executing(runtime["driver"])
        if runner is None:
            raise ApplyError(
                f"{call.hook}: the driver {runtime['driver']} cannot run commands",
                hint="give the hook http instead of command",
                permanent=True,
            )
        how = RunAs(Fields.of(runtime), {KEY_VARIABLE: call.key(self._instance)})
        done = runner.exec(call.hook.agent, call.fields["command"], call.fields["timeout"], how)
        if not done.started:
            raise ApplyError(f"{call.hook}: {done.message}", hint="it has not run; correct its command or its env")
        if not done.ok:
            raise call.spent(done.message, Result.FAILED if done.ended else Result.UNKNOWN)
        return done.message

    def _http(self, call: HookCall) -> str:
        """Of the answer only the status is kept, because what else it holds is not ours to repeat."""
        method, url = call.fields["http"]["method"], call.fields["http"]["url"]
        shown = f"{method} {url.partition('?')[0]}"  # people put tokens into queries
        self._check_host(call.hook, url)
        body = {"instance": self._instance, "agent": str(call.hook.agent), "hook": call.hook.id}
        headers = {**_HEADERS, KEY_HEADER: call.key(self._instance)}
        timeout = float(call.fields["timeout"])
        try:
            status = request(method, url, timeout=timeout, headers=headers, body=Fields.of(body).raw).status
        except NotSent as problem:
            hint = "nothing was sent; it is tried again by itself"
            raise ApplyError(f"{call.hook}: {shown} could not be reached: {problem}", hint=hint) from None
        except NotAnswered as problem:
            raise call.spent(f"{shown} was sent and not answered: {problem}", Result.UNKNOWN) from None
        said = f"{shown} was answered {status}"
        if not 200 <= status < 300:
            raise call.spent(said, Result.FAILED)
        return said

    def _check_host(self, hook: ResourceKey, url: str) -> None:
        """A host is listed alone (any port) or as ``host:port``; loopback is a host like any other."""
        try:
            host, port = endpoint(url)
        except ValueError:
            raise ApplyError(f"{hook}: its address has no valid host and port", permanent=True) from None
        if host not in self._hosts and f"{host}:{port}" not in self._hosts:
            listed = ", ".join(sorted({*self._hosts, host}))
            raise ApplyError(
                f"{hook}: {host} is not a host that hooks may call",
                hint=f"if it should be, set hookHosts (GITOPS_AGENT_HOOK_HOSTS={listed}) and restart gitops-agent",
                permanent=True,
            )
