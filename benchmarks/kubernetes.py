"""``python -m benchmarks.kubernetes``: speed on a real API server, beside what bare requests to it cost.

Each ratio is taken within one run, both sides in turns, on a control plane of our own (``tests/servers``) whose
nodes are simulated. While objects are applied for the first time everything but etcd and the API server is frozen,
on both sides alike: two cores are not enough for controllers too, and what they do with an object is not our work.
Requests are counted in the audit log of the server.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from benchmarks import Row
from benchmarks.fleet import git
from benchmarks.kube_bare import Bare, Json, image_of, moved, path_of
from benchmarks.kube_fleet import Convergence, KubeFleet, converge, resident_mib, settle, until_idle
from benchmarks.table import text_table, write_into
from benchmarks.timing import medians, moment, say, timed
from gitops_agent.model.passes import Request
from tests.servers.cluster import Cluster

ROOT = Path(__file__).parent.parent
README, PLOT = ROOT / "README.md", ROOT / "docs" / "kubernetes-cost.png"
SIZES = (100, 1000, 5000)
TURNS = 5
FIRST_TURNS = 3
BAKE_SECONDS = 11.0
"""What a commit changes has to stay Ready for 10 s; a later commit begins when that is over."""

US, THEM = "agent", "bench"
"""The users that our requests and the bare ones are made as."""

PEERS = (
    "Figures of others on the same kind of control plane, 1,000 Deployments and 1,000 ConfigMaps in one "
    "unit, not measured here: Flux takes 40 s to apply them, 20 to 24 s and 4,039 requests when nothing changed, "
    "16 to 21 s and 4,050 requests for a commit of one file; Argo CD 175 s to apply, 6 s when nothing changed, "
    "104 s and 4,045 requests for a commit of one file, 1,073 MiB at the peak; `kubectl apply --server-side` 29 s "
    "for the Deployments alone, and 28 s again when nothing changed."
)


@dataclass
class Point:
    """What a fleet of one size costs: seconds, requests, MiB. ``bare``: the same without us."""

    size: int
    first: float = 0.0
    quiet: float = 0.0
    quiet_requests: int = 0
    cold: float = 0.0
    listed: float = 0.0
    commit: float = 0.0
    commit_bare: float = 0.0
    commit_requests: list[str] = field(default_factory=list)
    back: float = 0.0
    back_bare: float = 0.0
    memory: float = 0.0


def run(sizes: Sequence[int] = SIZES) -> tuple[list[Row], list[Point]]:
    """Every row, and the points of the curve."""
    middle, largest = sizes[len(sizes) // 2], sizes[-1]
    with tempfile.TemporaryDirectory() as folder:
        rows = [_first(Path(folder, "first"), middle)]
        points = [_point(Path(folder, str(size)), size) for size in sizes]
    return [*rows, *_rows_middle(_of(points, middle)), *_rows_largest(_of(points, largest))], points


def _of(points: Sequence[Point], size: int) -> Point:
    return next(point for point in points if point.size == size)


def _rows_middle(point: Point) -> list[Row]:
    size = point.size
    return [
        Row("no-change pass: requests beyond the watches", point.quiet_requests, 0, "requests"),
        Row(
            "no-change pass, for each 1,000 agents",
            point.quiet / size * 1e6,
            None,
            "ms",
            f"{moment(point.quiet)} for {size}",
        ),
        Row(
            f"start with {size} agents unchanged to the end of the first pass / one list of the same objects",
            point.cold / point.listed,
            3.0,
            note=f"{moment(point.cold)} / {moment(point.listed)}",
        ),
    ]


def _rows_largest(point: Point) -> list[Row]:
    size = point.size
    requests = len(point.commit_requests)
    return [
        Row(
            f"one commit for one of {size}, push to patched object / bare fetch and patch",
            point.commit / point.commit_bare,
            3.0,
            note=f"{moment(point.commit)} / {moment(point.commit_bare)}",
        ),
        Row("its requests", requests, 5, "requests", ", ".join(point.commit_requests)),
        Row(
            f"one deleted Deployment of {size} is back / bare watch and create",
            point.back / point.back_bare,
            3.0,
            note=f"{moment(point.back)} / {moment(point.back_bare)}",
        ),
        Row(f"resident memory of run with {size} agents", point.memory, 400, "MiB"),
    ]


# -- first convergence


def _first(folder: Path, size: int) -> Row:
    say(f"== first convergence of {size}")
    with Cluster() as cluster, cluster.only_the_server():
        ours, theirs = _granted(cluster)
        bare, numbers = Bare(theirs), count()

        def us() -> Convergence:
            number = next(numbers)
            return _converged(KubeFleet.made(folder / f"ours{number}", ours, f"us{number}", size))

        # The first does not count: it imports what is imported when a cluster is first asked for.
        warm = us()
        assert warm.snapshot is not None
        manifests = KubeFleet(folder, ours, "us0", size).objects(warm.snapshot)

        def them() -> float:
            name = f"them{next(numbers)}"
            objects = [moved(each, "us0", name) for each in manifests]
            bare.namespaces(sorted({each["metadata"]["namespace"] for each in objects}))
            return timed(lambda: bare.apply_all(objects))

        one, other = medians(FIRST_TURNS, lambda: us().seconds, them)
    return Row(
        f"first convergence of {size} agents (Deployment and ConfigMap each), snapshot loaded to all applied / a "
        "loop of the same applies on 8 connections",
        one / other,
        1.3,
        note=f"{moment(one)} / {moment(other)}; actionsPerMinute raised, its default of 500 would set the pace",
    )


def _converged(fleet: KubeFleet) -> Convergence:
    with fleet.opened() as instance:
        return converge(instance, fleet.size)


def _granted(cluster: Cluster) -> tuple[Path, Path]:
    """The kubeconfigs of two users with all rights: ours, and that of the bare requests."""
    for user in (US, THEM):
        cluster.kubectl("create", "clusterrolebinding", user, "--clusterrole=cluster-admin", f"--user={user}")
    return cluster.kubeconfig_for(US), cluster.kubeconfig_for(THEM)


# -- what a fleet that is up costs


def _point(folder: Path, size: int) -> Point:
    point = Point(size)
    with Cluster() as cluster:
        ours, theirs = _granted(cluster)
        bare, fleet = Bare(theirs), KubeFleet.made(folder, ours, "fleet", size)
        say(f"== {size} agents: first convergence")
        with cluster.only_the_server():
            point.first = _converged(fleet).seconds
        say(f"== {size} agents: {moment(point.first)}; until all are Ready")
        with fleet.opened() as instance:
            settle(instance)
            say(f"== {size} agents: quiet passes")
            full = Request(None, fetch=True, actor="bench")
            instance.context.pipeline.run(full)
            mark = cluster.mark()
            (point.quiet,) = medians(TURNS, lambda: timed(lambda: instance.context.pipeline.run(full)))
            point.quiet_requests = len(_asked(cluster, mark))
        say(f"== {size} agents: {moment(point.quiet)}; starts")
        point.cold, point.listed = medians(TURNS, lambda: _cold(fleet), lambda: timed(lambda: _lists(bare, fleet)))
        say(f"== {size} agents: {moment(point.cold)} / {moment(point.listed)}; commits")
        with fleet.running() as daemon:
            until_idle(daemon.pid, 5.0)
            other = Other(bare, fleet)
            _turns_of_commits(point, cluster, fleet, bare, other, daemon.pid)
            _turns_of_deletions(point, fleet, bare, other, daemon.pid)
            until_idle(daemon.pid)
            point.memory = resident_mib(daemon.pid)
        say(
            f"== {size} agents: commit {moment(point.commit)} / {moment(point.commit_bare)}, "
            f"back {moment(point.back)} / {moment(point.back_bare)}, {point.memory:.0f} MiB"
        )
    return point


def _asked(cluster: Cluster, mark: int) -> list[str]:
    """Our requests since a mark, but for watches."""
    found = (each for each in cluster.requests(US, mark) if each.verb != "watch")
    return [
        f"{each.verb} {each.uri.partition('?')[0].rsplit('/', 2)[-2 if each.verb != 'create' else -1]}"
        for each in found
    ]


def _cold(fleet: KubeFleet) -> float:
    """A start of an instance whose modules are imported, to the end of its first full pass."""
    begin = perf_counter()
    with fleet.opened() as instance:
        result = instance.context.pipeline.run(Request(None, fetch=True, actor="bench"))
        taken = perf_counter() - begin
    if result.record is None or result.record.plan.actions:
        raise AssertionError(f"expected nothing to do: {result.record and result.record.plan}")
    return taken


def _lists(bare: Bare, fleet: KubeFleet) -> None:
    selector = f"gitops-agent.dev/instance%3D{fleet.name}"
    found = [bare.listed(path, selector) for path in ("/apis/apps/v1/deployments", "/api/v1/configmaps")]
    assert found == [fleet.size, fleet.size], found


class Other:
    """The same without us: a repository that is fetched by hand, and a Deployment like those of the fleet."""

    def __init__(self, bare: Bare, fleet: KubeFleet) -> None:
        self._bare = bare
        self.repo, self._clone = fleet.folder / "other.git", fleet.folder / "clone.git"
        git(fleet.folder, "clone", "--quiet", "--bare", str(fleet.repo), str(self.repo))
        git(fleet.folder, "clone", "--quiet", "--bare", str(self.repo), str(self._clone))
        bare.namespaces(["other"])
        live = bare.request("GET", deployment(fleet, 0))
        kept = {name: live["metadata"][name] for name in ("name",)}
        spec = {name: live["spec"][name] for name in ("replicas", "selector", "template")}
        self.manifest: Json = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**kept, "namespace": "other"},
            "spec": spec,
        }
        bare.apply(self.manifest)

    def fetch_and_patch(self, sha: str, image: str) -> float:
        """Seconds from the move of the branch until the answer to the patch."""
        self.manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image
        begin = perf_counter()
        git(self.repo, "update-ref", "refs/heads/main", sha)
        git(self._clone, "fetch", "--quiet", str(self.repo), "main:refs/heads/seen")
        self._bare.apply(self.manifest)
        return perf_counter() - begin

    def back(self) -> float:
        """Seconds from the request to delete until the watch shows another one, made when the first was gone."""
        path = path_of(self.manifest)
        with self._bare.watching(path.rpartition("/")[0], _named(self.manifest["metadata"]["name"])) as watch:
            begin = perf_counter()
            self._bare.request("DELETE", path, BACKGROUND)
            watch.first(lambda kind, _: kind == "DELETED")
            self._bare.apply(self.manifest)
            return watch.first(lambda kind, _: kind == "ADDED") - begin


BACKGROUND = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


def _named(name: str) -> str:
    return f"fieldSelector=metadata.name%3D{name}"


def deployment(fleet: KubeFleet, number: int) -> str:
    """Where the API serves the Deployment of an agent."""
    return f"/apis/apps/v1/namespaces/{fleet.namespace(number)}/deployments/{fleet.agent(number)}"


def _turns_of_commits(
    point: Point, cluster: Cluster, fleet: KubeFleet, bare: Bare, other: Other, pid: int
) -> None:
    ours, theirs = [], []
    for number in range(TURNS):
        image = f"registry.example/bot:{number + 2}"
        sha = fleet.stage(number, image)
        git(other.repo, "fetch", "--quiet", str(fleet.repo), "refs/staged/next:refs/staged/next", "--force")
        theirs.append(other.fetch_and_patch(sha, image))
        until_idle(pid)
        mark = cluster.mark()
        ours.append(_patched(fleet, bare, number, sha, image))
        sleep(BAKE_SECONDS)
        until_idle(pid)
        point.commit_requests = max(point.commit_requests, _asked(cluster, mark), key=len)
    point.commit, point.commit_bare = median(ours), median(theirs)


def _patched(fleet: KubeFleet, bare: Bare, number: int, sha: str, image: str) -> float:
    """Seconds from the move of the branch until a watch shows the patched Deployment."""
    path = deployment(fleet, number)
    with bare.watching(path.rpartition("/")[0], _named(fleet.agent(number))) as watch:
        begin = perf_counter()
        git(fleet.repo, "update-ref", "refs/heads/main", sha)
        return watch.first(lambda _, found: image_of(found) == image) - begin


def _turns_of_deletions(point: Point, fleet: KubeFleet, bare: Bare, other: Other, pid: int) -> None:
    ours, theirs = [], []
    for turn in range(TURNS):
        until_idle(pid)
        theirs.append(other.back())
        until_idle(pid)
        path = deployment(fleet, 50 + turn)
        with bare.watching(path.rpartition("/")[0], _named(fleet.agent(50 + turn))) as watch:
            begin = perf_counter()
            bare.request("DELETE", path, BACKGROUND)
            ours.append(watch.first(lambda kind, _: kind == "ADDED") - begin)
    point.back, point.back_bare = median(ours), median(theirs)


# -- telling


def curve_table(points: Sequence[Point]) -> str:
    """The cost curve in Markdown."""
    lines = [
        "| agents | first convergence | quiet pass | one-agent commit | its requests | memory |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in points:
        cells = (
            f"{each.size:,}",
            moment(each.first),
            moment(each.quiet),
            moment(each.commit),
            str(len(each.commit_requests)),
            f"{each.memory:.0f} MiB",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


CAPTION = (
    f"On a real API server, with Python {platform.python_version()} on {os.cpu_count()} cores that the control "
    "plane shares. A ratio compares the two things it names, A / B, measured in turns; times are medians."
)


def main() -> int:
    """Run, print the table and the curve; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubernetes", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="fleets to measure, smallest first")
    parser.add_argument("--write-readme", action="store_true", help="put table and curve into README.md and docs/")
    asked = parser.parse_args()
    rows, points = run(asked.sizes)
    print(text_table(rows), curve_table(points), sep="\n\n")
    if asked.write_readme:
        from benchmarks.kube_plot import draw  # matplotlib is slow to import

        draw(points, PLOT)
        picture = f"![What a fleet in a cluster costs, by its size](docs/{PLOT.name})"
        below = "\n\n".join((curve_table(points), picture, PEERS))
        write_into(README, rows, CAPTION, name="bench-kubernetes", below=below)
    over = [row.name for row in rows if not row.holds]
    print(f"{len(over)} over their limit: {'; '.join(over)}" if over else "every limit holds", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
