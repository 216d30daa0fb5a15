"""One call of one hook: a command run as the agent, or an HTTP call. It has three ends: it did not get
through (it may be tried again), it got through and was refused, or its end is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gitops_agent.drivers.api import ApplyError, EffectSpent, Executing, Fields, ResourceKey, RunAs
from gitops_agent.drivers.hook.http import Unreached, Unsure, send, shown
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result

ANSWER_CHARACTERS = 500
"""How much of an answer is kept."""

KEY_VARIABLE = "MANAGED_AGENT_HOOK_KEY"
KEY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class HookCall:
    """What is to be called: the fields of a hook, for one generation of its agent."""

    hook: ResourceKey
    fields: Mapping[str, Any]
    generation: str

    def key(self, instance: str) -> str:
        """The idempotency key: the same for every try of one hook in one generation."""
        return f"{instance}/{self.hook.agent}/{self.generation}/{self.hook.id}"

    def spent(self, answer: str, result: Result) -> EffectSpent:
        """The error of a call that got through and did not succeed."""
        kept = answer[:ANSWER_CHARACTERS]
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
        answer = self._command(call) if call.fields["command"] else self._http(call)
        return answer[:ANSWER_CHARACTERS]

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
        http = call.fields["http"]
        body = {"instance": self._instance, "agent": str(call.hook.agent), "hook": call.hook.id}
        headers = {KEY_HEADER: call.key(self._instance)}
        try:
            status = send(http["method"], http["url"], headers, Fields.of(body).raw, self._limits(call))
        except Unreached as problem:
            raise ApplyError(
                f"{call.hook}: {problem.message}", hint=problem.hint, permanent=problem.permanent
            ) from None
        except Unsure as problem:
            raise call.spent(problem.message, Result.UNKNOWN) from None
        answer = f"{http['method']} {shown(http['url'])} was answered {status}"
        if not 200 <= status < 300:
            raise call.spent(answer, Result.FAILED)
        return answer

    def _limits(self, call: HookCall) -> tuple[frozenset[str], float]:
        return self._hosts, float(call.fields["timeout"])
