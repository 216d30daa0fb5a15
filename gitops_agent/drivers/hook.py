"""Hooks: what is called once in the life of an agent, and never twice by itself.

What belongs here: which hooks a document asks for, calling them (a command run as the agent, or an HTTP call), and
keeping how it ended in our own record, which is the live system. Three ends are told apart: it did not get through
(it may be tried again), it got through and was refused, or its end is unknown. What does not: when a hook is due
(``plan/hooks.py``), and what becomes of a call that a crash cut off (``reconcile/recovery.py``). What the codes of
hooks mean is in core, because core decides when they run.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gitops_agent.drivers.api import (
    HOOK,
    JSON,
    Compilation,
    Context,
    ObserveRequest,
    Plugin,
    Refused,
    RunAs,
    seconds,
)
from gitops_agent.drivers.local.environment import resolved
from gitops_agent.drivers.local.secret_files import SecretFiles
from gitops_agent.drivers.local.spec import secret_problem
from gitops_agent.errors import ApplyError, EffectSpent
from gitops_agent.model.agent import Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.hook_spec import Header, Hook, HttpHook
from gitops_agent.model.key import ON_PROVISIONED, ON_RETIRED, AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.one_shot import OneShot, generation_of
from gitops_agent.model.outcome import Applied, Result
from gitops_agent.model.plan import Action
from gitops_agent.support.secrets import looks_secret, names_secret

DRIVER = "hook"
ANSWER_CHARACTERS = 500
"""How much of an answer is kept."""

SHORTEST_MIXED_TOKEN = 20
"""So many characters of both cases with digits among them are no word of a path."""

KEY_VARIABLE = "MANAGED_AGENT_HOOK_KEY"
KEY_HEADER = "Idempotency-Key"
_HEADERS = {"Content-Type": "application/json", "User-Agent": "gitops-agent"}

_CODES = {Result.FAILED: "HookFailed", Result.UNKNOWN: "HookUnknown", None: "HookDue"}
"""What the plan must look at. A hook that is done, or was never called, has nothing to say."""


def hook_key(agent: AgentKey, name: str) -> ResourceKey:
    """The name of one hook of an agent."""
    return ResourceKey(agent, Kind.HOOK.value, name)


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """One resource for each hook that is given."""
    spec = asked.document.spec
    if spec.lifecycle == "Retired":
        return ()
    given = {ON_PROVISIONED: spec.hooks.on_provisioned, ON_RETIRED: spec.hooks.on_retired}
    calls = [(name, hook.http) for name, hook in given.items() if hook is not None and hook.http is not None]
    if refused := [refusal for name, http in calls for refusal in _refusals(("hooks", name, "http"), http)]:
        raise Refused(str(refused[0]), refused[0].at, refused[1:])
    return tuple(
        Resource(hook_key(asked.agent, name), DRIVER, _desired(name, hook, asked), idempotent=False)
        for name, hook in given.items()
        if hook is not None
    )


def _desired(name: str, hook: Hook, asked: Compilation) -> Fields:
    fields: dict[str, JSON] = {
        "command": hook.command,
        "http": _http_fields(hook.http) if hook.http else None,
        "timeout": seconds(hook.timeout),
        # With the hook, because its agent may be gone when it is called.
        "runtime": dict(asked.run_as) if hook.command else None,
    }
    if name == ON_PROVISIONED:
        # A stopped agent is not provisioned.
        fields["lifecycle"] = asked.document.spec.lifecycle
    return Fields.of(fields)


def _http_fields(http: HttpHook) -> dict[str, JSON]:
    """References only, never a secret."""
    fields: dict[str, JSON] = {"url": http.url, "method": http.method}
    if http.headers:
        fields["headers"] = [_header_fields(header) for header in http.headers]
    return fields


def _header_fields(header: Header) -> dict[str, JSON]:
    if header.value_from is None:
        return {"name": header.name, "value": header.value}
    return {"name": header.name, "secretRef": header.value_from.secret_ref.model_dump()}


def _refusals(at: tuple[str, ...], http: HttpHook) -> Iterator[Refused]:
    """Secrets where they would be shown, and references that cannot be followed."""
    if _holds_token(http.url):
        message = "its url holds what looks like a token (not shown): give it as a header with valueFrom"
        yield Refused(message, (*at, "url"))
    for position, header in enumerate(http.headers):
        place: tuple[str | int, ...] = (*at, "headers", position)
        if header.value is not None and names_secret(header.name):
            message = f"the header {header.name} holds a secret: give it valueFrom instead of value"
            yield Refused(message, (*place, "value"))
        if header.value_from is not None and (problem := secret_problem(header.value_from.secret_ref)):
            yield Refused(f"the header {header.name}: {problem}", (*place, "valueFrom"))


def _holds_token(url: str) -> bool:
    """Whether a part of a path, or what a query names as a secret, is more than a word."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=False)
    words = [*parts.path.split("/"), *(value for _, value in pairs)]
    return any(names_secret(name) for name, _ in pairs) or any(map(_is_token, words))


def _is_token(word: str) -> bool:
    """Whether a word has the form of a credential: a known one, or long and mixed as no name is."""
    kinds = (str.isupper, str.islower, str.isdigit)
    return looks_secret(word) or (
        len(word) >= SHORTEST_MIXED_TOKEN and all(any(map(kind, word)) for kind in kinds)
    )


@dataclass(frozen=True, slots=True)
class HookCall:
    """What is to be called: the fields of a hook, for one generation of its agent."""

    hook: ResourceKey
    fields: Mapping[str, Any]
    generation: str
    instance: str

    @property
    def key(self) -> str:
        """The idempotency key: the same for every try of one hook in one generation."""
        return f"{self.instance}/{self.hook.agent}/{self.generation}/{self.hook.id}"

    def spent(self, said: str, result: Result) -> EffectSpent:
        """The error of a call that got through and did not succeed."""
        handle = OneShot(self.generation, result, said).handle
        return EffectSpent(f"{self.hook}: {said}", handle, unknown=result is Result.UNKNOWN)


