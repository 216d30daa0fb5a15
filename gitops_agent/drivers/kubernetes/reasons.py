"""The driver's own reason codes: what is wrong with a live object, and what follows."""

from __future__ import annotations

from gitops_agent.drivers.api import Class, Reason
from gitops_agent.drivers.kubernetes import rollout_status
from gitops_agent.model.catalog import Repair
from gitops_agent.model.plan import Decision

_EXTERNAL = Class.MISSING_EXTERNAL

REASONS = {
    **rollout_status.REASONS,
    "ObjectMissing": Reason("The object was deleted in the cluster.", _EXTERNAL),
    "NamespaceMissing": Reason("The namespace was deleted, and the object with it.", _EXTERNAL),
    "EditedByHand": Reason("It was changed by hand in the cluster."),
    "TakenOver": Reason(
        "Another manager owns fields that are Git's, and gives them other values.",
        decision=Decision.ALERT,
        way_out="The object is ours, and stays as it is. Have that manager let go of these fields, take them out "
        "of the document (of replicas: authority: {runtime.replicas: live}), or set runtime.kubernetes.overwrite: "
        "All, where drivers.kubernetes.maxOverwrite allows it",
    ),
    "SecretRotated": Reason(
        "A secret has another value than its pods began with; runtime.onSecretChange decides.",
        repair=Repair.RESTART,
        way_out="The Secret in the cluster keeps the old value, also for pods that are restarted by hand. Set "
        "runtime.onSecretChange: Restart: then it is written, and its pods are replaced one after the other",
    ),
    "FieldsReverted": Reason("Fields of ours have other values in the cluster."),
    "Leftover": Reason("An object of the agent is left from before it moved.", Class.MISSING_INTERNAL),
    "Ending": Reason("It was deleted, and is still ending: its pods, or what a finalizer waits for.", Class.LAG),
}
