"""A runtime driver for a made-up remote system: agents are workers behind an HTTP API.

Nothing in gitops-agent knows this package: it is found by its entry point. ``docs/drivers.md`` explains it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from gitops_agent.drivers.api import (
    RUNTIME,
    CheckResult,
    Class,
    Compilation,
    Context,
    Driver,
    Fields,
    Plugin,
    Reason,
    Refused,
    Repair,
    Resource,
    ResourceKey,
    Strict,
    health_fields,
)

NAME = "remote"


class Options(Strict):
    """``spec.runtime.remote`` in documents."""

    region: str = "north"


class Settings(BaseModel):
    """``drivers.remote`` in the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str


def compile_runtime(asked: Compilation) -> tuple[Resource, ...]:
    """One worker for a document that names this driver."""
    spec, runtime = asked.document.spec, asked.document.spec.runtime
    if runtime.driver != NAME or spec.lifecycle == "Retired":
        return ()
    if runtime.image is None:
        raise Refused("driver remote needs image", ("runtime",))
    options = asked.options if isinstance(asked.options, Options) else Options()
    stopped = spec.lifecycle == "Stopped"
    fields: dict[str, Any] = {
        "image": runtime.image,
        "region": options.region,
        "copies": 0 if stopped else runtime.replicas,
        "config": asked.bundle.digest,
        **health_fields(asked.document),
    }
    key = ResourceKey(asked.agent, RUNTIME.name, NAME)
    # A stopped worker stays there with no copies: scaled to zero is not absence.
    return (Resource(key, NAME, Fields.of(fields), restart_on=("image", "config"), stopped=stopped, kept=True),)


def connect(context: Context) -> Driver:
    """The remote system of one instance; nothing is sent before it is asked something."""
    from remote_driver.driver import RemoteDriver

    return RemoteDriver(context)


def check_settings(context: Context) -> CheckResult:
    """For ``gitops-agent doctor``."""
    known = isinstance(context.settings, Settings)
    return CheckResult("remote", known, "has a url" if known else "no url", "set drivers.remote.url")


PLUGIN = Plugin(
    NAME,
    (RUNTIME,),
    compile_runtime,
    connect,
    options=Options,
    settings=Settings,
    reasons={
        "WorkerLost": Reason("The worker is gone.", Class.MISSING_EXTERNAL),
        "NodeLost": Reason("The node of the worker went away.", Class.MISSING_EXTERNAL, explained=True),
        "ImageDiffers": Reason("The worker runs another image than applied.", repair=Repair.RESTART),
    },
    checks=(check_settings,),
    run_as=lambda document: {"image": document.spec.runtime.image},
)
