"""What the schema says about wrong documents: an address, what was found, what was expected, a way out."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml_rs

from gitops_agent.drivers import process
from gitops_agent.drivers.plugins import Plugins, load_plugins
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.finding import Finding
from gitops_agent.model.quantity import counted, epoch, iso, memory_bytes, seconds
from gitops_agent.settings import Limits, Settings
from gitops_agent.snapshot.loader import Loader
from gitops_agent.snapshot.schema import json_schema
from tests.snapshot.world import MemoryReader, codes, document, load, other, refuse, text

pytestmark = pytest.mark.unit

PATH = "agents/acme/bot.yaml"
HEAD = "apiVersion: gitops-agent.dev/v1\nkind: Agent\nmetadata: {name: bot}\n"
RUNTIME = "  runtime: {driver: process, command: [run]}\n"
# In the form of a credential, and made up.
CANARY = "sk-" + "canary0" * 5


def findings_of(content: str) -> list[Finding]:
    return refuse({PATH: content})


def single(content: str) -> Finding:
    found = findings_of(content)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("spec", "code", "address", "words"),
    [
        ("  lifecyle: Running\n", "UnknownField", "6:3", "did you mean lifecycle?"),
        ("  deletion_policy: Delete\n", "UnknownField", "6:3", "did you mean deletionPolicy?"),
        ("  lifecycle: running\n", "UnknownWord", "6:14", "did you mean Running?"),
        ("  lifecycle: true\n", "WrongType", "6:14", "a boolean where a word is due"),
        ("  reconcile: {mode: Enforced}\n", "UnknownWord", "6:21", "did you mean Enforce?"),
        ("  adopt: yes\n", "WrongType", "6:10", "found the text yes"),
        ("  tools: crm\n", "WrongType", "6:10", "found the text crm"),
        ("  heartbeat: {staleAfter: 60}\n", "WrongType", "6:27", "found the number 60"),
        ("  heartbeat: {staleAfter: 60 s}\n", "BadFormat", "6:27", "found the text 60 s"),
        ("  model: {provider: p}\n", "MissingField", "6:3", "spec.model needs name"),
        ("  probes: {liveness: {http: {port: 0}}}\n", "OutOfRange", "6:36", "found the number 0"),
        ("  probes:\n    readiness: {period: 5s}\n", "InvalidValue", "7:16", "exactly one of http and exec"),
        ("  tools: [{name: a}, {name: a}]\n", "InvalidValue", "6:10", "more than once: a"),
        ("  reconcile: {paused: true, until: 2030-02-31T00:00:00Z}\n", "InvalidValue", "6:36", "calendar"),
        ("  mcpServers: [{name: a, url: 'https://u:p@h'}]\n", "BadFormat", "6:31", "mcpServers[0].url"),
        ("  status: {}\n", "StatusAuthored", "6:3", "status is never authored"),
        ('  description: "\\e[2Jcleared"\n', "BadFormat", "6:16", "\\x1b[2Jcleared"),
    ],
)
def test_wrong_fields(spec: str, code: str, address: str, words: str) -> None:
    finding = single(f"{HEAD}spec:\n{RUNTIME}{spec}")
    assert (finding.code, finding.address) == (code, f"{PATH}:{address}")
    assert words in finding.summary
    assert finding.detail or code == "InvalidValue"


@pytest.mark.parametrize(
    ("runtime", "code"),
    [
        ("{driver: proces, command: [run]}", "DriverNotInstalled"),
        ("{driver: process}", "DriverRefused"),
        ("{driver: container}", "DriverNotInstalled"),
        ("{driver: 'no name', command: [run]}", "BadFormat"),
        ("{driver: process, command: [run], replicas: true}", "WrongType"),
        ("{driver: process, command: [run], replicas: 0}", "OutOfRange"),
        ("{driver: process, command: [run], replicas: 1.5}", "WrongType"),
        ("{driver: process, command: [run, 8080]}", "WrongType"),
        ("{driver: process, command: [run], env: {A: b}}", "WrongType"),
        ("{driver: process, command: [run], env: [{name: A}]}", "InvalidValue"),
        ("{driver: process, command: [run], env: [{name: A, value: 1}]}", "WrongType"),
        ("{driver: process, command: [run], env: [{name: 'A B', value: x}]}", "BadFormat"),
        ("{driver: process, command: [run], env: [{name: MANAGED_AGENT_X, value: x}]}", "InvalidValue"),
        ("{driver: process, command: [run], env: [{name: A, value: a}, {name: A, value: b}]}", "InvalidValue"),
        ("{driver: process, command: [run], resources: {limits: {memory: 1Zi}}}", "BadFormat"),
        ("{driver: process, command: [run], kubernetes: {namespace: x}}", "UnknownField"),
    ],
)
def test_wrong_runtimes(runtime: str, code: str) -> None:
    loader = Loader(reader := MemoryReader(), Plugins([process.PLUGIN]), Settings(instance="prod"))
    with pytest.raises(InvalidDesiredState) as refused:
        loader.load(reader.commit({PATH: f"{HEAD}spec:\n  runtime: {runtime}\n"}))
    assert codes(refused.value.findings) == [code]


def test_a_driver_that_is_not_installed_is_likely_a_slip() -> None:
    found = single(f"{HEAD}spec:\n  runtime: {{driver: proces, command: [run]}}\n")
    assert "did you mean process?" in found.summary
    assert "installed: process" in found.detail


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ("apiVersion: gitops-agent.dev/v9\nkind: Agent\n", "UnknownApiVersion", "gitops-agent.dev/v1"),
        ("apiVersion: gitops-agent.dev\nkind: Agent\n", "UnknownApiVersion", "gitops-agent.dev/v1"),
        ("apiVersion: gitops-agent.dev/v1\nkind: Agnet\n", "UnknownKind", "did you mean Agent?"),
        ("apiVersion: gitops-agent.dev/v1\nkind: [Agent]\n", "UnknownKind", "kind is missing"),
        ("apiVersion: gitops-agent.dev/v1\n", "UnknownKind", "kind is missing"),
        (HEAD + f"spec:\n{RUNTIME}status: {{}}\n", "StatusAuthored", "never authored"),
    ],
)
def test_wrong_heads(content: str, code: str, words: str) -> None:
    finding = single(content)
    assert finding.code == code
    assert words in finding.summary


@pytest.mark.parametrize(
    "slot",
    [
        f"{{name: A, value: {CANARY}}}",
        f"{{name: A, valueFrom: {{secretRef: {CANARY}}}}}",
        f"{{name: A, valueFrom: {CANARY}}}",
        f"{{name: A, value: 'https://user:{CANARY}@host/'}}",
        '{name: A, value: "-----BEGIN RSA PRIVATE KEY-----\\nabc"}',
    ],
)
def test_a_literal_in_a_secret_slot_is_refused_and_never_shown(slot: str) -> None:
    finding = single(f"{HEAD}spec:\n  runtime: {{driver: process, command: [run], env: [{slot}]}}\n")
    assert finding.code == "LiteralSecret"
    assert "canary" not in repr(finding)


@pytest.mark.parametrize(
    "content",
    [
        f"spec:\n{RUNTIME}  lifecycle: {CANARY}\n",
        f"spec:\n{RUNTIME}  {CANARY}: x\n",
        f"spec:\n{RUNTIME}  channels: [{{name: a, type: t, credentialRef: {CANARY}}}]\n",
        f"spec:\n{RUNTIME}  channels: [{{name: a, type: t, credentialRef: {{provider: env, name: {CANARY}}}}}]\n",
        f"spec:\n{RUNTIME}  channels: [{{name: a, type: t, token: {CANARY}}}]\n",
        f"spec:\n{RUNTIME}  heartbeat: {CANARY}\n",
        f"spec:\n  runtime: {{driver: process, command: [run, --key, {CANARY}]}}\n",
        f"spec:\n  runtime: {{driver: process, command: {CANARY}}}\n",
        f"spec:\n  runtime: {{driver: process, command: [run], env: [{{name: {CANARY}, value: x}}]}}\n",
        f"spec:\n  runtime: {{driver: process, command: [run], env: [{{name: A, value: [{CANARY}]}}]}}\n",
        f"spec:\n{RUNTIME}  instructions: {{a: {CANARY}}}\n",
        f"spec: {CANARY}\n",
        f"{CANARY}: [\n",
        f"{CANARY}: 1\n{CANARY}: 2\n",
    ],
)
def test_no_finding_shows_a_secret_wherever_it_was_planted(content: str) -> None:
    assert "canary" not in repr(findings_of(HEAD + content))


def test_a_pool_with_a_literal_key_is_refused() -> None:
    pool = other("CredentialPool", {"provider": "p", "keys": [{"name": "a", "secretRef": CANARY}]}, name="pool")
    found = refuse({"pools/p.yaml": pool})
    assert codes(found) == ["DriverNotInstalled", "LiteralSecret"]
    assert "canary" not in repr(found)


def test_repository_text_in_findings_is_inert() -> None:
    found = findings_of(f'{HEAD}spec:\n{RUNTIME}  "\\e]0;owned\\a\\u202e": 1\n  lifecycle: "a\\nb\\e[31m"\n')
    assert all(finding.summary.isprintable() and finding.detail.isprintable() for finding in found)
    (odd,) = refuse({"agents/acme/\x1b[2J.yaml": "a: 1\n"})
    assert odd.code == "BadPath"
    assert odd.address.isprintable()


def test_many_broken_documents_are_all_reported() -> None:
    few = Settings(limits=Limits(located=2))
    bad = f"{HEAD}spec:\n{RUNTIME}  x: 1\n"
    found = refuse({f"agents/acme/{n}.yaml": bad.replace("bot", f"bot-{n}") for n in range(5)}, settings=few)
    assert codes(found) == ["UnknownField"] * 5
    assert sorted(finding.address.split(":", 1)[1] for finding in found) == ["1:1", "1:1", "1:1", "6:3", "6:3"]


def test_the_json_schema_accepts_what_we_accept_and_refuses_what_we_refuse() -> None:
    schema = json_schema(load_plugins().documents)  # as `gitops-agent schema` prints it
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(document())
    for wrong in (document(lifecyle="Running"), {**document(), "status": {}}, document(lifecycle="running")):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)
    for file in sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml")):
        value = yaml_rs.loads(file.read_text(), parse_datetime=False)
        for found in value if isinstance(value, list) else [value]:
            validator.validate(found)


def test_quantities() -> None:
    assert (seconds("1h30m"), seconds("500ms"), seconds("0")) == (5400.0, 0.5, 0.0)
    assert memory_bytes("1.5Gi") == 3 * 2**29
    assert epoch("1970-01-01T01:00:00+01:00") == 0.0
    for wrong in ("10s\n", "10", "s", ""):
        with pytest.raises(ValueError, match="not a duration"):
            seconds(wrong)


def test_moments_and_counts_as_they_are_read() -> None:
    assert iso(1.9) == "1970-01-01T00:00:01Z"
    assert epoch(iso(-6e10)) == -6e10
    assert (iso(-1e30), iso(1e30)) == ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
    assert [counted(count, "agent") for count in (0, 1, 2)] == ["0 agents", "1 agent", "2 agents"]


def test_a_document_of_every_field_is_accepted() -> None:
    full = document(
        description="All of it",
        lifecycle="Stopped",
        deletionPolicy="Retain",
        adopt=True,
        reconcile={"mode": "Observe", "paused": True, "until": "2030-01-31T18:00:00Z", "reason": "audit"},
        model={"provider": "p", "name": "n", "fallbacks": ["p/m"], "parameters": {"temperature": 0.2}},
        instructions="Be kind.",
        tools=[{"name": "crm", "allow": ["read"], "approval": "OnWrite"}],
        mcpServers=[{"name": "crm", "url": "https://mcp.example.com"}],
        probes={"liveness": {"exec": {"command": ["./alive"]}, "period": "10s"}},
        heartbeat={"staleAfter": "60s", "onStale": "Report"},
        rollout={"healthTimeout": "30s"},
        limits={"turns": 5},
        authority={"runtime.replicas": "live"},
    )
    (found,) = load({PATH: text(full)}).agents.values()
    assert (found.lifecycle, found.deletion_policy, found.mode, found.adopt) == (
        "Stopped",
        "Retain",
        "Observe",
        True,
    )
    assert found.pause is not None
    assert (found.pause.reason, found.pause.until) == ("audit", epoch("2030-01-31T18:00:00Z"))
    assert (found.health_timeout, found.authority) == (30.0, (("runtime.replicas", "live"),))


@pytest.mark.parametrize(
    ("spec", "way_out"),
    [
        ("  rollout: {healthTimeout: 15}\n", "Write 15s."),
        ("  rollout: {healthTimeout: '15'}\n", "Write 15s."),
        ("  rollout: {healthTimeout: 25h}\n", "Expected a duration of at most 24h."),
        ("  probes: {liveness: {exec: {command: [x]}, timeout: 0s}}\n", "at least 1ms"),
        ("  probes: {liveness: {exec: {command: [x]}, timeout: 61s}}\n", "at most 1m"),
    ],
)
def test_a_way_out_leads_on(spec: str, way_out: str) -> None:
    assert way_out in single(f"{HEAD}spec:\n{RUNTIME}{spec}").detail


def test_a_number_that_lacks_its_unit_gets_one() -> None:
    found = findings_of(
        f"{HEAD}spec:\n  runtime: {{driver: process, command: [x], resources: {{limits: {{memory: 512}}}}}}\n"
    )
    assert "Write 512Mi." in found[0].detail
