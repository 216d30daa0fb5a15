"""The driver for agents in Kubernetes clusters.

    manifests       a document in, the objects of an agent out (pure)
    options         what documents and operators may say; contexts: which clusters documents may name
    ownership       what of a live object is ours (pure)
    rollout_status  how a workload does, and why (pure); pod_status: a pod
    marks, kinds    labels, annotations, the field manager; where the API serves what
    config, client, errors, cache   one cluster: connection, requests, lists and watches
    driver, observe, apply          what core calls
    commands, events                exec and logs; what ``kubectl describe`` shows
    election, rival which of several gitops-agents acts; whether one does, for who stands in no election

Importing this needs no cluster and not the ``kubernetes`` package: that is imported when the driver connects.
"""

from __future__ import annotations

from pydantic import BaseModel

from gitops_agent.drivers.api import CONFIG, CREDENTIAL, RUNTIME, Context, Driver, Election, Plugin
from gitops_agent.drivers.kubernetes.checks import check_cluster, named_contexts
from gitops_agent.drivers.kubernetes.manifests import SERVICES, compile_resources, run_as
from gitops_agent.drivers.kubernetes.marks import DRIVER
from gitops_agent.drivers.kubernetes.options import KubernetesOptions, Settings
from gitops_agent.drivers.kubernetes.reasons import REASONS


def _connect(context: Context) -> Driver:
    from gitops_agent.drivers.kubernetes.driver import connect

    return connect(context)


def _elect(context: Context, identity: str) -> Election:
    from gitops_agent.drivers.kubernetes.election import elect

    return elect(context, identity)


def _require(settings: BaseModel) -> None:
    from gitops_agent.drivers.kubernetes.config import require_kubeconfig

    require_kubeconfig(settings)


PLUGIN = Plugin(
    DRIVER,
    (RUNTIME, CONFIG, CREDENTIAL, SERVICES),
    compile_resources,
    _connect,
    options=KubernetesOptions,
    settings=Settings,
    reasons=REASONS,
    checks=(check_cluster,),
    places=named_contexts,
    run_as=run_as,
    observe_timeout=30.0,
    instances="replicas",
    elect=_elect,
    require=_require,
)
