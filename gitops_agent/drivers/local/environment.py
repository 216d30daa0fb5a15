"""The environment of an agent: a handful of names of ours, what it declares, its marks, and nothing else."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gitops_agent.drivers.local import marks
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.runner import HEARTBEAT
from gitops_agent.drivers.local.secret_files import SECRET_CAP_BYTES, SecretFiles
from gitops_agent.drivers.local.spec import Desired, runtime_key
from gitops_agent.errors import ApplyError
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.support.secrets import OutputMask, Redactor

PASSED_ON = ("PATH", "HOME", "LANG", "TZ")

ReadFile = Callable[[str], bytes]


class Environment:
    """Builds environments. ``own`` is gitops-agent's: the source of secrets by name, and of PATH and the like.
    ``redactor`` learns every secret that is resolved."""

    def __init__(
        self, driver: str, instance: str, dirs: AgentDir, own: Mapping[str, str], redactor: Redactor
    ) -> None:
        self._driver = driver
        self._instance = instance
        self._dirs = dirs
        self._own = own
        self._redactor = redactor
        self._files = SecretFiles()

    def passed_on(self) -> dict[str, str]:
        """What agents get of our own environment."""
        own = {name: self._own[name] for name in PASSED_ON if name in self._own}
        return {"PATH": os.defpath, "HOME": "/", **own}

    def build(self, agent: AgentKey, desired: Desired, replica: int) -> dict[str, str]:
        """The whole environment of one replica, secrets resolved; ApplyError names a missing reference."""
        built = self.passed_on()
        for variable in desired.env:
            built[variable["name"]] = self._value(agent, variable, self._files.read)
        self._redactor.learn(built[name] for name in secret_names(desired))
        built |= marks.made(self._instance, agent, replica, desired.spec, self._driver)
        built[marks.CONFIG] = self._dirs.config(agent)
        built[HEARTBEAT] = str(self._dirs.heartbeat(agent, replica))
        return built

    def mask(self, desired: Desired, built: Mapping[str, str]) -> OutputMask:
        """What hides the secrets of an environment that was built."""
        return OutputMask(built[name] for name in secret_names(desired))

    def learn(self, agent: AgentKey, desired: Desired, running: Mapping[str, str]) -> bool:
        """Have the redactor know the secrets of an agent that is not started from here (another process did it, or
        an earlier one); whether all are known now. ``running``: the environment of its process; that one has what
        our own may not have, or not any more."""
        names, known = secret_names(desired), set[str]()
        for variable in (each for each in desired.env if each["name"] in names):
            values = [running[variable["name"]]] if variable["name"] in running else []
            with suppress(ApplyError):  # then it was given by a process that knew it
                values.append(self._value(agent, variable, self._files.look))
            self._redactor.learn(values)
            known |= {variable["name"]} if values else set()
        return known == names

    def secrets(self, agent: AgentKey, desired: Desired) -> dict[str, str]:
        """The secrets that an agent would be given now, by variable; one that cannot be had is left out."""
        found: dict[str, str] = {}
        for variable in desired.env:
            if "secretRef" in variable:
                with suppress(ApplyError):
                    found[variable["name"]] = self._value(agent, variable, self._files.look)
        self._redactor.learn(found.values())
        return found

    def workdir(self, agent: AgentKey, desired: Desired) -> str:
        """Where the agent runs: what it declares, or a folder of its own.
        That is made where it is missing: an agent that was found again, after the loss of the state directory or
        by another one, was never started from here, and is probed here all the same."""
        if desired.workdir is not None:
            return desired.workdir
        own = self._dirs.work(agent)
        try:
            with self._dirs.opened(agent, "work", create=True):
                return own
        except OSError as problem:
            raise no_room(runtime_key(agent, self._driver), own, problem) from None

    def _value(self, agent: AgentKey, variable: Mapping[str, Any], read_file: ReadFile) -> str:
        reference = variable.get("secretRef")
        if reference is None:
            return str(variable["value"])
        # Not "env TOKEN: …", which redaction would rightly take for a secret and its value.
        source = f"{runtime_key(agent, self._driver)}: variable {variable['name']} cannot be set"
        return resolved(source, reference, self._own, read_file)


def resolved(source: str, reference: Mapping[str, str], own: Mapping[str, str], read_file: ReadFile) -> str:
    """The secret that a reference names; ApplyError, beginning with ``source``, when it cannot be had."""
    name = reference["name"]
    if reference["provider"] == "file":
        return _from_file(source, name, read_file)
    if name not in own:
        hint = f"set {name} in the environment of gitops-agent"
        raise ApplyError(f"{source}: the secret env:{name} is not set", hint=hint)
    return own[name]


def secret_names(desired: Desired) -> frozenset[str]:
    """The variables whose values are secrets."""
    return frozenset(variable["name"] for variable in desired.env if "secretRef" in variable)


def no_room(key: ResourceKey, path: str, problem: OSError) -> ApplyError:
    """The error when the folder of an agent cannot be written to."""
    hint = "make room and make sure that the state directory is a folder only we write to"
    return ApplyError(f"{key}: cannot write below {path}: {problem.strerror or problem}", hint=hint)


def _from_file(source: str, path: str, read_file: ReadFile) -> str:
    problem = ""
    try:
        data = read_file(path)
        if b"\0" not in data:
            return data.decode("utf-8", "surrogateescape").removesuffix("\n")
        problem = "it holds a NUL byte"
    except OSError as error:
        problem = error.strerror or str(error)
    # Raised out here, so that no traceback carries what was read.
    hint = f"put the secret into a regular file of at most {SECRET_CAP_BYTES} bytes that gitops-agent may read"
    raise ApplyError(f"{source}: the secret file:{path} cannot be used: {problem}", hint=hint)
