"""A revert that one gitops-agent made and another one has to push: with real git, and a mirror each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import RevertProposal
from gitops_agent.proposals.revert import RevertProposer
from gitops_agent.settings import Settings
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror
from tests.source.conftest import Desk, Wall, git, make_desk


class Story:
    """A branch whose newest commit failed its gate, and machines that share the journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desk: Desk = make_desk(folder / "remote")
        self.good = self.desk.commit({"a.yaml": "a: 1\n"})
        self.bad = self.desk.commit({"a.yaml": "a: 2\n"})
        self.branch = f"gitops-agent/revert-{self.bad[:10]}"

    def rollout(self, on_failure: str) -> Rollout:
        return Rollout(self.bad, "tree", (), failed="a is not Ready", on_failure=on_failure)

    def machine(self, name: str) -> RevertProposer:
        settings = Settings(repo=str(self.desk.bare), state_dir=str(self.folder / name), instance="test")
        mirror = Mirror(settings, {**os.environ}, Wall())
        mirror.refresh()
        return RevertProposer(mirror, BranchWriter(mirror, settings), "main")

    def advance(self, machine: RevertProposer, proposal: RevertProposal, on_failure: str) -> RevertProposal:
        return machine.advance(proposal, self.rollout(on_failure), self.good)

    def content(self, branch: str) -> str:
        return git(self.desk.bare, "show", f"{branch}:a.yaml")


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


@pytest.mark.parametrize("on_failure", ["Revert", "ProposeRevert"])
def test_a_revert_that_only_a_machine_that_died_has_is_made_again(story: Story, on_failure: str) -> None:
    made = story.advance(story.machine("one"), RevertProposal(story.bad), on_failure)
    assert made.sha
    assert not made.finished
    other = story.machine("two")
    again = story.advance(other, made, on_failure)
    assert other.source.has(again.sha)
    assert not again.finished, "what is to be pushed is on record first"
    done = story.advance(other, again, on_failure)
    assert (done.finished, done.branch) == (True, "main" if on_failure == "Revert" else story.branch)
    assert story.content(done.branch) == "a: 1"


def test_a_proposal_that_a_machine_pushed_before_it_died_is_left_as_it_is(story: Story) -> None:
    one, two = story.machine("one"), story.machine("two")
    made = story.advance(one, RevertProposal(story.bad), "ProposeRevert")
    story.advance(one, made, "ProposeRevert")  # and the result is lost
    made_again = RevertProposal(story.bad, sha=story.advance(two, made, "ProposeRevert").sha)
    done = story.advance(two, made_again, "ProposeRevert")
    assert (done.finished, done.branch) == (True, story.branch)
    assert "holds the revert" in done.message
    assert git(story.desk.bare, "rev-parse", story.branch) == made.sha
