"""Which contexts of the kubeconfig documents may name, as the settings say: pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

from gitops_agent.drivers.kubernetes.options import Settings


def may_name(settings: Settings, context: str, tenant: str | None = None) -> bool:
    """Whether documents of a tenant, or without one of any tenant, may name a context of the kubeconfig."""
    if context in ("", settings.context):
        return True
    for entry in settings.contexts:
        whose, separated, pattern = entry.rpartition("=")  # no name of a context has this sign in it
        if (not separated or tenant in (None, whose)) and fnmatchcase(context, pattern):
            return True
    return False


def not_allowed(context: str, tenant: str) -> str:
    """What is said of a document that names a context which its tenant may not name."""
    return f"documents of {tenant} may not name the context {context}"


def way_out(context: str) -> str:
    """What to do about a context that documents may not name."""
    ways = f"{context}, or TENANT={context} for one tenant"
    return f"name another one, or add it to drivers.kubernetes.contexts: {ways}"
