"""Where live decides: each change is proposed on a branch of its own; what cannot be gets a finding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers import config, process
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.agent import Agent
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PlanContext
from gitops_agent.proposals.import_live import ImportProposer, ImportRefused, branch_of
from gitops_agent.settings import Settings
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror
from gitops_agent.support.secrets import Redactor
from gitops_agent.testing.clock import FrozenClock
from tests.source.conftest import Desk as People
from tests.source.conftest import git

BOT = AgentKey("acme", "bot")
FILE = "agents/acme/bot.yaml"
DOCUMENT = """\
# The bot of Acme
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {name: bot, tenant: acme}
spec:
  authority: {runtime.replicas: live, config.instructions: live}
  instructions: "Be kind."   # to everybody
  runtime:
    driver: process
    command: [sleep, '600']
    replicas: 1  # one is enough
"""
PLUGINS = Plugins([config.PLUGIN, process.PLUGIN])


class Fleet:
    """A repository, a mirror of it, and a live system whose values a test chooses."""

    def __init__(self, folder: Path) -> None:
        bare, work = folder / "fleet.git", folder / "work"
        git(folder, "init", "-q", "--bare", "--initial-branch=main", str(bare))
        git(folder, "clone", "-q", str(bare), str(work))
        git(work, "checkout", "-q", "-B", "main")
        self.people = People(bare, work)
        self.settings = Settings(repo=str(bare), state_dir=str(folder / "state"), instance="prod-eu")
        self.mirror = Mirror(self.settings, {}, FrozenClock())

    def proposer(self, **changes: Any) -> ImportProposer:
        @contextmanager
        def loader() -> Iterator[Loader]:
            yield Loader(self.mirror, PLUGINS, self.settings)

        values: dict[str, Any] = {
            "source": self.mirror,
            "writer": BranchWriter(self.mirror, self.settings),
            "loader": loader,
            "mask": Redactor().tree,
            "settings": self.settings.model_copy(update=changes),
            "plugins": PLUGINS,
        }
        return ImportProposer(**values)

    def snapshot(self) -> Snapshot:
        return Loader(self.mirror, PLUGINS, self.settings).load(self.mirror.refresh())

    def imports(self, **live: Any) -> list[Action]:
        """The IMPORT actions of a plan in which live shows these values instead of those applied."""
        snapshot = self.snapshot()
        agent: Agent = snapshot.agents[BOT]
        bases, seen = {}, []
        for resource in agent.resources:
            bases[resource.key] = Base(resource.key, resource.driver, resource.fields, "c" * 40, 0.0)
            shown = {n: live.get(n, v) for n, v in resource.fields.value.items() if n not in ("env", "command")}
            seen.append(Observation(resource.key, resource.driver, Owner.OURS, Fields.of(shown), "Running", 1.0))
        plan = build(
            snapshot, seen, PlanContext(now=1.0, snapshot=snapshot, bases=bases, catalog=PLUGINS.catalog), {}
        )
        assert all(action.decision is Decision.IMPORT for action in plan.actions)
        return list(plan.actions)

    def branches(self) -> list[str]:
        listed = git(self.people.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads")
        return [name for name in listed.split() if name != "main"]

    def diff(self, branch: str) -> list[str]:
        patch = git(self.people.bare, "diff", "-U0", "main", branch)
        return [line for line in patch.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_the_live_value_is_proposed_in_one_line(fleet: Fleet) -> None:
    head = fleet.people.commit({FILE: DOCUMENT})
    (action,) = fleet.imports(replicas=3)
    said = fleet.proposer().propose(action)

    assert fleet.branches() == [branch_of(action)]
    assert branch_of(action).startswith("gitops-agent/import/acme-bot-")
    assert fleet.diff(branch_of(action)) == [
        "-    replicas: 1  # one is enough",
        "+    replicas: 3  # one is enough",
    ]
    assert git(fleet.people.bare, "rev-parse", "main", f"{branch_of(action)}^").split() == [head, head]
    message = git(fleet.people.bare, "log", "-1", "--format=%B", branch_of(action))
    assert message.startswith("acme/bot: replicas as the live system has it\n\nspec.runtime.replicas: 1 -> 3")
    assert said is not None
    assert branch_of(action) in said.summary
    assert f"git fetch origin {branch_of(action)}" in said.detail


def test_a_text_is_proposed_too(fleet: Fleet) -> None:
    fleet.people.commit({FILE: DOCUMENT})
    (action,) = fleet.imports(instructions="Be brief: now.")
    fleet.proposer().propose(action)
    assert fleet.diff(branch_of(action))[1] == '+  instructions: "Be brief: now."   # to everybody'


def test_repeating_a_proposal_changes_nothing(fleet: Fleet) -> None:
    fleet.people.commit({FILE: DOCUMENT})
    (action,) = fleet.imports(replicas=3)
    fleet.proposer().propose(action)
    first = git(fleet.people.bare, "rev-parse", branch_of(action))
    fleet.people.commit({"README.md": "something else"})
    fleet.mirror.refresh()
    assert fleet.proposer().propose(action) is not None
    assert git(fleet.people.bare, "rev-parse", branch_of(action)) == first


def test_once_merged_there_is_nothing_to_import(fleet: Fleet) -> None:
    fleet.people.commit({FILE: DOCUMENT})
    (action,) = fleet.imports(replicas=3)
    fleet.proposer().propose(action)
    git(fleet.people.work, "pull", "-q", "--ff-only", "origin", branch_of(action))
    fleet.people.push()
    assert fleet.imports(replicas=3) == []
    assert fleet.proposer().propose(action) is None

    # Undone by a person, the same change goes on along the branch that was merged.
    fleet.people.commit({FILE: DOCUMENT})
    (again,) = fleet.imports(replicas=3)
    assert branch_of(again) == branch_of(action)
    assert fleet.proposer().propose(again) is not None
    assert fleet.diff(branch_of(again))[1] == "+    replicas: 3  # one is enough"


OVERLAY = """\
apiVersion: gitops-agent.dev/v1
kind: Overlay
metadata: {name: more}
spec:
  instance: prod-eu
  selector: {names: [bot]}
  patches: [{op: replace, path: /spec/runtime/replicas, value: 2}]
