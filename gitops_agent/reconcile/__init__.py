"""Reconcile: carry out a plan, and nothing but the plan.

Belongs here: intents and outcomes around driver calls (``executor``), what our record says afterwards (``bases``),
when to try again (``retry``), what a plan lets through (``pace``), what a crash left open (``recovery``), and
which process may act (``leases``). Does not: deciding what to do (``plan/``), health (``observe/``), what it means
(``status/``). Called by ``pipeline.py`` only; writes ``ReconcileState``.
"""

from gitops_agent.reconcile.executor import Executor
from gitops_agent.reconcile.leases.holder import LeaseHolder
from gitops_agent.reconcile.pace import admitted
from gitops_agent.reconcile.recovery import Recovery

__all__ = ["Executor", "LeaseHolder", "Recovery", "admitted"]
