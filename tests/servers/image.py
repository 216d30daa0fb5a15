"""The image of gitops-agent, really built and run: by podman as root, on a base made by debootstrap.

``python -m tests.servers.image`` builds it and prints its name and size. Podman keeps its store in the user's
cache folder, apart from the one of the machine: the base is made once per list of packages, and the layer with
our dependencies only when these change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.build import BuildFailed, Say, _lock, _say, cache

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "git", "openssh-client", "ca-certificates")
NEEDED = {"podman": "podman", "runc": "runc", "catatonit": "catatonit", "debootstrap": "debootstrap"}
"""Programs, and the Debian packages they are in."""

IMAGE = "localhost/gitops-agent:test"
LIMITS = ("nofile=4096:4096", "nproc=4096:4096")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What a base of that size carries and no program reads: an official slim image has none of it either.
DEAD_WEIGHT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man")


@dataclass(frozen=True)
class Podman:
    """Podman with a store and settings of its own; ``folder`` holds both."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables podman is called with."""
        files = {"CONTAINERS_STORAGE_CONF": "storage.conf", "CONTAINERS_CONF": "containers.conf"}
        settings = {name: str(self.folder / file) for name, file in files.items()}
        # There may be no systemd whose timers would run health checks: the tests run them themselves.
        return {**os.environ, **settings, "DISABLE_HC_SYSTEMD": "true"}

    def start(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Return the ended call, whatever its exit code."""
        call = ["podman", *arguments]
        return subprocess.run(
            call, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def __call__(self, *arguments: str, timeout: float = 600) -> str:
        """Return what a call prints; BuildFailed when it ends with an error."""
        done = self.start(*arguments, timeout=timeout)
        if done.returncode != 0:
            tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise BuildFailed(f"podman {' '.join(arguments[:2])} ended with {done.returncode}:\n  {tail}")
        return done.stdout

    def inspect(self, image: str) -> dict[str, Any]:
        """Return what podman knows about an image."""
        described: list[dict[str, Any]] = json.loads(self("image", "inspect", image))
        return described[0]


def podman(say: Say | None = None) -> Podman:
    """Return podman, ready to build and run; install it where that is possible, else BuildFailed."""
    require_programs(say or _say)
    folder = cache() / f"podman-{platform.machine()}"
    folder.mkdir(parents=True, exist_ok=True)
    tool = Podman(folder)
    for driver in ("overlay", "vfs"):  # no overlay on top of an overlay: there vfs, which copies each layer
        _write_settings(folder, driver)
        done = tool.start("info")
        if done.returncode == 0:
            return tool
    raise BuildFailed(f"podman does not start: {done.stderr.strip()}")


def require_programs(say: Say) -> None:
    """Install the programs that are missing; BuildFailed where this user may not, or apt does not have them."""
    missing = [package for program, package in NEEDED.items() if shutil.which(program, path=_path()) is None]
    if not missing and os.geteuid() == 0:
        return
    way_out = f"run it as root on Debian or Ubuntu, or install these first: {', '.join(NEEDED.values())}"
    if os.geteuid() != 0:
        raise BuildFailed(f"the image is built by podman and debootstrap as root, and this is no root: {way_out}")
    if shutil.which("apt-get") is None:
        raise BuildFailed(f"missing here, and there is no apt-get: {', '.join(missing)}; {way_out}")
    say(f"installing {', '.join(missing)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing]
    for call in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(call, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"apt-get cannot install {', '.join(missing)}: {done.stderr.strip()}\n{way_out}")


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/libexec/podman"


def _write_settings(folder: Path, driver: str) -> None:
    # What holds until the next boot lies below /run, and nothing is shared with the podman of this machine.
    volatile = f"/run/gitops-agent-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "{driver}"\nrunroot = "{volatile}/storage"\ngraphroot = "{folder / driver}"\n'
    )
    limits = json.dumps(LIMITS)
    init = shutil.which("catatonit", path=_path())
    # Limits as they are here: a root without CAP_SYS_RESOURCE may not raise them. runc, because crun refuses a mix
    # of both kinds of control groups.
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = {limits}\nnetns = "host"\ninit_path = "{init}"\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        f'lock_type = "file"\ntmp_dir = "{volatile}/libpod"\n'
    )


def base_image(tool: Podman, say: Say | None = None) -> str:
    """Return the name of the base image; make it by debootstrap if the store has none of this list of packages."""
    say = say or _say
    wanted = " ".join((SUITE, *PACKAGES, *DEAD_WEIGHT))
    name = f"localhost/debian-python:{SUITE}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    with _lock(tool.folder / "base.lock", say):
        if tool.start("image", "exists", name).returncode != 0:
            began = time.monotonic()
            say("making the base image by debootstrap: about two minutes, once")
            with tempfile.TemporaryDirectory(dir=tool.folder) as scratch:
                _debootstrap(Path(scratch) / "base")
                _import(tool, Path(scratch) / "base", name)
            say(f"base image made after {time.monotonic() - began:.0f} s")
    return name


def _debootstrap(folder: Path) -> None:
    include = f"--include={','.join(PACKAGES)}"
    call = ["debootstrap", "--variant=minbase", include, SUITE, str(folder)]
    environment = {**os.environ, "PATH": _path()}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"debootstrap ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    for part in DEAD_WEIGHT:
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)


def _import(tool: Podman, folder: Path, name: str) -> None:
    packing = subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE)
    try:
        call = ["podman", "import", "--quiet", "-", name]
        done = subprocess.run(
            call, stdin=packing.stdout, env=tool.environment, capture_output=True, text=True, check=False
        )
    finally:
        assert packing.stdout is not None
        packing.stdout.close()
        packed = packing.wait()
    if packed != 0 or done.returncode != 0:
        raise BuildFailed(f"the base image cannot be imported: {done.stderr.strip()}")


def build_image(tool: Podman, say: Say | None = None, name: str = IMAGE) -> str:
    """Return the name of the image, built from docker/Dockerfile and this checkout."""
    say = say or _say
    base = base_image(tool, say)
    began = time.monotonic()
    with _lock(tool.folder / "build.lock", say):
        limits = [word for limit in LIMITS for word in ("--ulimit", limit)]
        build = ["build", "--format", "docker", "--layers", "--network", "host", "--pull-never", *limits]
        files = ["-f", str(ROOT / "docker" / "Dockerfile"), "-t", name, str(ROOT)]
        tool(*build, *_pip_of_this_machine(tool.folder), "--build-arg", f"BASE={base}", *files, timeout=1200)
        # Layers without a name are what the next build is quick by, as long as they are young.
        tool("image", "prune", "--force", "--filter", "until=168h")
    say(f"image built after {time.monotonic() - began:.0f} s")
    return name


def _pip_of_this_machine(folder: Path) -> Iterator[str]:
    """The options that let pip inside reach what pip reaches here; mounted, so that none stays."""
    names = {"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url"}
    lines = [f"{option} = {os.environ[name]}" for name, option in names.items() if os.environ.get(name)]
    if CERTIFICATES.exists():
        lines.append(f"cert = {CERTIFICATES}")
        yield from ("-v", f"{CERTIFICATES}:{CERTIFICATES}:ro")
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    yield from ("-v", f"{folder / 'pip.conf'}:/etc/pip.conf:ro")


HARDENED = (
    "--pull=never", "--network=host", "--init", "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp",
    "--cap-drop=ALL", "--security-opt=no-new-privileges",
)  # fmt: skip
"""How the image is always run here, and how the manifests run it."""

SHELLS = ("/usr/bin/dash", "/usr/bin/bash")
"""Covered in every container: no shell is needed at run time."""


@dataclass(frozen=True)
class Container:
    """One container that runs; ``name`` is what podman calls it."""

    tool: Podman
    name: str

    def healthy(self) -> bool:
        """Whether the image's own health check passes now."""
        return self.tool.start("healthcheck", "run", self.name).returncode == 0

    def exec(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Return the ended command, run inside."""
        return self.tool.start("exec", self.name, *command)

    def logs(self) -> str:
        """Return what it wrote so far."""
        done = self.tool.start("logs", self.name)
        return done.stdout + done.stderr

    def signal(self, signal: str) -> None:
        """Send a signal to its first process."""
        self.tool("kill", "--signal", signal, self.name)


@contextlib.contextmanager
def container(
    tool: Podman,
    image: str,
    *command: str,
    environment: Mapping[str, str],
    mounts: Sequence[str] = (),
) -> Iterator[Container]:
    """Run the image while the block runs: not root, read-only, without capabilities and without any shell."""
    name = f"gitops-agent-test-{os.getpid()}-{time.monotonic_ns()}"
    given = [f"--env={key}={value}" for key, value in environment.items()]
    covered = [f"--volume=/dev/null:{shell}:ro" for shell in SHELLS]
    volumes = [f"--volume={mount}" for mount in mounts]
    tool("run", "--detach", f"--name={name}", *HARDENED, *covered, *volumes, *given, image, *command)
    try:
        yield Container(tool, name)
    finally:
        tool("rm", "--force", "--volumes", "--time=5", name)


def main() -> None:
    """Build the image; print its name and its size."""
    tool = podman()
    name = build_image(tool)
    megabytes = {image: tool.inspect(image)["Size"] / 1e6 for image in (base_image(tool), name)}
    print("\n".join(f"{image}: {size:.0f} MB" for image, size in megabytes.items()))


if __name__ == "__main__":
    try:
        main()
    except BuildFailed as failure:
        sys.exit(str(failure))
