"""Rollout: which spec each agent follows, and how a commit gets from one wave to the next. Pure.

Belongs here: admitting the newest commit and releasing its waves (``admission``, ``waves``), the state of a
rollout and its gate (``state``), whose time is up (``deadlines``, ``provisioning``), and what a retry resets
(``retries``). Does not: what differs and what to do about it (``plan/``), how a commit is judged (``status/``).
``pipeline.py`` and ``query/`` call it; every function takes values and returns values.
"""

from gitops_agent.rollout.admission import advance
from gitops_agent.rollout.provisioning import update_given_up, without_given_up
from gitops_agent.rollout.retries import handle_retries
from gitops_agent.rollout.state import widened

__all__ = ["advance", "handle_retries", "update_given_up", "widened", "without_given_up"]
