"""A slip never ends an agent: a file that held one, is still there and holds none now is an error."""

from __future__ import annotations

import pytest

from tests.snapshot.world import Content, World, agent, codes, other

pytestmark = pytest.mark.unit

PATH = "agents/acme/bot.yaml"
GOOD = agent("bot")
ALSO = {"agents/acme/also.yaml": agent("also")}

# What people and tools leave in place of a document.
SLIPS: dict[str, Content] = {
    "empty": "",
    "blank": " \n\n",
    "comments": "".join(f"# {line}\n" for line in GOOD.splitlines()),
    "marker": "---\n",
    "null": "null\n",
    "mapping": "{}\n",
    "lfs": f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 420\n",
    "git-crypt": b"\0GITCRYPT\0" + bytes(range(128, 180)),
    "pgp": "-----BEGIN PGP MESSAGE-----\n\nhQEMA0\n=abcd\n-----END PGP MESSAGE-----\n",
    "truncated": "apiVersi",
    "nested": "agent:\n" + "".join(f"  {line}\n" for line in GOOD.splitlines()),
    "foreign": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bot}\n",
    "policy": other("Policy", {}),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_file_that_lost_its_agent_is_an_error_with_its_address(slip: str) -> None:
    world = World()
    good = world.load({PATH: GOOD, **ALSO})
    with_slip = world.reader.commit({PATH: SLIPS[slip], **ALSO})
    found = world.refuse_after(good, with_slip)
    assert "VanishedDocument" in codes(found)
    vanished = next(finding for finding in found if finding.code == "VanishedDocument")
    assert vanished.address == f"{PATH}:1:1"
    assert "acme/bot" in vanished.summary
    assert "delete its file" in vanished.detail


@pytest.mark.parametrize(
    "name",
    [
        "agents/acme/bot.yaml.bak",
        "agents/acme/bot.yaml.disabled",
        "agents/acme/bot.YAML",
        "agents/acme/bot.txt",
        "agents/acme/.bot.yaml",
        "agents/acme/.off/bot.yaml",
        ".off/bot.yaml",
        "drafts/bot.yaml",
    ],
)
def test_a_file_that_was_moved_where_nothing_is_read_is_an_error_there(name: str) -> None:
    world = World()
    ignored = {".gitopsignore": "drafts/\n"}
    good = world.load({PATH: GOOD, **ALSO, **ignored})
    found = world.refuse_after(good, world.reader.commit({name: GOOD, **ALSO, **ignored}))
    (vanished,) = [finding for finding in found if finding.code == "VanishedDocument"]
    assert vanished.address == f"{name}:1:1"
    assert vanished.summary == f"the file of agent acme/bot was moved to {name}, which is not read"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (GOOD.replace('"Agent"', '"Agnet"'), "UnknownKind"),
        (GOOD.replace('"Agent"', '"Deployment"'), "UnknownKind"),
        (GOOD.replace('"kind"', '"knd"'), "UnknownKind"),
        (GOOD.replace("gitops-agent.dev", "gitops-agnt.dev"), "UnknownApiVersion"),
        (GOOD.replace("gitops-agent.dev/v1", "gitops-agent.dev/v2"), "UnknownApiVersion"),
        (GOOD.replace("apiVersion", "apiVerison"), "UnknownApiVersion"),
        (("120000", "elsewhere.yaml"), "Symlink"),
        (("160000", "0"), "Gitlink"),
        (GOOD.encode("utf-16"), "NotUtf8"),
    ],
)
def test_a_slip_that_has_an_error_of_its_own_is_one(content: Content, code: str) -> None:
    world = World()
    good = world.load({PATH: GOOD, **ALSO})
    assert code in codes(world.refuse_after(good, world.reader.commit({PATH: content, **ALSO})))


def test_a_link_in_its_place_is_an_error_also_where_links_are_ignored() -> None:
    world = World()
    good = world.load({PATH: GOOD, **ALSO})
    linked: dict[str, Content] = {PATH: ("120000", "elsewhere.yaml"), ".gitopsignore": "bot.yaml\n"}
    assert codes(world.refuse_after(good, world.reader.commit({**linked, **ALSO}))) == ["VanishedDocument"]


