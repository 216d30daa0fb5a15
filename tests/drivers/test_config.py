"""The bundle file: written whole, private, watched over, never through a planted link."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Context, ObserveRequest, is_unchanged
from gitops_agent.drivers.config import PLUGIN, ConfigDriver, config_key
from gitops_agent.errors import ApplyError
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import RealClock, action, agent_document
from tests.support.plugins import compiled

AGENT = AgentKey("acme", "bot")
KEY = config_key(AGENT)


class AgentDir:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.file = state / "agents" / "acme" / "bot" / "config.json"
        self.driver = ConfigDriver(Context("me", str(state), RealClock()))
        self.bases: dict[Any, Base] = {}

    def fields(self, **spec: Any) -> Fields:
        (resource,) = compiled(PLUGIN, AGENT, agent_document(AGENT, spec=spec, command=["bot"]))
        return resource.fields

    def apply(self, fields: Fields | None, verb: Verb = Verb.CREATE) -> None:
        applied = self.driver.apply(action(KEY, verb, desired=fields, seen=self.see()), "intent")
        if fields is not None:
            self.bases[KEY] = Base(KEY, "config", fields, "c0ffee", 0.0, handle=applied.handle)

    def restart(self) -> None:
        """gitops-agent starts anew: only the journal and the file remain."""
        self.driver = ConfigDriver(Context("me", str(self.state), RealClock()))

    def see(self) -> Observation | None:
        found = self.driver.observe(ObserveRequest(None, self.bases))
        return found[0] if found else None


@pytest.fixture
def place(tmp_path: Path) -> AgentDir:
    return AgentDir(tmp_path / "state")


def test_the_bundle_holds_the_brain_and_only_we_can_read_it(place: AgentDir) -> None:
    fields = place.fields(
        instructions="Be kind.",
        model={"provider": "openai", "name": "gpt-5", "parameters": {"temperature": 0.2}},
        tools=[{"name": "crm", "allow": ["read"]}],
        mcpServers=[{"name": "crm", "url": "https://mcp.example.com"}],
        limits={"turns": 10},
    )
    place.apply(fields)
    assert json.loads(place.file.read_text()) == {
        "tenant": "acme",
        "name": "bot",
        "instructions": "Be kind.",
        "model": {"provider": "openai", "name": "gpt-5", "fallbacks": [], "parameters": {"temperature": 0.2}},
        "tools": [{"name": "crm", "allow": ["read"], "approval": "Never"}],
        "mcpServers": [{"name": "crm", "url": "https://mcp.example.com"}],
        "limits": {"turns": 10},
    }
    assert place.file.stat().st_mode & 0o777 == 0o600
    for folder in (place.file.parent, place.file.parent.parent, place.file.parent.parent.parent, place.state):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in place.file.parent.iterdir()] == ["config.json"]
    seen = place.see()
    assert seen is not None
    assert (seen.fields, seen.owner, seen.reason) == (fields, Owner.OURS, None)


@pytest.mark.parametrize(
    "content",
    [
        '{"instructions": "Be rude."}',
        "{}",
        "[]",
        "not json",
        "",
        '{"tenant": "acme", "name": "bot", "model": null, "tools": [], "mcpServers": [], "limits": {}}',
    ],
)
def test_an_edited_file_differs_in_what_is_compared_and_is_rewritten(place: AgentDir, content: str) -> None:
    fields = place.fields()
    place.apply(fields)
    place.file.write_text(content)
    seen = place.see()
    assert seen is not None
    assert seen.reason == "ConfigEdited"
    assert seen.fields is not None
    wanted = fields.value
    assert any(seen.fields.value.get(key) != value for key, value in wanted.items())
    place.apply(fields, Verb.UPDATE)
    after = place.see()
    assert after is not None
    assert (after.fields, after.reason) == (fields, None)


def test_a_new_process_sees_what_the_file_says_and_an_edit_of_the_same_length(place: AgentDir) -> None:
    fields = place.fields(instructions="Be kind.")
    place.apply(fields)
    place.restart()
    seen = place.see()
    assert seen is not None
    assert (seen.fields, seen.reason) == (fields, None)
    written = place.file.stat().st_ctime_ns
    while place.file.stat().st_ctime_ns == written:  # file systems keep time in ticks
        place.file.write_text(place.file.read_text().replace("Be kind.", "Be rude."))
    place.restart()
    edited = place.see()
    assert edited is not None
    assert edited.reason == "ConfigEdited"


def test_an_extra_key_is_an_edit(place: AgentDir) -> None:
    place.apply(place.fields())
    place.file.write_text(json.dumps({**json.loads(place.file.read_text()), "extra": 1}))
    seen = place.see()
    assert seen is not None
    assert seen.reason == "ConfigEdited"


def test_other_white_space_is_not_an_edit(place: AgentDir) -> None:
    place.apply(place.fields())
    place.file.write_text(json.dumps(json.loads(place.file.read_text())))
    seen = place.see()
    assert seen is not None
    assert seen.reason is None


def test_a_lost_file_is_absent(place: AgentDir) -> None:
    fields = place.fields()
    assert place.see() is None
    place.apply(fields)
    shutil.rmtree(place.state)
    seen = place.see()
    assert seen is not None
    assert (seen.fields, seen.reason) == (None, "ConfigLost")
    place.apply(fields)
    assert place.file.exists()


def test_a_file_without_a_record_is_found(place: AgentDir) -> None:
    fields = place.fields()
    place.apply(fields)
    place.bases.clear()
    seen = place.see()
    assert seen is not None
    assert (seen.fields, seen.reason) == (fields, None)


def test_a_planted_link_is_replaced_and_its_target_untouched(place: AgentDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    fields = place.fields()
    place.apply(fields)
    place.file.unlink()
    place.file.symlink_to(victim)
    seen = place.see()
    assert seen is not None
    assert seen.reason == "ConfigEdited"
    place.apply(fields, Verb.UPDATE)
    assert not place.file.is_symlink()
    assert victim.read_text() == "precious"


def test_a_planted_folder_link_is_not_followed(place: AgentDir, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.file.parent.parent.mkdir(parents=True)
    place.file.parent.symlink_to(elsewhere)
    with pytest.raises(ApplyError, match="cannot write"):
        place.apply(place.fields())
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_in_its_place_does_not_hang_us(place: AgentDir) -> None:
    fields = place.fields()
    place.apply(fields)
    place.file.unlink()
    os.mkfifo(place.file)
    seen = place.see()
    assert seen is not None
    assert seen.reason == "ConfigEdited"
    place.apply(fields, Verb.UPDATE)
    assert place.file.is_file()


def test_delete_removes_the_file_and_an_empty_folder(place: AgentDir) -> None:
    place.apply(place.fields())
    place.apply(None, Verb.DELETE)
    place.bases.clear()
    assert not place.file.parent.exists()
    assert place.see() is None
    place.apply(None, Verb.DELETE)


def test_delete_leaves_what_the_agent_wrote(place: AgentDir) -> None:
    place.apply(place.fields())
    (place.file.parent / "work").mkdir()
    place.apply(None, Verb.DELETE)
    assert (place.file.parent / "work").exists()


def test_a_full_disk_keeps_the_old_bundle_and_says_so(place: AgentDir, monkeypatch: pytest.MonkeyPatch) -> None:
    old = place.fields()
    place.apply(old)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ApplyError, match="No space left on device"):
            place.apply(place.fields(instructions="New."), Verb.UPDATE)
    seen = place.see()
    assert seen is not None
    assert seen.fields == old
    assert [path.name for path in place.file.parent.iterdir()] == ["config.json"]


def test_the_precheck_sees_an_edit(place: AgentDir) -> None:
    place.apply(place.fields())
    step = action(KEY, Verb.UPDATE, desired=place.fields(instructions="New."), seen=place.see())
    assert is_unchanged(place.driver, step)
    place.file.write_text("{}")
    assert not is_unchanged(place.driver, step)


def test_only_local_runtimes_have_a_file() -> None:
    assert compiled(PLUGIN, AGENT, agent_document(AGENT, driver="kubernetes", image="x")) == ()
    assert compiled(PLUGIN, AGENT, agent_document(AGENT, spec={"lifecycle": "Retired"}, command=["x"])) == ()


def test_numbers_that_json_cannot_carry_are_refused_in_one_sentence(place: AgentDir) -> None:
    document = agent_document(AGENT, command=["bot"])
    huge = document.model_copy(update={"spec": document.spec.model_copy(update={"limits": {"turns": 2**70}})})
    with pytest.raises(ValueError, match="JSON cannot carry"):
        compiled(PLUGIN, AGENT, huge)
