"""Summary: what the steps of ``summarize`` hand on."""

from dataclasses import dataclass, field, replace
from typing import Any

from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import Now, PassRecord
from gitops_agent.model.state import AgentStatuses, State
from gitops_agent.plan.sight import hidden_in, left_out


@dataclass(frozen=True, slots=True)
class Terms:
    """What the settings say of proposals: whether we may push to the branch, and how long (in seconds) a value
    must have been live before it is proposed for Git."""

    may_push: bool = True
    import_hold_seconds: float = 0.0


NO_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Summary:
    """A pass, and the state that it leaves so far. ``before``: the statuses of agents before it.
    ``became_ready``: some agent did in this pass."""

    record: PassRecord
    state: State
    now: Now
    terms: Terms
    before: AgentStatuses = field(default_factory=AgentStatuses)
    became_ready: bool = False

    @property
    def policy(self) -> PolicySpec:
        """The stricter of the policy in force and that of the last converged commit."""
        return self.record.decision.policy

    @property
    def hidden(self) -> frozenset[AgentKey]:
        """The agents that could not be looked at."""
        return hidden_in(self.record.live, self.record.snapshot.agents, self.state.reconcile.bases)

    @property
    def left_out(self) -> frozenset[AgentKey]:
        """Those of them that could not be looked at in the pass before either: nothing waits for them."""
        return left_out(self.hidden, self.before)

    def with_state(self, **parts: Any) -> "Summary":
        """The same with some parts of the state replaced."""
        return replace(self, state=replace(self.state, **parts))

    def with_reconcile(self, **fields: Any) -> "Summary":
        """The same with some fields of our record of the live systems replaced."""
        return self.with_state(reconcile=replace(self.state.reconcile, **fields))

    def with_rollout(self, **fields: Any) -> "Summary":
        """The same with some fields of the rollout replaced."""
        return self.with_state(rollout=replace(self.state.rollout, **fields))

    @property
    def is_halted(self) -> bool:
        """Whether a failed gate holds back the waves that have not come."""
        rollout, target = self.state.rollout.rollout, self.record.source.target
        if rollout is None or target is None:
            return False
        return rollout.commit == target.revision.sha and bool(rollout.failed)
