"""The command line as such: help, usage errors, one document on stdout, terminals, and the first five minutes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.report.values import schema
from tests.support.fleet import CALL, Fleet
from tests.support.launcher import launcher

VERBS = (
    "init", "validate", "plan", "once", "run", "status", "explain", "history", "rollback", "logs", "schema",
    "doctor", "demo",
)  # fmt: skip
HEAVY = ("sqlalchemy", "pydantic", "git", "psutil", "apscheduler", "watchfiles", "structlog", "orjson")


WORLD = {"PATH": "/usr/bin:/bin", "COLUMNS": "200"}


def plain(*words: str) -> str:
    code, out, err = launcher().call(words, Path("/"), WORLD, CALL)
    assert code == 0, err
    return out


def test_help_names_every_verb_and_the_exit_codes() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "gitops_agent", "--help"], capture_output=True, text=True, env=WORLD, check=True
    ).stdout
    assert all(re.search(rf"^\W*{verb}\b", text, re.MULTILINE) for verb in VERBS)
    assert "Exit codes" in text
    assert "\x1b" not in text
    assert plain("--version").startswith("gitops-agent ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    text = plain(verb, "--help")
    assert "Usage:" in text
    assert ("--state-dir" in text) is (verb not in ("init", "validate", "schema", "demo"))
    assert ("--repo" in text) is (verb in ("plan", "once", "run", "rollback", "doctor"))
    assert not re.search(r"<bool>|[{}]|\[\[", text)
    assert "\x1b" not in text


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from gitops_agent.cli.app import app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(HEAVY).isdisjoint(loaded)


def test_schema_is_a_json_schema_that_accepts_our_own_documents(fleet: Fleet) -> None:
    document = fleet.ask("schema")
    jsonschema.Draft202012Validator.check_schema(document)
    judge = jsonschema.Draft202012Validator(document)
    judge.validate(json.loads(fleet.agent("a", instructions="Hello.")))
    assert not judge.is_valid(json.loads(fleet.agent("a").replace("runtime", "runtimes")))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["status"], 2, "journal"),
        (["plan", "--repo", "ext::sh -c touch% pwned"], 2, "ext"),
        (["once", "--repo", "--upload-pack=touch pwned"], 2, "repo"),
        (["once", "--branch", "-x"], 2, "branch"),
        (["once", "--branch", "a..b"], 2, "a..b"),
        (["once", "--path", "../.."], 2, ".."),
        (["once", "--timeout", "soon"], 2, "--timeout: 'soon' is not a duration"),
        (["once", "--instance", "Not/OK"], 2, "--instance: 'Not/OK' is not a name of lower-case"),
        (["once", "--config", "no-such-file.yaml"], 2, "no-such-file.yaml"),
        (["frobnicate"], 2, "frobnicate"),
        (["validate", "no-such-folder"], 2, "no-such-folder"),
    ],
)
def test_errors_go_to_stderr_and_stdout_stays_empty(fleet: Fleet, words: list[str], code: int, said: str) -> None:
    answer = fleet.call(*words, "-o", "json")
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert not list(fleet.work.parent.rglob("pwned"))


def test_no_repository_is_wrong_usage_with_a_way_out(fleet: Fleet) -> None:
    fleet.repo = ""
    answer = fleet.call("once", "-o", "json")
    assert (answer.code, answer.out) == (2, "")
    assert "GITOPS_AGENT_REPO" in answer.err


def test_settings_come_from_a_file_the_environment_and_options(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("pollInterval: 7s\ngitTimeout: 8s\nbranch: from-file\n")
    answer = fleet.call("doctor", "--config", str(file), "-o", "json", GITOPS_AGENT_GIT_TIMEOUT="9s")
    settings = answer.json["settings"]
    assert (settings["pollInterval"], settings["gitTimeout"], settings["branch"]) == (7.0, 9.0, "main")
    assert answer.code == 1, "the repository is empty, and doctor says so"
    assert not next(check for check in answer.json["checks"] if check["name"] == "source")["ok"]
    file.write_text("polInterval: 7s\n")
    wrong = fleet.call("doctor", "--config", str(file))
    assert wrong.code == 2
    assert "polInterval" in wrong.err


def test_validate_finds_everything_at_once_offline(fleet: Fleet) -> None:
    (fleet.work / "a.yaml").write_text(fleet.agent("a"))
    assert fleet.ask("validate", ".") == {"valid": True, "comparedWith": None, "findings": []}
    (fleet.work / "b.yaml").write_text(fleet.agent("a"))
    (fleet.work / "c.yaml").write_text(fleet.agent("c", lifecylce="Running\x1b[31m", runtime={"replicas": 0}))
    answer = fleet.call("validate", "-o", "json")
    assert answer.code == 3
    jsonschema.Draft202012Validator(schema("validate")).validate(answer.json)
    addresses = [finding["address"] for finding in answer.json["findings"]]
    assert any(address.startswith(("a.yaml:", "b.yaml:")) for address in addresses), "two documents with one key"
    assert sum(address.startswith("c.yaml:") for address in addresses) >= 2
    assert all(re.fullmatch(r"[a-z.]+:\d+:\d+", address) for address in addresses)
    text = fleet.call("validate")
    assert text.code == 3
    assert "lifecycle" in text.out, "did you mean"
    assert text.out.endswith("\n")
    assert "\x1b" not in text.out


def test_init_then_once_works_as_the_readme_says(fleet: Fleet) -> None:
    started = fleet.work / "start"
    made = fleet.ask("init", str(started))
    assert "agents/demo/hello.yaml" in made["files"]
    again = fleet.call("init", str(started), "-o", "json")
    assert (again.code, again.out) == (2, ""), "never over what is there"
    fleet.git("init", "-q", "-b", "main", where=started)
    # Another run of these tests may have a demo/hello of its own.
    hello = started / "agents" / "demo" / "hello.yaml"
    text = hello.read_text().replace("tenant: demo", f"tenant: {fleet.tenant}")
    (started / "agents" / fleet.tenant).mkdir()
    (started / "agents" / fleet.tenant / "hello.yaml").write_text(text)
    hello.unlink()
    fleet.git("add", ".", where=started)
    fleet.git("commit", "-q", "-m", "My first agent", where=started)
    fleet.repo = str(started)
    shown = fleet.on_terminal("once", TERM="xterm", COLUMNS="120")
    assert "Converged" in shown
    assert "\x1b[" in shown, "progress is shown live on a terminal"
    assert "I was declared in Git." in fleet.call("logs", "hello").out
    told = fleet.git("log", f"--notes=gitops-agent/{fleet.instance}", where=started)
    assert f"{fleet.instance}: Converged, 1 agent" in told, "a repository by path gets its notes too"


def test_no_push_keeps_notes_at_home(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once("--no-push")
    ref = f"refs/notes/gitops-agent/{fleet.instance}"
    assert fleet.git("ls-remote", "origin", ref) == ""
    mirror = fleet.state / "mirror.git"
    assert "Converged" in fleet.git("notes", f"--ref={ref}", "show", fleet.head(), where=mirror)
    fleet.once()
    assert fleet.note(fleet.head()).startswith(f"{fleet.instance}: Converged"), "and pushed when allowed"


def test_notes_that_cannot_be_pushed_fail_nothing(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    lock = fleet.bare / "refs" / "notes" / "gitops-agent" / f"{fleet.instance}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    answer = fleet.call("once", "-o", "json")
    assert (answer.code, answer.json["phase"]) == (0, "Converged")
    assert "notes: not delivered" in answer.err
    lock.unlink()
    fleet.once()
    assert fleet.note(fleet.head()).startswith(f"{fleet.instance}: Converged"), "they were queued"
