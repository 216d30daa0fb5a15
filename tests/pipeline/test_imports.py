"""What live decides and Git should follow: when its time has come, the pass that is woken for it looks at it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from gitops_agent.pipeline import Pipeline
from gitops_agent.proposals.import_live import ImportProposer
from gitops_agent.proposals.outbox import ProposalOutbox
from gitops_agent.status.summary import Terms
from gitops_agent.testing.memory_driver import runtime_key
from tests.proposals.test_outbox import FakeImporter

from .repository import key
from .world import Inline, World

LIVE: dict[str, Any] = {"authority": {"runtime.replicas": "live"}}


def test_an_import_that_falls_due_between_two_full_looks_is_made_and_wakes_no_further_pass(world: World) -> None:
    importer = FakeImporter()
    outbox = ProposalOutbox(None, cast(ImportProposer, importer), executor=Inline())
    stages = replace(world.stages, proposals=outbox, terms=Terms(may_push=True, import_hold_seconds=60.0))
    world.pipeline = Pipeline(stages, world.journal, world.clock)
    world.repository.commit({"one": LIVE, "two": {}})
    world.converge()
    world.live.edit(runtime_key(key("one")), replicas=3)
    result = world.run()
    assert importer.asked == []
    assert result.wait is not None
    world.clock.advance(result.wait)
    result = world.run("two", fetch=False)
    assert len(importer.asked) == 1
    result = world.run("two", fetch=False)
    assert (len(importer.asked), result.wait) == (1, None), "made once, and nothing more is foreseen"
