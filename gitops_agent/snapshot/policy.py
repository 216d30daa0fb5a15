"""The policy in force: a tenant's limits inherit what they leave out, and may only be stricter."""

from typing import Any

from gitops_agent.model.agent import Origin
from gitops_agent.model.document import PolicySpec, TenantPolicy
from gitops_agent.model.policy_merge import is_looser
from gitops_agent.model.strict import Strict
from gitops_agent.snapshot.codes import Code, Issue


def effective(spec: PolicySpec) -> PolicySpec:
    """The policy with every tenant's gaps filled from the policy of all."""
    tenants = {tenant: _inherit(limits, spec) for tenant, limits in spec.tenants.items()}
    return spec.model_copy(update={"tenants": tenants})


def loosened(origin: Origin, spec: PolicySpec) -> list[Issue]:
    """Where a tenant's limits are looser than those of all."""
    found: list[Issue] = []
    for tenant, limits in spec.tenants.items():
        for loc in _looser(limits, spec):
            path = ("spec", "tenants", tenant, *loc)
            summary = f"tenant {tenant}: {'.'.join(loc)} is looser than the policy of all tenants"
            detail = "A tenant's limits may only be stricter."
            found.append(Issue(Code.LOOSER_POLICY, path, summary, detail, origin=origin))
    return found


def _inherit(limits: TenantPolicy, spec: PolicySpec) -> TenantPolicy:
    update: dict[str, Any] = {}
    for name in TenantPolicy.model_fields:
        if name == "freeze":
            continue  # a freeze of all already covers the tenant
        own, general = getattr(limits, name), getattr(spec, name)
        if name not in limits.model_fields_set or own is None:
            update[name] = general
        elif isinstance(own, Strict) and isinstance(general, Strict):
            missing = type(own).model_fields.keys() - own.model_fields_set
            update[name] = own.model_copy(update={part: getattr(general, part) for part in missing})
    return limits.model_copy(update=update)


def _looser(limits: Strict, general: Strict) -> list[tuple[str, ...]]:
    """The fields that were given and give more room than the general ones."""
    found: list[tuple[str, ...]] = []
    for name in sorted(limits.model_fields_set - {"freeze", "tenants"}):
        own, other = getattr(limits, name), getattr(general, name)
        alias = str(type(limits).model_fields[name].alias)
        if isinstance(own, Strict):
            found += [(alias, *rest) for rest in _looser(own, other)] if other is not None else []
        elif own is None:
            found += [(alias,)] if other is not None else []
        elif is_looser(name, own, other):
            found.append((alias,))
    return found
