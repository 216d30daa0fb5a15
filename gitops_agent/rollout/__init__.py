"""Rollout: which spec each agent follows, and how a commit gets from one wave to the next. Pure.

Belongs here: admitting the newest commit and releasing its waves (``admission``, ``waves``), the state of a
rollout, its gate and what a retry resets (``state``), and whose time is up (``deadlines``). Does not: what differs
and what to do about it (``plan/``), how a commit is judged (``status/``). ``pipeline.py`` and ``query/`` call it;
every function takes values and returns values.
"""

from gitops_agent.rollout.admission import advance
from gitops_agent.rollout.deadlines import update_given_up, without_given_up
from gitops_agent.rollout.state import handle_retries, widened

__all__ = ["advance", "handle_retries", "update_given_up", "widened", "without_given_up"]
