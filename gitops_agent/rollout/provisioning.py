"""Provisioning that cannot finish: which new agents are out of time, and what is then desired of them. Pure.

An agent is being provisioned from the first thing that was made for it until it is Ready for the first time. What
was there when some commit converged is provisioned for good: losing it would be a loss, and no compensation. An
agent that was given up stays so until a commit changes it or a person asks for a retry.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.document import PolicySpec, Provisioning
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.model.passes import Now, RolloutDecision
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import GivenUpAgent, State
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.context import Ready, is_hands_off

Healths = Mapping[AgentKey, Health]
_HEALTHY = (HealthState.HEALTHY, HealthState.STOPPED)


def without_given_up(snapshot: Snapshot, state: State) -> Snapshot:
    """The snapshot without what is no longer desired of agents that were given up."""
    gone = {
        key: compensated(snapshot.agents[key], each.why)
        for key, each in state.rollout.given_up.items()
        if _still_holds(key, each, snapshot, state)
    }
    return replace(snapshot, agents={**snapshot.agents, **gone}) if gone else snapshot


def update_given_up(
    state: State, decision: RolloutDecision, health: Healths, now: Now
) -> tuple[State, RolloutDecision]:
    """The state after agents that are out of time were given up, and what is in force without them.
    No agent is given up unseen, nor one that is healthy now and was not when it was last reported."""
    state = _updated(state, decision.in_force, health, decision.policy, now)
    return state, replace(decision, in_force=without_given_up(decision.in_force, state))


def _updated(state: State, snapshot: Snapshot, health: Healths, policy: PolicySpec, now: Now) -> State:
    rollout = state.rollout
    if not rollout.given_up and not may_compensate(policy):
        return state if not rollout.provisioning_since else _with(state, since={}, given_up={})
    kept = {key: each for key, each in rollout.given_up.items() if _still_holds(key, each, snapshot, state)}
    since = _since(state, snapshot, now) if may_compensate(policy) else {}
    spent = {key: now.active - begun for key, begun in since.items()}
    for key, why in out_of_time(spent, policy).items():
        if key in health and health[key].state not in _HEALTHY:
            spec, retried = spec_digest(snapshot.agents[key]), state.control.retried_at.get(key)
            kept[key] = GivenUpAgent(snapshot.revision.sha, spec, why, now.wall, retried)
    return _with(state, since, kept)


def next_deadline(state: State, policy: PolicySpec, now: Now) -> float | None:
    """Seconds until the next agent is out of time, if nothing happens to it before."""
    left = [
        seconds(terms(policy, key).deadline) - (now.active - begun)
        for key, begun in state.rollout.provisioning_since.items()
        if key not in state.rollout.given_up
    ]
    return min((each for each in left if each > 0.0), default=None)


def may_compensate(policy: PolicySpec) -> bool:
    """Whether compensation is asked for at all; most fleets do not, and then no agent is looked at."""
    return any(each.provisioning.on_timeout == "Compensate" for each in (policy, *policy.tenants.values()))


def under_way(
    agents: Mapping[AgentKey, Agent], bases: Iterable[Base], ready: Container[AgentKey]
) -> Iterator[AgentKey]:
    """The agents that are being provisioned: something of them is on record, nothing of it established."""
    known: dict[AgentKey, bool] = {}
    for base in bases:
        if base.key.kind != Kind.HOOK and not base.retained:
            known[base.key.agent] = known.get(base.key.agent, False) or base.established
    for key, established in known.items():
        agent = agents.get(key)
        if not established and agent is not None and agent.lifecycle is Lifecycle.RUNNING and key not in ready:
            yield key


def terms(policy: PolicySpec, agent: AgentKey) -> Provisioning:
    """The provisioning limits of an agent."""
    return limits_of(policy, agent.tenant).provisioning


def out_of_time(spent: Mapping[AgentKey, float], policy: PolicySpec) -> dict[AgentKey, str]:
    """Of the agents under way (with the seconds they had so far), those that are to be taken down, and why."""
    found = {}
    for key, had in spent.items():
        limit = terms(policy, key)
        if limit.on_timeout == "Compensate" and had >= seconds(limit.deadline):
            found[key] = f"not Ready within {limit.deadline}"
    return found


def compensated(agent: Agent, why: str) -> Agent:
    """The same agent with nothing desired of it: the plan then takes down what is on record, in reverse order."""
    return replace(agent, resources=(), abandoned=why)


def spec_digest(agent: Agent) -> str:
    """The digest of what an agent asks for: another one is another request."""
    return digest(canonical([[str(each.key), each.fields.digest] for each in agent.resources]))


def _since(state: State, snapshot: Snapshot, now: Now) -> dict[AgentKey, float]:
    known = state.rollout.provisioning_since
    moving = under_way(snapshot.agents, state.reconcile.bases.values(), Ready(state.status.agents, {}))
    return {
        key: known.get(key, now.active)
        for key in moving
        if key not in state.rollout.given_up and not is_hands_off(snapshot.agents[key], now.wall)
    }


def _still_holds(key: AgentKey, each: GivenUpAgent, snapshot: Snapshot, state: State) -> bool:
    agent = snapshot.agents.get(key)
    same = agent is not None and spec_digest(agent) == each.spec
    return same and state.control.retried_at.get(key) == each.retried_at


def _with(state: State, since: Mapping[AgentKey, float], given_up: Mapping[AgentKey, GivenUpAgent]) -> State:
    if since == state.rollout.provisioning_since and given_up == state.rollout.given_up:
        return state
    return replace(state, rollout=replace(state.rollout, provisioning_since=since, given_up=given_up))
