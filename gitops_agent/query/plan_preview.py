"""Looking ahead without writing: the plan of a commit that is not enforced (yet), and of what is in force now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gitops_agent.control.directives import with_approvals
from gitops_agent.errors import SourceError
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.passes import Live, Observed, SourceResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.quantity import counted
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, changed_agents
from gitops_agent.model.state import State
from gitops_agent.pipeline import Pipeline
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PassContext, context_for
from gitops_agent.ports import JournalReader
from gitops_agent.proposals.rollback import revision_named
from gitops_agent.rollout.admission import advance, candidate_plan, next_step
from gitops_agent.rollout.deadlines import without_given_up
from gitops_agent.rollout.waves import announced
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.mirror import Mirror
from gitops_agent.support.secrets import Redactor

PLAN_HELD = "PlanHeld"
PLAN_PARTIAL = "PlanPartial"
MAX_NAMED = 5
"""The code of a finding that says why nothing of a plan will happen as things stand."""


@dataclass(frozen=True, slots=True)
class Planner:
    """``plan`` and ``drift``: read the source and the live systems, write nothing, take no lock."""

    source: Mirror
    loader: Loader
    journal: JournalReader
    pipeline: Pipeline
    redactor: Redactor

    def plan(self, ref: str | None) -> Plan:
        """What would happen if this commit (or the newest) were enforced now."""
        head, state = self.source.refresh(), self.journal.state()
        if ref is None:
            self.pipeline.stages.source.refuse(state, head)
        in_force = self.pipeline.stages.source.in_force(state.rollout)
        target = self.loader.load(revision_named(self.source, ref) if ref else head, in_force)
        around = self._around(state, target.revision)
        source = SourceResult(target.revision, target, in_force, changed_agents(in_force, target))
        wanted = without_given_up(target, state)
        live = self._live(state, wanted)
        step = next_step(state, source, live, around)
        plan = candidate_plan(state, replace(source, target=wanted), live, around)
        held = _held(state, plan)
        after = () if held else announced(step.rollout, state.rollout.rollout)
        unseen = (*_unasked(wanted, live.observed.unreachable), *_unseen(live.observed.unseen))
        where = self.pipeline.stages.observer.where(plan.actions)
        return replace(plan, findings=(*unseen, *held, *plan.findings, *after), where=where)

    def survey(self) -> tuple[Plan, Snapshot, Observed]:
        """The plan for what is in force now, which that is, and what was seen and could not be."""
        state, stages = self.journal.state(), self.pipeline.stages
        in_force = stages.source.in_force(state.rollout)
        if in_force is None:
            hint = "run gitops-agent once first; with spec.reconcile.mode: Observe it changes nothing"
            raise SourceError("nothing is in force yet", hint=hint)
        valid = stages.source.snapshot(state.source.valid)
        source = SourceResult(in_force.revision, None, in_force, policy=valid.policy if valid else None)
        around = self._around(state, in_force.revision)
        live = self._live(state, without_given_up(in_force, state))
        _, decision = advance(state, source, live, around)
        wanted = without_given_up(decision.in_force, state)
        context = context_for(state, wanted, live, decision.earlier_policy, around)
        plan = build(wanted, live.observed.seen.values(), context, live.health)
        return with_approvals(plan, around.directives), wanted, live.observed

    def _around(self, state: State, head: Revision) -> PassContext:
        now = self.pipeline.now()
        _, directives = self.pipeline.stages.controls.in_force(state, head, now)
        return PassContext(now, directives, (), self.journal, self.pipeline.stages.observer.catalog)

    def _live(self, state: State, snapshot: Snapshot) -> Live:
        observer, bases = self.pipeline.stages.observer, state.reconcile.bases
        return observer.evaluate_health(observer.observe(snapshot, bases, None), snapshot, bases)


def _unasked(wanted: Snapshot, unreachable: Mapping[str, str]) -> tuple[Finding, ...]:
    """One finding for each driver that could not be asked: the plan says nothing of what is there."""
    found = []
    for driver, why in sorted(unreachable.items()):
        agents = sorted(
            str(key)
            for key, agent in wanted.agents.items()
            if any(resource.driver == driver for resource in agent.resources)
        )
        summary = f"the driver {driver} could not be asked, so the plan says nothing of what runs there: {why}"
        detail = (
            f"Agents there: {_first(agents) or 'none in this commit'}. Nothing is done to them until it answers."
        )
        found.append(Finding(Severity.ERROR, PLAN_PARTIAL, driver, summary, detail))
    return tuple(found)


def _unseen(unseen: Mapping[ResourceKey, str]) -> tuple[Finding, ...]:
    """One finding for each reason for which agents could not be looked at though their drivers answered."""
    grouped: dict[str, set[str]] = {}
    for key, why in unseen.items():
        grouped.setdefault(why, set()).add(str(key.agent))
    return tuple(
        Finding(
            Severity.ERROR,
            PLAN_PARTIAL,
            min(agents),
            f"{counted(len(agents), 'agent')} could not be looked at, so the plan says nothing of them: {why}",
            f"Agents: {_first(sorted(agents))}. Nothing is done to them until they can be.",
        )
        for why, agents in sorted(grouped.items())
    )


def _first(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" * (len(names) > MAX_NAMED)
    return ", ".join(names[:MAX_NAMED]) + more


def _held(state: State, plan: Plan) -> tuple[Finding, ...]:
    """What keeps all of a plan from happening, as one finding; nothing where some of it will happen."""
    rollout, sha = state.rollout.rollout, plan.commit[:10]
    live = [action for action in plan.actions if action.verb.touches_live]
    if not live:
        return ()
    if rollout is not None and rollout.commit == plan.commit and rollout.failed:
        why = f"the rollout of {sha} is held: {rollout.failed.rstrip('.')}"
        way_out = f"Push a fix or a revert; or, when what was wrong is not in Git, gitops-agent retry {sha}."
    elif any(action in plan.allowed for action in live):
        return ()
    else:
        holding = [each for each in plan.verdicts if any(action.key in each.held for action in live)]
        about = {str(action.key) for action in live}
        found = [each.findings[0] for each in holding if each.findings]
        found = found or [finding for finding in plan.findings if finding.address in about]
        why = "; ".join(dict.fromkeys(each.summary for each in found)) or "people have to decide"
        way_out = "What is below says how to go on."
    return (Finding(Severity.WARNING, PLAN_HELD, sha, f"none of this will happen now: {why}", way_out),)
