"""What the text of a file may hold, and what is said when it may not."""

from __future__ import annotations

import pytest

from gitops_agent.settings import Limits, Settings
from tests.snapshot.world import agent, codes, load, refuse

pytestmark = pytest.mark.unit

GOOD = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {name: bot}
spec:
  runtime: {driver: process, command: [run]}
"""
PATH = "agents/acme/bot.yaml"


def findings_of(text: str | bytes) -> list[tuple[str, str]]:
    found = refuse({PATH: text})
    return [(finding.code, finding.address.removeprefix(PATH + ":")) for finding in found]


def test_a_plain_document_is_an_agent_of_its_folder() -> None:
    snapshot = load({PATH: GOOD})
    assert [str(key) for key in snapshot.agents] == ["acme/bot"]
    assert snapshot.findings == ()


def test_several_documents_know_their_first_lines() -> None:
    second = GOOD.replace("bot", "crm")
    snapshot = load({PATH: f"{GOOD}--- # second\n{second}...\n---\n# nothing\n"})
    assert sorted(str(found.origin) for found in snapshot.agents.values()) == [f"{PATH}:1", f"{PATH}:6"]


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("  lifecycle: !!str Running\n", ("TagNotSupported", "6:14")),
        ("  description: !secret x\n", ("TagNotSupported", "6:16")),
        ("  adopt: false\n  adopt: true\n", ("DuplicateKey", "7:3")),
        ("  limits: {<<: {turns: 1}}\n", ("MergeKeyNotSupported", "6:12")),
        ("  limits: {1: x}\n", ("NotTextKey", "6:12")),
        ("  limits: {true: x}\n", ("NotTextKey", "6:12")),
        ("  limits: &a {turns: [*a]}\n", ("RecursiveAlias", "6:11")),
        ("  description: a\x07b\n", ("ControlCharacter", "6:17")),
        ("  description: a\u0090b\n", ("ControlCharacter", "6:17")),
        ("  description: a\ufeffb\n", ("ControlCharacter", "6:17")),
        ("  description: [unclosed\n", ("InvalidYaml", "6:16")),
        ("  limits: *missing\n", ("InvalidYaml", "6:11")),
    ],
)
def test_what_the_text_may_not_hold_is_addressed(added: str, expected: tuple[str, str]) -> None:
    assert expected in findings_of(GOOD + added)


def test_a_duplicate_key_names_both_lines() -> None:
    (finding,) = refuse({PATH: GOOD + "  adopt: false\n  adopt: true\n"})
    assert "lines 6 and 7" in finding.summary


@pytest.mark.parametrize("number", [".nan", "-.inf", "1e400", "123456789012345678901234567890"])
def test_numbers_that_json_cannot_say_are_refused(number: str) -> None:
    assert findings_of(GOOD + f"  limits: {{turns: {number}}}\n")[0][0] == "BadNumber"


def test_directives_are_refused_in_ours() -> None:
    assert findings_of("%YAML 1.1\n---\n" + GOOD) == [("DirectiveNotSupported", "1:1")]


def test_prose_with_marks_is_only_prose() -> None:
    prose = (
        "  instructions: |\n    Never shout!  !important *bold* &c. << 50 % off\n    *start* of a line\n    !wow\n"
    )
    snapshot = load({PATH: GOOD + prose})
    (found,) = snapshot.agents.values()
    assert found.resources[0].fields.value["instructions"].endswith("*start* of a line\n!wow\n")


def test_anchors_and_aliases_are_values_within_the_limit() -> None:
    text = (
        GOOD + "  limits: {a: &x {turns: 3}, b: *x}\n  model: {provider: p, name: n, parameters: &y {t: null}}\n"
    )
    assert load({PATH: text}).agents
    few = Settings(limits=Limits(aliases=0))
    assert codes(refuse({PATH: text}, settings=few)) == ["TooManyAliases"]


def test_dates_and_words_of_yaml_1_1_stay_text() -> None:
    snapshot = load({PATH: GOOD + "  description: 2020-01-01\n"})
    assert next(iter(snapshot.agents.values())).description == "2020-01-01"
    assert findings_of(GOOD + "  adopt: off\n") == [("WrongType", "6:10")]


def test_not_utf8_is_addressed_to_the_byte() -> None:
    assert findings_of(GOOD.encode() + b"  description: caf\xe9\n") == [("NotUtf8", "6:19")]
    assert findings_of("\ufeff".encode("utf-16")) == [("NotUtf8", "1:1")]


def test_a_leading_byte_order_mark_and_foreign_line_ends_are_fine() -> None:
    for text in ("\ufeff" + GOOD, GOOD.replace("\n", "\r\n"), GOOD.replace("\n", "\r")):
        assert load({PATH: text}).agents


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "- " * 200_000,
        ": " * 200_000,
        "? " * 200_000,
        "{a: " * 100_000,
        "\n".join(" " * depth + "a:" for depth in range(1_400)),
        "&a " + "- " * 200_000,
        "a: &a [x,x]\n" + "".join(f"b{n}: &b{n} [*b{n - 1},*b{n - 1}]\n" for n in range(1, 60)).replace("b0", "a"),
    ],
)
def test_text_that_kills_parsers_reaches_none(text: str) -> None:
    """These end the process of an unguarded parser, or fill its memory."""
    found = refuse({PATH: text})
    assert {finding.code for finding in found} <= {"TooDeep", "InvalidYaml"}


def test_depth_of_ours_is_bounded() -> None:
    nested = "[" * 40 + "]" * 40
    assert findings_of(GOOD + f"  limits: {{deep: {nested}}}\n")[0][0] == "TooDeep"


def test_large_prose_is_not_taken_for_depth() -> None:
    prose = "".join(f"    - point {number}: see [x], {{y}}: - nested? yes\n" for number in range(3_000))
    assert load({PATH: GOOD + "  instructions: |\n" + prose}).agents


def test_limits_on_size_and_number() -> None:
    small = Settings(limits=Limits(file_bytes=400, documents=2, files=2))
    assert codes(refuse({PATH: GOOD + "#" * 400}, settings=small)) == ["TooLarge"]
    assert codes(refuse({PATH: "---\na: 1\n" * 3}, settings=small)) == ["TooManyDocuments"]
    assert codes(refuse({f"{n}.yaml": "a: 1\n" for n in range(3)}, settings=small)) == ["TooManyFiles"]
    total = Settings(limits=Limits(total_bytes=100))
    assert codes(refuse({PATH: GOOD}, settings=total)) == ["TooLarge"]


def test_foreign_documents_must_only_parse() -> None:
    foreign = "kind: Deployment\napiVersion: apps/v1\nx: !custom 1\ny: 1\ny: 2\n1: a\ntrue: b\n"
    snapshot = load({PATH: GOOD, "k8s.yaml": f"{foreign}---\n- a list\n---\njust text\n"})
    assert [(f.severity, f.code, f.address) for f in snapshot.findings] == [
        ("info", "ForeignDocument", "k8s.yaml:1:1"),
        ("info", "ForeignDocument", "k8s.yaml:8:1"),
        ("info", "ForeignDocument", "k8s.yaml:10:1"),
    ]
    assert codes(refuse({"k8s.yaml": "a: [\n"})) == ["InvalidYaml"]


def test_every_error_of_a_commit_is_reported_at_once() -> None:
    found = refuse(
        {
            "agents/acme/a.yaml": "a: [\n",
            "agents/acme/b.yaml": b"\xff",
            "agents/acme/c.yaml": GOOD.replace("runtime", "runtimes").replace("bot", "c")
            + "---\n"
            + GOOD
            + "  x: 1\n",
            "agents/acme/d.yaml": agent("d", rollout={"dependsOn": ["nobody"]}),
            "link.yaml": ("120000", "agents/acme/d.yaml"),
        }
    )
    assert codes(found) == [
        "InvalidYaml",
        "NotUtf8",
        "MissingField",
        "UnknownField",
        "UnknownField",
        "UnknownDependency",
        "Symlink",
    ]
    assert found[2].address.startswith("agents/acme/c.yaml:4")
    assert found[4].address == "agents/acme/c.yaml:12:3"
