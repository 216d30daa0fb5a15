"""Values are changed in place: one value and not one other byte, whatever the author's style."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gitops_agent.drivers.api import Plugin, ResourceKind, Strict
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.document import DOCUMENTS
from gitops_agent.settings import Limits
from gitops_agent.snapshot.editing import CannotEdit, Path, edited
from gitops_agent.snapshot.positions import Locator
from gitops_agent.snapshot.schema import Documents
from gitops_agent.snapshot.yaml_documents import FileParser
from gitops_agent.testing.memory_driver import MemoryDriver

pytestmark = pytest.mark.unit

REPLICAS: Path = ("spec", "runtime", "replicas")
INSTRUCTIONS: Path = ("spec", "instructions")
HEAD = "apiVersion: gitops-agent.dev/v1\nkind: Agent\nmetadata: {name: bot, tenant: acme}\n"


def changed(text: str, path: Path, value: Any, line: int = 1, models: Documents = DOCUMENTS) -> str:
    return edited(text.encode(), line, {path: value}, Limits(), models).decode()


def documents(data: bytes) -> list[Any]:
    found, findings = FileParser(Limits(), Locator(0)).parse("x.yaml", data)
    assert not [finding for finding in findings if finding.severity == "error"]
    return [orjson.loads(document.raw) for document in found]


def authored(data: bytes, line: int) -> Any:
    found, _ = FileParser(Limits(), Locator(0)).parse("x.yaml", data)
    return next(orjson.loads(document.raw) for document in found if document.line == line)


STYLES = {
    "block": ("replicas: 1  # enough\n    driver: vm\n", "replicas: 3  # enough\n    driver: vm\n"),
    "no value": ("driver: vm\n    replicas: # later\n", "driver: vm\n    replicas: 3 # later\n"),
    "null": ("driver: vm\n    replicas: null\n", "driver: vm\n    replicas: 3\n"),
    "quoted keys": ('"driver": vm\n    "replicas":   1', '"driver": vm\n    "replicas":   3'),
    "flow": ("{replicas: 1, image: x, driver: vm}\n", "{replicas: 3, image: x, driver: vm}\n"),
    "flow over lines": (
        "{ # why\n    replicas: 1 # x\n , image: x, driver: vm}",
        "{ # why\n    replicas: 3 # x\n , image: x, driver: vm}",
    ),
    "missing": (
        "driver: vm # here\n\n    # last\n",
        "driver: vm # here\n    replicas: 3\n\n    # last\n",
    ),
    "missing, a flow neighbour": (
        "driver: vm\n    stop: {grace: 2s} # x\n",
        "driver: vm\n    stop: {grace: 2s} # x\n    replicas: 3\n",
    ),
    "missing, maps after": (
        "driver: vm\n    # how it ends\n    stop:\n      grace: 2s\n",
        "driver: vm\n    replicas: 3\n    # how it ends\n    stop:\n      grace: 2s\n",
    ),
    "missing in flow": ("{image: x, driver: vm}\n", "{image: x, driver: vm, replicas: 3}\n"),
    "missing in flow with a comma": ("{image: x, driver: vm, }\n", "{image: x, driver: vm, replicas: 3, }\n"),
    "no end of line": ("driver: vm", "driver: vm\n    replicas: 3"),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_number_in_every_style(style: str, ending: str) -> None:
    gap = " " if STYLES[style][0].startswith("{") else "\n    image: x\n    "
    before, after = (
        f"{HEAD}spec:\n  # how it runs\n  runtime:{gap}{each}".replace("\n", ending) for each in STYLES[style]
    )
    assert changed(before, REPLICAS, 3) == after
    assert changed("\ufeff" + before, REPLICAS, 3) == "\ufeff" + after


TEXTS = {
    "plain": ("Be kind. # really", "Be brief", "Be brief # really"),
    "plain cannot say it": ("Be kind", "yes", '"yes"'),
    "plain over lines": ("Be\n    kind", "Be brief", "Be brief"),
    "single": ("'Be kind' # x", "it's: #1", "'it''s: #1' # x"),
    "single cannot say it": ("'Be kind'", "a\tb", '"a\\tb"'),
    "double": ('"Be kind"', 'say "hi"\u2028', '"say \\"hi\\"\\u2028"'),
    "literal": ("| # why\n    Be\n    kind\n", "Be\n\n  brief: #1\n", "| # why\n    Be\n\n      brief: #1\n"),
    "literal without a last line end": ("|\n    Be kind\n", "Be brief", "|-\n    Be brief\n"),
    "folded": (">-\n      Be\n      kind\n", "Be brief\nnow\n", "|\n      Be brief\n      now\n"),
    "literal cannot say it": ("|\n    Be kind\n", "\n a ", '"\\n a "\n'),
}


@pytest.mark.parametrize("style", TEXTS)
@pytest.mark.parametrize("rest", ["", "\n  # what it is\n  description: x\n", "  description: x\n"])
def test_a_text_in_every_style(style: str, rest: str) -> None:
    written, value, wanted = TEXTS[style]
    end = "" if written.endswith("\n") else "\n"
    frame = f"{HEAD}spec:\n  runtime: {{driver: vm, image: x}}\n  instructions: %s{end}{rest}"
    assert changed(frame % written, INSTRUCTIONS, value) == frame % wanted


def test_a_parent_that_is_missing_is_added() -> None:
    text = HEAD + "spec:\n  runtime: {driver: vm, image: x}\n"
    with pytest.raises(CannotEdit, match=r"spec.model needs provider"):
        changed(text, ("spec", "model", "name"), "gpt-5")
    model = "  model: {name: gpt-5, provider: openai}\n"
    both: dict[Path, Any] = {("spec", "model", "name"): "gpt-5", ("spec", "model", "provider"): "openai"}
    assert edited(text.encode(), 1, both, Limits(), DOCUMENTS).decode() == text + model


def test_the_section_of_a_driver_is_judged_by_its_plugin() -> None:
    class Mailbox(Strict):
        quota: int

    kind = ResourceKind("mailbox", 55, ("spec", "mailbox"))
    plugin = Plugin("mailbox", (kind,), lambda _: (), lambda _: MemoryDriver("mailbox"), options=Mailbox)
    models = Plugins([plugin]).documents
    text = HEAD + "spec:\n  mailbox: {quota: 1}\n  runtime: {driver: vm}\n"
    quota: Path = ("spec", "mailbox", "quota")
    assert changed(text, quota, 5, models=models) == text.replace("quota: 1", "quota: 5")
    with pytest.raises(CannotEdit, match=r"not valid in a document \(spec.mailbox.quota"):
        changed(text, quota, "much", models=models)


def test_the_right_one_of_several_documents() -> None:
    one = HEAD + "spec: {runtime: {driver: vm, image: x, replicas: 1}}\n"
    text = f"# ours\n{one}---\n# theirs\nother: 1\n--- # again\n{one.replace('bot', 'cat')}...\n"
    line = text[: text.index("--- # again")].count("\n") + 1
    assert changed(text, REPLICAS, 7, line) == text[:-10] + text[-10:].replace("1", "7")
    assert authored(text.encode(), line)["metadata"]["name"] == "cat"
    with pytest.raises(CannotEdit, match="line 99"):
        changed(text, REPLICAS, 7, 99)


@pytest.mark.parametrize(
    ("body", "path", "value", "why"),
    [
        ("runtime: &r {driver: vm, image: x}\n", REPLICAS, 3, "anchor"),
        ("runtime: {driver: vm, image: x, replicas: &n 2}\n  heartbeat: {}\n", REPLICAS, 3, "anchor"),
        ("runtime: {driver: vm, image: x}\n", REPLICAS, 0, "not valid in a document"),
        ("runtime: {driver: vm, image: x}\n", REPLICAS, "many", "not valid in a document"),
        (
            "runtime: {driver: vm, image: x}\n  tools:\n    - {name: a} # x\n",
            ("spec", "tools"),
            [],
            "several lines",
        ),
        ("runtime: {driver: vm, image: x}\n  tools: [{name: a}, # x\n   ]\n", ("spec", "tools"), [], "comments"),
        ("runtime: process\n", REPLICAS, 3, "not a map"),
        ("runtime: {driver: vm, image: x}\n  runtime: {driver: vm, image: x}\n", REPLICAS, 3, "not valid"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused(body: str, path: Path, value: Any, why: str) -> None:
    with pytest.raises(CannotEdit, match=why):
        changed(f"{HEAD}spec:\n  {body}", path, value)


comments = st.sampled_from(["", " # x", "   # it's: {odd}", " #"])
between = st.lists(st.sampled_from(["", "# note", "    # deep: 1", "#- a", "  "]), max_size=2)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, int]:
    """A file with comments in odd places and the line of one of its documents."""
    chunks = [draw(_document(number)) for number in range(draw(st.integers(1, 3)))]
    chosen = draw(st.integers(0, len(chunks) - 1))
    text, line = "", 1
    for number, chunk in enumerate(chunks):
        marker = "" if number == 0 and draw(st.booleans()) else f"---{draw(comments)}\n"
        if number == chosen:
            line = text.count("\n") + 1
        text += marker + chunk
    return text, line


@st.composite
def _document(draw: st.DrawFn, number: int) -> str:
    step = " " * draw(st.integers(1, 4))
    rows = ["apiVersion: gitops-agent.dev/v1", "kind: Agent", f"metadata: {{name: bot-{number}, tenant: acme}}"]
    described = draw(st.sampled_from(["x", "'a: #b'", f">-\n{step * 2}long"]))
    parts = [f"{step}description: {described}"]
    runtime = draw(st.permutations(["driver: vm", "image: x", "minUptime: 1s", "stop: {grace: 2s}"]))
    replicas = draw(st.sampled_from([None, "replicas: 1", "replicas:   2", "'replicas': 3", "replicas:"]))
    if replicas is not None:
        runtime = draw(st.permutations([*runtime, replicas]))
    if draw(st.booleans()):
        glue = draw(st.sampled_from([", ", ",\n" + step * 3, " , "]))
        inner = glue.join(each + (" " if each.endswith(":") else "") for each in runtime)
        parts.append(f"{step}runtime: {{{inner}}}{draw(comments)}")
    else:
        lines = [f"{step}runtime:{draw(comments)}"]
        for each in runtime:
            lines += [*draw(between), f"{step * 2}{each}{draw(comments)}"]
        parts.append("\n".join(lines))
    rows += ["spec:" + draw(comments), *draw(st.permutations(parts))]
    noisy: list[str] = []
    for row in rows:
        noisy += [*draw(between), row] if not row.startswith(" ") or "long" not in row else [row]
    return "\n".join([*noisy, *draw(between)]) + "\n"


@given(files(), st.integers(1, 1000), st.sampled_from(["\n", "\r\n"]))
def test_one_value_changes_and_no_other_byte(file: tuple[str, int], value: int, ending: str) -> None:
    text, line = file
    data = text.replace("\n", ending).encode()
    before = documents(data)
    chosen = authored(data, line)
    assume(chosen["spec"]["runtime"].get("replicas") != value)

    after = edited(data, line, {REPLICAS: value}, Limits(), DOCUMENTS)

    expected = [{**each} for each in before]
    for each in expected:
        if each["metadata"] == chosen["metadata"]:
            each["spec"] = {**each["spec"], "runtime": {**each["spec"]["runtime"], "replicas": value}}
    assert documents(after) == expected
    _only_that(data.decode(), after.decode(), str(chosen["spec"]["runtime"].get("replicas") or ""), str(value))
    assert edited(after, line, {REPLICAS: value}, Limits(), DOCUMENTS) == after, (
        "a second time there is nothing to do"
    )


def _only_that(before: str, after: str, old: str, new: str) -> None:
    """What was taken out is (part of) the old value; what was put in belongs to the new one."""
    start = next(
        (at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]),
        min(len(before), len(after)),
    )
    rest = 0
    while rest < min(len(before), len(after)) - start and before[-1 - rest] == after[-1 - rest]:
        rest += 1
    gone, come = before[start : len(before) - rest], after[start : len(after) - rest]
    assert gone in old
    assert set(come) <= set(f"replicas: {new},\r\n")
    assert len(after.splitlines()) - len(before.splitlines()) in (0, 1)


@given(st.text(max_size=40), st.sampled_from(sorted(TEXTS)))
@example("a\n b\n", "literal")
@example("\x85", "single")
def test_any_text_is_written_so_that_it_reads_the_same(value: str, style: str) -> None:
    written = TEXTS[style][0]
    end = "" if written.endswith("\n") else "\n"
    text = f"{HEAD}spec:\n  runtime: {{driver: vm, image: x}}\n  instructions: {written}{end}"
    text += "  # end\n  description: x\n"
    assume(not any(0xD800 <= ord(char) < 0xE000 for char in value))
    after = changed(text, INSTRUCTIONS, value)
    (document,) = documents(after.encode())
    assert document["spec"]["instructions"] == value
    assert after.endswith("  # end\n  description: x\n")
    assert after.startswith(text[: text.index(written)])