class HookDriver:
    """The hook driver of one instance. Only what calls gets to ``apply``: arming is a matter of the record."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._files = SecretFiles()

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """One observation for each record in the scope."""
        now = self._context.clock.now()
        return [_observation(base, now) for base in request.bases.values()]

    def apply(self, action: Action, key: str) -> Applied:
        """Call it. ApplyError when it did not get through, EffectSpent when it did and did not succeed."""
        fields = action.desired or action.base
        if fields is None:
            raise ApplyError(f"{action.key}: there is nothing on record to call", permanent=True)
        call = HookCall(action.key, fields.value, generation_of(action.handle, key), self._context.instance)
        answer = self._command(call) if call.fields["command"] else self._http(call)
        return Applied(answer, OneShot(call.generation, Result.DONE, answer).handle)

    def _command(self, call: HookCall) -> str:
        runtime = call.fields["runtime"]
        runner = self._context.executing(runtime["driver"])
        if runner is None:
            what = f"{call.hook}: the driver {runtime['driver']} cannot run commands"
            raise ApplyError(what, hint="give the hook http instead of command", permanent=True)
        how = RunAs(Fields.of(runtime), {KEY_VARIABLE: call.key})
        done = runner.exec(call.hook.agent, call.fields["command"], call.fields["timeout"], how)
        said = self._kept(done.message)
        if not done.started:
            raise ApplyError(f"{call.hook}: {said}", hint="it has not run; correct its command or its env")
        if not done.ok:
            raise call.spent(said, Result.FAILED if done.ended else Result.UNKNOWN)
        return said

    def _kept(self, said: str) -> str:
        """What is kept of an answer: in a handle, which is stored as it is, so it is masked here."""
        return self._context.redactor(said)[:ANSWER_CHARACTERS]

    def _http(self, call: HookCall) -> str:
        """Of the answer only the status is kept, because what else it holds is not ours to repeat."""
        # When it is first needed: it takes long to import, and few agents have such a hook.
        from gitops_agent.support.http import NotAnswered, NotSent, endpoint, request

        method, url = call.fields["http"]["method"], call.fields["http"]["url"]
        shown = f"{method} {url.partition('?')[0]}"  # people put tokens into queries
        try:
            self._check_host(call.hook, *endpoint(url))
        except ValueError:
            raise ApplyError(f"{call.hook}: its address has no valid host and port", permanent=True) from None
        body = {"instance": call.instance, "agent": str(call.hook.agent), "hook": call.hook.id}
        headers = {**self._headers(call), **_HEADERS, KEY_HEADER: call.key}
        timeout = float(call.fields["timeout"])
        try:
            status = request(method, url, timeout=timeout, headers=headers, body=Fields.of(body).raw).status
        except NotSent as problem:
            hint = "nothing was sent; it is tried again by itself"
            raise ApplyError(f"{call.hook}: {shown} could not be reached: {problem}", hint=hint) from None
        except NotAnswered as problem:
            said = self._kept(f"{shown} was sent and not answered: {problem}")
            raise call.spent(said, Result.UNKNOWN) from None
        said = self._kept(f"{shown} was answered {status}")
        if not 200 <= status < 300:
            raise call.spent(said, Result.FAILED)
        return said

    def _headers(self, call: HookCall) -> dict[str, str]:
        """The authored headers, secrets resolved: known for the length of the call, and to the redactor."""
        headers: dict[str, str] = {}
        for header in call.fields["http"].get("headers", ()):
            name, reference = header["name"], header.get("secretRef")
            source = f"{call.hook}: the header {name} cannot be set"
            value = (
                header["value"] if reference is None else resolved(source, reference, os.environ, self._files.read)
            )
            if reference is not None:
                self._context.redactor.learn([value])
            if not (value.isascii() and value.isprintable()):
                # The value itself is shown nowhere.
                raise ApplyError(f"{source}: its secret is not one line of ASCII text", hint="correct the secret")
            headers[name] = value
        return headers

    def _check_host(self, hook: ResourceKey, host: str, port: int) -> None:
        """A host is listed alone (any port) or as ``host:port``; loopback is a host like any other."""
        hosts = self._context.hook_hosts
        if host not in hosts and f"{host}:{port}" not in hosts:
            listed = ", ".join(sorted({*hosts, host}))
            hint = f"if it should be, set hookHosts (GITOPS_AGENT_HOOK_HOSTS={listed}) and restart gitops-agent"
            raise ApplyError(f"{hook}: {host} is not a host that hooks may call", hint=hint, permanent=True)


def _observation(base: Base, now: float) -> Observation:
    """The observation of one hook, from its base."""
    shot = OneShot.read(base.handle)
    state, fields = "Armed" if base.key.id == ON_RETIRED else "NotCalled", base.fields
    if shot is not None:
        state = shot.result.value if shot.result else "Due"
    if shot is not None and shot.spent:
        # Part of it while people have to decide: what they approve is this very call, not the next one that fails.
        fields = Fields.of({**fields.value, "generation": shot.generation, "outcome": shot.result})
    return Observation(
        key=base.key,
        driver=DRIVER,
        owner=Owner.OURS,
        fields=fields,
        state=state,
        observed_at=now,
        reason=_CODES.get(shot.result) if shot else None,
        message=shot.said if shot else "",
        live={"outcome": shot.result.value, "said": shot.said} if shot and shot.result else {},
        handle=base.handle,
    )


PLUGIN = Plugin(DRIVER, (HOOK,), resources, HookDriver, local=True)
