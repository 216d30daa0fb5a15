"""Short ways to write the values that reconcile works on."""

from __future__ import annotations

from typing import Any

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Plan, Verb
from gitops_agent.testing.memory_driver import config_key, runtime_key

SHA = "a" * 40
ONE, TWO, THREE = (AgentKey("acme", name) for name in ("one", "two", "three"))
WANTED = Fields.of({"command": ["serve"]})


def action(key: ResourceKey, verb: Verb = Verb.CREATE, cls: Class = Class.CHANGE, **more: Any) -> Action:
    desired = None if verb in (Verb.DELETE, Verb.FORGET) else WANTED
    more = {
        "reason": "AgentAdded",
        "message": "new in Git",
        "decision": Decision.REPAIR,
        "desired": desired,
        **more,
    }
    return Action(key=key, driver="memory", verb=verb, drift_class=cls, confidence=Confidence.HIGH, **more)


def bring_up(agent: AgentKey) -> tuple[Action, Action]:
    """The two steps of a new agent."""
    return action(config_key(agent)), action(runtime_key(agent))


def plan(*actions: Action, **more: Any) -> Plan:
    return Plan(SHA, actions, "digest", **more)


def base(key: ResourceKey, fields: Fields = WANTED, **more: Any) -> Base:
    return Base(key, "memory", fields, more.pop("commit", "earlier"), more.pop("applied_at", 5.0), **more)
