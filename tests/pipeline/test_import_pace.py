"""An import that falls due between two full looks is proposed by the next pass, whatever that looks at; it never
makes passes follow each other without a pause."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Action
from gitops_agent.model.status import Phase
from gitops_agent.proposals.import_live import ImportRefused
from gitops_agent.status.summary import Terms
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import LONG, World

pytestmark = pytest.mark.unit

HOLD_SECONDS = 30.0
MOST_PASSES = 16
"""In two minutes: two for each try, and a remote that is down is tried again after 2 s, 4 s, 8 s and so on."""

LIVE = {"authority": {"runtime.replicas": "live"}}
FLEET = {"a": LIVE, "b": {}}


class Importer:
    """A remote for imports; ``answer`` says how it takes one."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[Action], Finding] = lambda action: Finding(
            Severity.INFO, "ImportProposed", str(action.key), "proposed"
        )

    def propose(self, action: Action) -> Finding:
        self.asked += 1
        return self.answer(action)


class Hanging(Executor):
    """Jobs that never end."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


@pytest.fixture
def importing(world: World) -> World:
    """An agent whose replicas were changed in the live system, a moment ago."""
    world.importer, world.terms = Importer(), Terms(import_hold_seconds=HOLD_SECONDS)
    world.boot()
    world.repository.commit(FLEET)
    assert world.converge().phase is Phase.CONVERGED
    world.live.edit(runtime_key(key("a")), replicas=3)
    world.run()
    assert world.importer.asked == 0, "a value must hold before it is proposed"
    assert world.journal.state().proposals.imports
    return world


def passes_over_the_other(world: World, seconds: float = 120.0) -> int:
    """How many passes there are when only the other agent gives cause, as the daemon runs them: when each asks."""
    end, passes = world.clock.now() + seconds, 0
    while world.clock.now() < end:
        result = world.run("b", fetch=False)
        passes += 1
        assert passes < 500, f"wait {result.wait}"
        world.clock.advance(LONG if result.wait is None else result.wait)
    return passes


def test_it_is_proposed_when_it_is_due_by_a_pass_over_others(importing: World) -> None:
    assert passes_over_the_other(importing) <= MOST_PASSES
    assert importing.importer.asked == 1
    (proposal,) = importing.journal.state().proposals.imports.values()
    assert proposal.finished


def refuse(world: World) -> None:
    def answer(action: Action) -> Finding:
        problem = ImportRefused.__new__(ImportRefused)
        problem.finding = Finding(Severity.WARNING, "ImportRefused", str(action.key), "refused")
        raise problem

    world.importer.answer = answer


def down(world: World) -> None:
    def answer(action: Action) -> Finding:
        raise SourceUnavailable("no answer")

    world.importer.answer = answer


def hang(world: World) -> None:
    world.import_pool = Hanging()
    world.boot()


def freeze(world: World) -> None:
    world.journal.control(Control(ControlVerb.FREEZE, "*", "ada", world.clock.now(), "incident"))


def unreachable(world: World) -> None:
    world.live.unreachable_next(1000)


def changed_back(world: World) -> None:
    world.live.edit(runtime_key(key("a")), replicas=1)


def gone(world: World) -> None:
    world.live.fail_always()
    world.live.remove(runtime_key(key("a")))


def deleted(world: World) -> None:
    world.repository.commit({"b": {}})


def paused(world: World) -> None:
    world.repository.commit({"a": {**LIVE, "reconcile": {"paused": True, "reason": "audit"}}, "b": {}})


def without_authority(world: World) -> None:
    world.repository.commit({"a": {}, "b": {}})


def changed_again(world: World) -> None:
    world.live.edit(runtime_key(key("a")), replicas=4)


def restarted(world: World) -> None:
    world.boot()


@pytest.mark.parametrize(
    "event",
    [
        refuse,
        down,
        hang,
        freeze,
        unreachable,
        changed_back,
        changed_again,
        gone,
        deleted,
        paused,
        without_authority,
        restarted,
    ],
)
@pytest.mark.parametrize("seen", ["by a pass", "before it is due"])
def test_whatever_happens_meanwhile_passes_do_not_run_hot(
    importing: World, event: Callable[[World], None], seen: str
) -> None:
    event(importing)
    if seen == "by a pass":
        importing.run()
    assert passes_over_the_other(importing) <= (120 / 5 + MOST_PASSES if event is unreachable else MOST_PASSES)