@pytest.mark.parametrize(
    "rest",
    [
        "spec:\n  runtime: {driver: process}\n",  # without a head
        agent("two").replace("gitops-agent.dev/v1", "apps/v1"),
        "agent: " + agent("two"),
        "{}\n",
        "apiVersi\n",
    ],
)
def test_what_is_left_of_one_of_three_documents_in_a_file_is_an_error(rest: str) -> None:
    world = World()
    good = world.load({PATH: f"{agent('one')}---\n{agent('two')}---\n{agent('three')}", **ALSO})
    slip = world.reader.commit({PATH: f"{agent('one')}---\n{rest}---\n{agent('three')}", **ALSO})
    (vanished,) = [each for each in world.refuse_after(good, slip) if each.code == "VanishedDocument"]
    assert "acme/two" in vanished.summary


def test_it_is_reported_with_every_other_error_of_the_commit() -> None:
    world = World()
    good = world.load({PATH: GOOD, **ALSO})
    found = world.refuse_after(
        good, world.reader.commit({PATH: "", "agents/acme/also.yaml": agent("also", oops=1)})
    )
    assert sorted(codes(found)) == ["UnknownField", "VanishedDocument"]


def test_after_a_restart_and_without_a_change_of_the_tree_it_is_still_found() -> None:
    world = World()
    good = world.load({PATH: GOOD, **ALSO})
    slip = world.reader.commit({PATH: "", **ALSO})
    restarted = World()
    restarted.reader = world.reader
    restarted.loader._reader = world.reader
    restarted.loader.load(slip)  # such as ``plan`` of an earlier commit
    assert codes(restarted.refuse_after(good, slip)) == ["VanishedDocument"]


def test_a_file_that_gitopsignore_hides_is_still_there() -> None:
    world = World()
    good = world.load({PATH: GOOD, **ALSO})
    found = world.refuse_after(good, world.reader.commit({PATH: GOOD, **ALSO, ".gitopsignore": "bot.yaml\n"}))
    assert codes(found) == ["VanishedDocument"]
    assert ".gitopsignore" in next(each.summary for each in found if each.code == "VanishedDocument")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({PATH: GOOD}, {}),  # deleted
        ({PATH: GOOD}, {PATH: agent("other")}),  # renamed in place
        ({PATH: GOOD}, {PATH: "", "agents/acme/moved.yaml": GOOD}),  # moved, and what is left is empty
        ({PATH: agent("bot", lifecycle="Retired")}, {PATH: ""}),  # retired before
        ({PATH: GOOD}, {"agents/acme/new.yaml": GOOD}),  # the whole file moved, and it is read there
        ({PATH: f"{GOOD}---\n{agent('two')}"}, {PATH: agent("two")}),  # one of two, by hand
        ({PATH: f"{GOOD}---\n{agent('two')}"}, {PATH: f"# not now\n---\n{agent('two')}"}),
        ({PATH: GOOD}, {PATH: agent("bot", lifecycle="Retired")}),
        ({PATH: GOOD, "templates/bot.example": GOOD}, {"templates/bot.example": GOOD}),  # a copy was there before
    ],
)
def test_what_people_do_on_purpose_is_none(before: dict[str, Content], after: dict[str, Content]) -> None:
    world = World()
    good = world.load({**before, **ALSO})
    world.loader.load(world.reader.commit({**after, **ALSO}), good)


def test_a_file_that_was_moved_is_found_beside_a_copy_that_was_there_before() -> None:
    world = World()
    copies: dict[str, Content] = {"a.example": GOOD, "z.example": GOOD}
    good = world.load({PATH: GOOD, **ALSO, **copies})
    found = world.refuse_after(good, world.reader.commit({f"{PATH}.bak": GOOD, **ALSO, **copies}))
    assert [each.address for each in found if each.code == "VanishedDocument"] == [f"{PATH}.bak:1:1"]
