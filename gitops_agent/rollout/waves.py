"""Waves: in which order a commit reaches the agents that run already, and what becomes of it at each gate. Pure.

One canary, then a tenth, then the rest. What exists is touched wave by wave; what does not exist yet, and what
is only observed (Observe mode), follows the commit at once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.policy_merge import ON_FAILURE, limits_of
from gitops_agent.model.quantity import counted, seconds
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.order import depths, share, within_limits

Agents = Mapping[AgentKey, Agent]
Waves = tuple[tuple[AgentKey, ...], ...]

MAX_CANARY_WAVES = 5
"""Of a commit with more kinds of change, those that concern the fewest agents have no canary of their own."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """How a rollout goes on: its new state, and the agents that follow the commit from now on."""

    rollout: Rollout
    released: frozenset[AgentKey] = frozenset()


@dataclass(frozen=True, slots=True)
class WaveCandidates:
    """How the agents a commit moves get there: ``gated`` wave by wave, in this order; ``free`` at once.
    ``reached`` are the agents that an unfinished rollout has reached. ``proving`` are those whose health says
    something about the others: they run, and what runs changes. ``kinds``: what of each changes, so that every
    kind of change has a canary of its own. ``earlier_health``: what was asked of the health of some, where the
    commit asks less. ``left``: those that a freeze or a pause covers, or that were left by
    an earlier commit: until their wave comes, nothing is done about them."""

    gated: Sequence[AgentKey] = ()
    free: Collection[AgentKey] = ()
    reached: Collection[AgentKey] = ()
    proving: Collection[AgentKey] = ()
    kinds: Mapping[AgentKey, frozenset[str]] = field(default_factory=dict)
    earlier_health: Mapping[AgentKey, Fields] = field(default_factory=dict)
    left: Collection[AgentKey] = ()


def begin(target: Snapshot, policy: PolicySpec, candidates: WaveCandidates) -> RolloutStep:
    """The rollout of a commit with its first wave released, and what needs no wave."""
    first, rest = _again(candidates, policy)
    waves = (*((first,) if first else ()), *make_waves(rest, policy, candidates.proving, candidates.kinds))
    tenants = {key.tenant for wave in waves for key in wave}
    rollout = Rollout(
        target.revision.sha,
        target.revision.tree,
        waves,
        released=min(1, len(waves)),
        pauses=_rests(waves, target, policy),
        unproven=_has_to_bake(waves, target),
        on_failure=_on_failure(candidates.gated, policy),
        recovery=max(seconds(limits_of(policy, tenant).rollout.recovery) for tenant in {None, *tenants}),
        earlier_health=candidates.earlier_health,
    )
    rollout = replace(rollout, left=tuple(key for key in candidates.left if key not in rollout.moving))
    return RolloutStep(rollout, frozenset(candidates.free) | frozenset(rollout.moving))


def _again(candidates: WaveCandidates, policy: PolicySpec) -> tuple[tuple[AgentKey, ...], list[AgentKey]]:
    """A first wave of what an unfinished rollout has reached, and the others.
    What the commit leaves as it is must become Ready, or every commit on top of a failed one would find a canary
    of its own and take down one agent more. What it changes proves that the fix works there, and nothing about
    those not reached: they have a canary of their own."""
    unproven = [key for key in candidates.reached if key not in candidates.gated]
    changed = [key for key in candidates.gated if key in candidates.reached][: policy.rollout.canary]
    return (*unproven, *changed), [key for key in candidates.gated if key not in changed]


def _on_failure(gated: Iterable[AgentKey], policy: PolicySpec) -> str:
    """What Git sees when a gate fails: the strictest word of the policies concerned."""
    words = [limits_of(policy, tenant).rollout.on_failure for tenant in {None, *(key.tenant for key in gated)}]
    return min(words, key=ON_FAILURE.index)


def _has_to_bake(waves: Waves, target: Snapshot) -> bool:
    """Whether the verdict waits for the bake of the last wave: it does where something of it runs."""
    return bool(waves) and not _running(target).isdisjoint(waves[-1])


def _rests(waves: Waves, target: Snapshot, policy: PolicySpec) -> tuple[float, ...]:
    """Seconds of rest after each wave that is Ready: what the policies ask for, or an agent of the wave if more.
    After the last no other waits, so only the bake counts."""
    last = len(waves) - 1
    return tuple(_rest(wave, target.agents, policy, is_last=number == last) for number, wave in enumerate(waves))


def _rest(wave: Sequence[AgentKey], agents: Agents, policy: PolicySpec, *, is_last: bool) -> float:
    limits = [limits_of(policy, tenant).rollout for tenant in {None, *(key.tenant for key in wave)}]
    bake = max(seconds(each.bake) for each in limits)
    if is_last:
        return bake
    pauses = [seconds(each.pause) for each in limits]
    return max(bake, *pauses, *(agents[key].pause_after_ready for key in wave if key in agents))


def proceed(rollout: Rollout, active: float) -> RolloutStep:
    """The next wave, if the gate is open and the pause is over; otherwise everything stays as it is."""
    if rollout.done or pause_left(rollout, active) != 0.0:
        return RolloutStep(rollout)
    wave = rollout.waves[rollout.released]
    left = tuple(key for key in rollout.left if key not in wave)
    return RolloutStep(replace(rollout, released=rollout.released + 1, passed_at=None, left=left), frozenset(wave))


def regrouped(
    rollout: Rollout, away: Collection[AgentKey], thawed: Sequence[AgentKey], target: Snapshot, policy: PolicySpec
) -> Rollout:
    """The rollout without the agents that a freeze or a pause covers by now (``away``), which are left for later,
    and with waves for those left that none covers any more (``thawed``). Should that take away the whole wave on
    trial, then nothing is proven for the others: they begin with a canary again."""
    trial, waiting = rollout.on_trial, rollout.waves[rollout.released :]
    moved = [key for wave in (trial, *waiting) for key in wave if key in away]
    if not moved and not thawed:
        return rollout
    passed = rollout.waves[: rollout.released - bool(trial)]
    tried = _without(trial, away)
    rest = tuple(wave for each in waiting if (wave := _without(each, away)))
    if trial and not tried:
        rest = make_waves([key for wave in rest for key in wave], policy, _running(target))
    waves = (*passed, *((tried,) if tried else ()), *rest, *make_waves(thawed, policy, _running(target)))
    return replace(
        rollout,
        waves=waves,
        released=len(passed) + bool(tried),
        passed_at=rollout.passed_at if tried or not trial else None,
        pauses=_rests(waves, target, policy),
        unproven=_has_to_bake(waves, target),
        left=tuple(dict.fromkeys((*rollout.left, *moved))),
        runs=rollout.runs if rollout.is_on_trial else {},  # what was proven long ago may have been started again
    )


def _without(wave: Iterable[AgentKey], away: Collection[AgentKey]) -> tuple[AgentKey, ...]:
    return tuple(key for key in wave if key not in away)


def _running(target: Snapshot) -> frozenset[AgentKey]:
    return frozenset(key for key, agent in target.agents.items() if agent.lifecycle is Lifecycle.RUNNING)


def pause_left(rollout: Rollout | None, active: float) -> float | None:
    """Seconds until the next wave may go (of the last one: until it is proven), once the gate is open; None when
    nothing waits for that."""
    if rollout is None or not rollout.is_on_trial or rollout.failed or rollout.passed_at is None:
        return None
    pause = rollout.pauses[rollout.released - 1] if rollout.released else 0.0
    return max(0.0, rollout.passed_at + pause - active)


def gated(rollout: Rollout, active: float, *, ready: bool, anew: bool = False) -> Rollout:
    """The rollout after a look at its gate: open since when, or shut. ``anew``: something was started again, so
    that the time counts from now. The last wave of a commit is proven when its time is over."""
    if not ready:
        return replace(rollout, passed_at=None)
    opened = rollout if rollout.passed_at is not None and not anew else replace(rollout, passed_at=active)
    is_proven = opened.done and pause_left(opened, active) == 0.0
    return replace(opened, unproven=False, passed_at=None) if is_proven else opened


def recovery_left(rollout: Rollout | None, active: float) -> float | None:
    """Seconds until a gate that failed opens after all, while everything released is Ready; else None."""
    if rollout is None or not rollout.failed or rollout.passed_at is None:
        return None
    return max(0.0, rollout.passed_at + rollout.recovery - active)


def in_order(
    changed: Iterable[AgentKey],
    before: Agents,
    target: Agents,
    released: Collection[AgentKey],
    unready: Collection[AgentKey] = (),
) -> list[AgentKey]:
    """Changed agents in the order in which they go.
    First those that an unfinished rollout has touched already (they have the least to lose), last those that would
    end; dependencies before what depends on them; what is Ready before what is not, which would fail the gate of a
    commit that is well; canaries before their equals."""
    keys = set(changed)
    depth = depths(keys, {key: target[key] for key in keys if key in target})

    def rank(key: AgentKey) -> tuple[bool, bool, int, bool, bool, AgentKey]:
        agent = target.get(key)
        ends, is_canary = _ends(agent, before.get(key)), agent is not None and agent.canary
        return key not in released, ends, depth[key], key in unready, not is_canary, key

    return sorted(keys, key=rank)


def proves(new: Agent | None, old: Agent | None) -> bool:
    """Whether the health of an agent says something about a commit: it runs, and what runs changes."""
    runs = new is not None and new.lifecycle is Lifecycle.RUNNING
    return runs and (old is None or new is None or new.resources != old.resources)


def _ends(new: Agent | None, old: Agent | None) -> bool:
    """Whether an agent would stop running: it proves nothing about the health of the others."""
    running = old is not None and old.lifecycle is Lifecycle.RUNNING
    return new is None or (running and new.lifecycle is not Lifecycle.RUNNING)


def kind_of_change(old: Agent | None, new: Agent | None) -> frozenset[str]:
    """What differs between two specs of an agent, by the names of fields: agents of one kind prove something about
    each other."""
    before, after = ({each.key: each.fields for each in spec.resources} if spec else {} for spec in (old, new))
    names: set[str] = set()
    for key in before.keys() | after.keys():
        one, other = before.get(key), after.get(key)
        if one is None or other is None:
            names.add(key.kind)
        elif one != other:
            mine, theirs = one.value, other.value
            differing = (name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
            names.update(f"{key.kind}.{name}" for name in differing)
    return frozenset(names)


def make_waves(
    ordered: Sequence[AgentKey],
    policy: PolicySpec,
    proving: Collection[AgentKey] = (),
    kinds: Mapping[AgentKey, frozenset[str]] | None = None,
) -> Waves:
    """The waves of some agents, in their order; no tenant has more in a wave than its own limits allow.
    The canary is one that proves something, if there is any; each kind of change has one, in a wave of its own:
    new instructions that work say nothing about a new program."""
    totals = Counter(key.tenant for key in ordered)
    telling = [key for key in ordered if key in proving] or ordered
    limits = {tenant: limits_of(policy, tenant).rollout for tenant in totals}
    shares = {tenant: share(own.second, totals[tenant]) for tenant, own in limits.items()}
    alike: dict[frozenset[str], list[AgentKey]] = {}
    for key in telling:
        alike.setdefault((kinds or {}).get(key, frozenset()), []).append(key)
    common = sorted(alike.values(), key=len, reverse=True)[:MAX_CANARY_WAVES]
    canaries = [
        within_limits(_tenants(group), policy.rollout.canary, lambda tenant: limits[tenant].canary)
        for group in alike.values()
        if group in common
    ]
    tried = {key for wave in canaries for key in wave}
    rest = [key for key in ordered if key not in tried]
    second = within_limits(_tenants(rest), share(policy.rollout.second, len(ordered)), shares.__getitem__)
    last = [key for key in rest if key not in second]
    return tuple(tuple(wave) for wave in (*canaries, second, last) if wave)


def _tenants(agents: Iterable[AgentKey]) -> Iterator[tuple[AgentKey, str]]:
    return ((key, key.tenant) for key in agents)


def announced(rollout: Rollout, known: Rollout | None) -> tuple[Finding, ...]:
    """How a commit will reach the agents that run already, as findings of a preview: the waves still to come.
    ``known``: its rollout so far, if it has begun."""
    is_under_way = known is not None and known.commit == rollout.commit
    waves = rollout.waves[known.released :] if known is not None and is_under_way else rollout.waves
    if not waves or (len(waves) < 2 and not is_under_way):
        return ()
    sizes = [str(len(wave)) for wave in waves]
    parts = f"in waves of {', '.join(sizes[:-1])} and {sizes[-1]}" if len(waves) > 1 else "in one more wave"
    rest = max(rollout.pauses, default=0.0)
    agents = counted(sum(map(len, waves)), "agent")
    summary = (
        f"still to follow: {agents}, {parts}" if is_under_way else f"{agents} that run already change {parts}"
    )
    detail = (
        f"{'Next' if is_under_way else 'First'} goes {waves[0][0]}. Each wave must have been Ready for {rest:g} s,"
        " without an exit, before the next, and the last before the commit is in; if one is not, the rest keeps "
        "what it has (onFailure: "
        f"{rollout.on_failure})."
    )
    return (Finding(Severity.INFO, "Waves", rollout.commit[:10], summary, detail),)
