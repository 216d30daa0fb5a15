"""What ``gitops-agent doctor`` says of the clusters: whether each is reached, and with which rights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gitops_agent.drivers.api import CheckResult, Context, ObserveError, driver_at
from gitops_agent.drivers.kubernetes.marks import DRIVER
from gitops_agent.drivers.kubernetes.options import Settings

CHECK_SECONDS = 5.0
_SIGNS_OF_PATTERN = frozenset("*?[")


def check_cluster(context: Context) -> CheckResult:
    """Whether the cluster that the place means, or without one the settings, answers; fine where none is meant."""
    settings, name = _settings_of(context), driver_at(DRIVER, context.place)
    meant = context.place or settings.kubeconfig or settings.in_cluster or os.environ.get("KUBECONFIG")
    if not meant and not Path("~/.kube/config").expanduser().exists():
        return CheckResult(name, True, "no cluster is configured")
    from gitops_agent.drivers.kubernetes.client import Client
    from gitops_agent.drivers.kubernetes.config import config_of
    from gitops_agent.drivers.kubernetes.errors import ApiError, observe_error

    try:
        client = Client(config_of(settings, context.place), timeout=CHECK_SECONDS)
        version = client.get("/version").get("gitVersion", "of an unknown version")
    except ApiError as problem:
        told = observe_error(problem, "ask for the version")
        return CheckResult(name, False, told.message, told.hint)
    except ObserveError as problem:
        return CheckResult(name, False, problem.message, problem.hint)
    return CheckResult(name, True, f"{client.host} answers: Kubernetes {version}")


def named_contexts(context: Context) -> Sequence[str]:
    """The contexts that settings let documents name: those of the kubeconfig that a pattern fits, and those that
    the settings name outright, in the kubeconfig or not."""
    settings = _settings_of(context)
    if not settings.contexts:
        return ()
    from gitops_agent.drivers.kubernetes.config import context_names
    from gitops_agent.drivers.kubernetes.contexts import may_name

    patterns = [each.rpartition("=")[2] for each in settings.contexts]
    outright = {each for each in patterns if _SIGNS_OF_PATTERN.isdisjoint(each)}
    try:
        there = context_names(settings.kubeconfig)
    except ObserveError:  # the check of the default one says so
        there = ()
    fitting = {each for each in there if each != settings.context and may_name(settings, each)}
    return sorted(outright | fitting)


def _settings_of(context: Context) -> Settings:
    return context.settings if isinstance(context.settings, Settings) else Settings()