"""


@pytest.mark.parametrize(
    ("files", "live", "why"),
    [
        ({FILE: DOCUMENT, "overlays/prod-eu.yaml": OVERLAY}, {"replicas": 3}, "an overlay sets it"),
        ({FILE: DOCUMENT.replace("replicas: 1", "replicas: &n 1")}, {"replicas": 3}, "anchor"),
        ({FILE: DOCUMENT}, {"replicas": 100_000}, "not valid in a document"),
        ({FILE: DOCUMENT}, {"instructions": "use token=abcdefgh12345678"}, "looks like a secret"),
    ],
)
def test_what_cannot_be_proposed_is_refused_with_a_way_out(
    fleet: Fleet, files: dict[str, str | None], live: dict[str, Any], why: str
) -> None:
    fleet.people.commit(files)
    (action,) = fleet.imports(**live)
    with pytest.raises(ImportRefused, match=why) as refused:
        fleet.proposer().propose(action)
    finding = refused.value.finding
    assert finding.address == str(action.key)
    assert f"by hand in {FILE}:1" in finding.detail
    assert "abcdefgh12345678" not in finding.summary + finding.detail
    assert fleet.branches() == []


def test_without_pushing_nothing_is_pushed(fleet: Fleet) -> None:
    fleet.people.commit({FILE: DOCUMENT})
    (action,) = fleet.imports(replicas=3)
    with pytest.raises(ImportRefused, match="push is off"):
        fleet.proposer(push=False).propose(action)
    assert fleet.branches() == []
