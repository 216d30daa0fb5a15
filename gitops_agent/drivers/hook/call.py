"""One call of one hook: a command run as the agent, or an HTTP call. It is known afterwards who was reached.

Three ends: nobody was reached (it may be tried again), somebody was and said no, or nobody can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitops_agent.drivers.hook.http import Unreached, Unsure, send, shown
from gitops_agent.errors import ApplyError, EffectSpent
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result
from gitops_agent.ports import RunAs, Runner

LONGEST_ANSWER = 500
"""How many characters of an answer are kept."""

KEY_VARIABLE = "MANAGED_AGENT_HOOK_KEY"
KEY_HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be called: the fields of a hook, for one generation of its agent."""

    hook: ResourceKey
    fields: Mapping[str, Any]
    generation: str

    def key(self, instance: str) -> str:
        """The idempotency key: the same for every try of one hook in one generation."""
        return f"{instance}/{self.hook.agent}/{self.generation}/{self.hook.id}"

    def spent(self, said: str, result: Result) -> EffectSpent:
        """The error of a call that reached somebody and did not succeed."""
        kept = said[:LONGEST_ANSWER]
        handle = OneShot(self.generation, result, kept).handle
        return EffectSpent(f"{self.hook}: {kept}", handle, unknown=result is Result.UNKNOWN)


class Caller:
    """Calls hooks for one instance."""

    def __init__(self, instance: str, hosts: tuple[str, ...], runners: Mapping[str, Runner]) -> None:
        self._instance = instance
        self._hosts = frozenset(hosts)
        self._runners = runners

    def call(self, call: Call) -> str:
        """What it answered; ApplyError or EffectSpent otherwise."""
        said = self._command(call) if call.fields["command"] else self._http(call)
        return said[:LONGEST_ANSWER]

    def _command(self, call: Call) -> str:
        runtime = call.fields["runtime"]
        runner = self._runners.get(runtime["driver"])
        if runner is None:
            raise ApplyError(
                f"{call.hook}: the driver {runtime['driver']} cannot run commands",
                hint="give the hook http instead of command",
                permanent=True,
            )
        how = RunAs(Fields.of(runtime), {KEY_VARIABLE: call.key(self._instance)})
        done = runner.run(call.hook.agent, call.fields["command"], call.fields["timeout"], how)
        if not done.started:
            raise ApplyError(f"{call.hook}: {done.message}", hint="it has not run; correct its command or its env")
        if not done.ok:
            raise call.spent(done.message, Result.FAILED if done.ended else Result.UNKNOWN)
        return done.message

    def _http(self, call: Call) -> str:
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
        said = f"{http['method']} {shown(http['url'])} was answered {status}"
        if not 200 <= status < 300:
            raise call.spent(said, Result.FAILED)
        return said

    def _limits(self, call: Call) -> tuple[frozenset[str], float]:
        return self._hosts, float(call.fields["timeout"])
