"""A slip of the pen never deletes an agent: what looks like one of ours and is not read is said, or refused."""

from __future__ import annotations

import pytest

from tests.snapshot.world import World, agent, codes, load, refuse

pytestmark = pytest.mark.unit

GOOD = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {name: bot}
spec:
  runtime: {driver: process, command: [run]}
"""
PATH = "agents/acme/bot.yaml"
HEAD = "apiVersion: gitops-agent.dev/v1\n"


@pytest.mark.parametrize(
    ("head", "address", "hint"),
    [
        ("", "1:1", "apiVersion is missing"),
        ("apiVersion:\n", "1:1", "did you mean gitops-agent.dev/v1?"),
        ("apiVersion: 1\n", "1:1", "did you mean gitops-agent.dev/v1?"),
        ("apiVersion: v1\n", "1:1", "did you mean gitops-agent.dev/v1?"),
        *(
            (f"{key}: gitops-agent.dev/v1\n", "1:1", "did you mean apiVersion?")
            for key in ("apiversion", "api_version", "ApiVersion", "api-version", "apiVersoin", "version")
        ),
        ("apiversion: v1\n", "1:1", "did you mean apiVersion?"),
        *(
            (f"# a comment\napiVersion: {version}\n", "2:1", "did you mean gitops-agent.dev/v1?")
            for version in (
                "gitops-agents.dev/v1",
                "gitopsagent.dev/v1",
                "gitops-agent/v1",
                "gitops_agent.dev/v1",
                "Gitops-Agent.dev/v1",
                "gtiops-agent.dev/v1",
                "gitops-agent.io/v1beta1",
                "' gitops-agent.dev/v1'",
            )
        ),
    ],
)
def test_a_slip_in_the_first_line_is_an_error(head: str, address: str, hint: str) -> None:
    (finding,) = refuse({PATH: GOOD.replace(HEAD, head), "agents/acme/other.yaml": agent("other")})
    assert (finding.code, finding.address) == ("UnknownApiVersion", f"{PATH}:{address}")
    assert hint in finding.summary
    assert ".gitopsignore" in finding.detail


@pytest.mark.parametrize("kind", ["Agent", "Policy", "Overlay", "CredentialPool"])
@pytest.mark.parametrize(
    "version", ["", "apiversion: gitops-agent.dev/v1\n", "apiVersion: gitops-agents.dev/v1\n"]
)
def test_so_it_is_for_every_kind(kind: str, version: str) -> None:
    assert codes(refuse({PATH: GOOD, "x.yaml": f"{version}kind: {kind}\n"})) == ["UnknownApiVersion"]


@pytest.mark.parametrize("kind", ["Kind: Agent\n", "kind: agent\n", "kind: Agnet\n", "", "KIND: agents\n"])
@pytest.mark.parametrize("head", ["", "apiVersion: gitops-agents.dev/v1\n", "Apiversion: gitops-agent.dev/v1\n"])
def test_two_slips_are_an_error_too(head: str, kind: str) -> None:
    assert codes(refuse({PATH: head + GOOD.removeprefix(HEAD).replace("kind: Agent\n", kind)})) == [
        "UnknownApiVersion"
    ]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("Kind: Agent", "did you mean kind?"),
        ("kind: agent", "did you mean Agent?"),
        ("kind: Agnet", "did you mean Agent?"),
        ("kind:", "missing or not text"),
    ],
)
def test_a_slip_in_the_kind_is_an_error(kind: str, hint: str) -> None:
    (finding,) = refuse({PATH: GOOD.replace("kind: Agent", kind)})
    assert finding.code == "UnknownKind"
    assert finding.address.startswith(f"{PATH}:2:")
    assert hint in finding.summary


@pytest.mark.parametrize("version", ["gitops-agent.dev", "gitops-agent.dev/", "gitops-agent.dev/v2"])
def test_another_version_of_ours_is_an_error(version: str) -> None:
    (finding,) = refuse({PATH: GOOD.replace("gitops-agent.dev/v1", version)})
    assert (finding.code, finding.address) == ("UnknownApiVersion", f"{PATH}:1:13")


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {runtime: x}\n",
        "apiVersion: kagent.dev/v1\nkind: Agent\nmetadata: {name: x}\nspec: {runtime: x}\n",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
        "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {name: x}\n",
        "api_version: example.com/v1\nkind: Policy\n",
        "replicas: 3\nimage: gitops-agent.dev/bot:1\n",
        "metadata: {name: x}\nspec: {replicas: 1}\n",
        "kind: cluster\nmetadata: {name: x}\n",
        "Notes on gitops-agent.dev/v1\n",
        "- a\n- {apiVersion: apps/v1}\n",
    ],
)
def test_what_other_tools_own_is_left_alone(text: str) -> None:
    findings = load({PATH: GOOD, "other.yaml": text}).findings
    assert [(f.severity, f.code) for f in findings] == [("info", "ForeignDocument")]


def test_a_group_that_may_be_another_tool_or_a_slip_is_warned_about() -> None:
    for version in ("v1", "gitops.example.com/v1"):
        findings = load({PATH: GOOD, "x.yaml": f"apiVersion: {version}\nkind: Policy\n"}).findings
        assert [(f.severity, f.code, f.address) for f in findings] == [
            ("warning", "ForeignDocument", "x.yaml:1:1")
        ]


def test_spaces_missing_after_colons_are_an_error() -> None:
    (finding,) = refuse({PATH: "# hi\napiVersion:gitops-agent.dev/v1\nkind:Agent\n"})
    assert (finding.code, finding.address) == ("UnknownApiVersion", f"{PATH}:2:1")


def test_a_list_of_agents_is_an_error_and_a_wrapped_one_a_warning() -> None:
    listed = "".join(f"{'- ' if number == 0 else '  '}{line}\n" for number, line in enumerate(GOOD.splitlines()))
    (finding,) = refuse({PATH: "- x: 1\n" + listed})
    assert (finding.code, finding.address) == ("ForeignDocument", f"{PATH}:2:3")
    assert "---" in finding.detail
    assert codes(refuse({PATH: "apiVersion: v1\nkind: List\nitems:\n" + listed})) == ["ForeignDocument"]
    wrapped = "agent:\n" + "".join(f"  {line}\n" for line in GOOD.splitlines())
    (warned,) = load({PATH: GOOD, "x.yaml": wrapped}).findings
    assert (warned.severity, warned.address) == ("warning", "x.yaml:2:3")


def test_a_document_after_an_end_marker_is_read() -> None:
    for marker in ("...\n", "...\n---\n", "... # end\n"):
        snapshot = load({PATH: GOOD + marker + GOOD.replace("bot", "crm")})
        assert {key.name for key in snapshot.agents} == {"bot", "crm"}


@pytest.mark.parametrize("marker", ["", "----\n", "--\n", " ---\n", "#---\n", "---apiVersion: x\n", "***\n"])
def test_a_slip_in_the_marker_between_two_documents_is_an_error(marker: str) -> None:
    assert codes(refuse({PATH: GOOD + marker + GOOD.replace("bot", "crm")}))


@pytest.mark.parametrize("text", ["", "\n", "# kind: Agent\n", "---\n...\n", "---\n---\n", "~\n"])
def test_a_file_without_a_document_is_warned_about(text: str) -> None:
    (finding,) = load({PATH: text, "agents/acme/other.yaml": agent("other")}).findings
    assert (finding.severity, finding.code, finding.address) == ("warning", "NoDocument", f"{PATH}:1:1")


def test_an_empty_document_beside_others_is_nothing() -> None:
    assert load({PATH: f"# head\n---\n{GOOD}---\n"}).findings == ()


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        *((f"bot{suffix}", "warning") for suffix in (".YAML", ".Yml", ".yaml ", ".yaml.", ".ymal", ".yaml.txt")),
        *((f"bot{suffix}", "info") for suffix in (".yml.bak", ".yaml~", ".yaml.orig", ".yml.off", ".yml_old")),
        (".bot.yaml", "info"),
        (".acme/bot.yaml", "info"),
        ("bot.yaml.tpl", None),
        ("bot.md", None),
        (".gitkeep", None),
    ],
)
def test_a_name_that_is_nearly_read_is_said_and_stays_said(name: str, severity: str | None) -> None:
    world = World()
    path, rest = f"agents/acme/{name}", {"agents/acme/other.yaml": agent("other")}
    first = world.load({path: GOOD, **rest})
    expected = [(severity, "NotRead", f"{path}:1:1")] if severity else []
    assert [(f.severity, f.code, f.address) for f in first.findings] == expected
    assert {key.name for key in first.agents} == {"other"}
    again = world.load({path: GOOD, "agents/acme/other.yaml": agent("other", adopt=True)})
    assert again.findings == first.findings
    assert world.load({PATH: GOOD, **rest}).findings == ()


def test_names_that_are_ignored_or_lie_in_a_dot_folder_of_the_top_are_nothing() -> None:
    files = {".github/ci.yaml": "a: 1\n", ".pre-commit-config.yaml": "a: 1\n", "x/a.YAML": "", "x/b.yaml.bak": ""}
    assert load({PATH: GOOD, ".gitopsignore": "x/\n", **files}).findings == ()
