"""Deadlines: since when agents are not Ready, and whose time is up. Pure, in seconds of active time.

An agent is being provisioned from the first thing that was made for it until it is Ready for the first time. What
was there when some commit converged is provisioned for good: losing it would be a loss, and no compensation. An
agent that was given up stays so until a commit changes it or a person asks for a retry.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.passes import Live, Now, RolloutDecision
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import GivenUpAgent, State
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.context import Ready, is_hands_off, time_given
from gitops_agent.plan.sight import hidden_in, left_out

Since = Mapping[AgentKey, float]
Agents = Mapping[AgentKey, Agent]


def started(since: Since, starting: Collection[AgentKey], stopping: Collection[AgentKey], active: float) -> Since:
    """The same deadlines with some agents' time running from now on (unless it does already), others' ended; of
    those that are both it begins anew."""
    news = [key for key in starting if key not in since or key in stopping]
    if not news and not any(key in since for key in stopping):
        return since
    kept = {key: at for key, at in since.items() if key not in stopping}
    return {**kept, **dict.fromkeys(news, active)}


def overdue(since: Since, agent: Agent, policy: PolicySpec, active: float) -> float | None:
    """The seconds an agent was given, once they are over."""
    begun = since.get(agent.key)
    if begun is None:
        return None
    given = time_given(agent, policy)
    return given if active - begun > given else None


def final_since(known: Since, health: Mapping[AgentKey, Health], since: Since, active: float) -> Since:
    """Since when it is said without a break that waiting does not help, of agents that are not Ready. Of those
    that were not looked at it is as before."""
    kept = {key: at for key, at in known.items() if key in since and (key not in health or health[key].final)}
    news = (key for key, each in health.items() if each.final and key in since and key not in kept)
    found = {**kept, **dict.fromkeys(news, active)}
    return known if found == known else found


_NONE: Since = {}


def late(since: Since, agents: Agents, policy: PolicySpec, active: float, final: Since = _NONE) -> list[AgentKey]:
    """The agents whose time is over. ``final``: since when no waiting helps some of them."""
    left = _left(since, agents, policy, active, final)
    return [key for key, seconds_left in left if seconds_left < 0.0]


def time_left(
    since: Since, agents: Agents, policy: PolicySpec, active: float, final: Since = _NONE
) -> Iterator[float]:
    """Seconds until the time of an agent is over, for each whose time runs."""
    left = _left(since, agents, policy, active, final)
    return (seconds_left for _, seconds_left in left if seconds_left >= 0.0)


def _left(
    since: Since, agents: Agents, policy: PolicySpec, active: float, final: Since
) -> Iterator[tuple[AgentKey, float]]:
    for key, begun in since.items():
        if key in agents:
            end = begun + time_given(agents[key], policy)
            if key in final:  # it only has to be sure that this is no hiccup
                limit = limits_of(policy, key.tenant).rollout.fail_after
                end = min(end, max(begun, final[key]) + seconds(limit))
            yield key, end - active


# -- provisioning that cannot finish: which new agents are out of time, and what is then desired of them


def without_given_up(snapshot: Snapshot, state: State) -> Snapshot:
    """The snapshot with nothing desired of agents that were given up: the plan takes down what is on record."""
    gone = {
        key: replace(snapshot.agents[key], resources=(), abandoned=each.why)
        for key, each in _still_given_up(state, snapshot).items()
    }
    return replace(snapshot, agents={**snapshot.agents, **gone}) if gone else snapshot


def update_given_up(
    state: State, decision: RolloutDecision, live: Live, now: Now
) -> tuple[State, RolloutDecision]:
    """The state after agents that are out of time were given up, and what is in force without them.
    No agent is given up unseen, nor one that is healthy now and was not when it was last reported; and its time
    begins anew when it is seen again."""
    snapshot, policy, rollout = decision.in_force, decision.policy, state.rollout
    given_up = _still_given_up(state, snapshot)
    # Most fleets ask for no compensation, and then no agent is looked at.
    asked = any(each.provisioning.on_timeout == "Compensate" for each in (policy, *policy.tenants.values()))
    since = _provisioning_since(state, snapshot, now) if asked else {}
    hidden = hidden_in(live, snapshot.agents, state.reconcile.bases) if since else frozenset()
    lost, health = left_out(hidden, state.status.agents), live.health
    since = {key: begun for key, begun in since.items() if key not in lost}
    for key, begun in since.items():
        limit = limits_of(policy, key.tenant).provisioning
        late = limit.on_timeout == "Compensate" and now.active - begun >= seconds(limit.deadline)
        seen = key in health and key not in hidden
        if late and seen and health[key].state not in (HealthState.HEALTHY, HealthState.STOPPED):
            spec, retried = _spec_digest(snapshot.agents[key]), state.control.retried_at.get(key)
            why = f"not Ready within {limit.deadline}"
            given_up[key] = GivenUpAgent(snapshot.revision.sha, spec, why, now.wall, retried)
    if since != rollout.provisioning_since or given_up != rollout.given_up:
        state = replace(state, rollout=replace(rollout, provisioning_since=since, given_up=given_up))
    return state, replace(decision, in_force=without_given_up(snapshot, state))


def next_deadline(state: State, policy: PolicySpec, now: Now) -> float | None:
    """Seconds until the next agent is out of time to be provisioned, if nothing happens to it before."""
    left = [
        seconds(limits_of(policy, key.tenant).provisioning.deadline) - (now.active - begun)
        for key, begun in state.rollout.provisioning_since.items()
        if key not in state.rollout.given_up
    ]
    return min((each for each in left if each > 0.0), default=None)


def _still_given_up(state: State, snapshot: Snapshot) -> dict[AgentKey, GivenUpAgent]:
    """The agents that were given up, and that no commit has changed and no person asked to retry since."""
    agents, retried = snapshot.agents, state.control.retried_at
    return {
        key: each
        for key, each in state.rollout.given_up.items()
        if key in agents and _spec_digest(agents[key]) == each.spec and retried.get(key) == each.retried_at
    }


def _spec_digest(agent: Agent) -> str:
    """The digest of what an agent asks for: another one is another request."""
    return digest(canonical([[str(each.key), each.fields.digest] for each in agent.resources]))


def _provisioning_since(state: State, snapshot: Snapshot, now: Now) -> dict[AgentKey, float]:
    """The agents that are being provisioned, and since when: something is on record, nothing established."""
    established: dict[AgentKey, bool] = {}
    for base in state.reconcile.bases.values():
        if base.key.kind != Kind.HOOK and not base.retained:
            established[base.key.agent] = established.get(base.key.agent, False) or base.established
    rollout, ready = state.rollout, Ready(state.status.agents, {})
    return {
        key: rollout.provisioning_since.get(key, now.active)
        for key, done in established.items()
        if not (done or key in ready or key in rollout.given_up)
        and (agent := snapshot.agents.get(key)) is not None
        and agent.lifecycle is Lifecycle.RUNNING
        and not is_hands_off(agent, now.wall)
    }
