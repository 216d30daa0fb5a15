"""Who commits: agents are changed, added, deleted and reverted, one commit is invalid, one has an image that
cannot be pulled. It knows what each commit asks for."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from tests.kubernetes.chaos.trail import Key, Wanted
from tests.kubernetes.fleet import KubeFleet
from tests.support.fleet import Json

POLICY: dict[str, Any] = {
    "rollout": {"bake": "300ms", "recovery": "2s"},
    "backoff": {"first": "200ms", "longest": "2s"},
    "oscillation": {"repairs": 100_000},
    "massDrift": {"min": 1000},
    "actionsPerMinute": 100_000,
}
NO_IMAGE = "registry.example/no-such-image"
TOKEN = {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "CHAOS_TOKEN"}}}
KINDS = {"changed": 10, "added": 3, "deleted": 3, "reverted": 3, "invalid": 0, "failing": 0}
"""How often each is among the commits, beside the one of each that always is."""
SETTLES_SECONDS = 40.0
"""After so long a commit has been carried out, whoever leads: until then its deletions count as well."""

MOST_DELETED = 2
"""Agents of one tenant that are deleted in that time: the guard asks about three, and a third of a tenant."""


class Author:
    """Pushes commits, and remembers when it did and what they ask for."""

    def __init__(self, fleet: KubeFleet, tenants: Sequence[str], agents: int, random: Random) -> None:
        self._fleet, self._tenants, self._random = fleet, tenants, random
        self._agents = agents
        self._made = 0
        self._number = 0
        self._deleted: deque[tuple[float, str]] = deque()
        self.history: list[Wanted] = []
        self.kinds: Counter[str] = Counter()

    def first(self) -> str:
        """The fleet as it begins."""
        files = dict(self._new() for _ in range(self._agents))
        return self._commit("first", {"policy.yaml": self._fleet.policy(**POLICY), **files})

    def plan(self, commits: int) -> list[str]:
        """What each of so many commits is to be: one of each kind at least, in any order."""
        more = self._random.choices(list(KINDS), list(KINDS.values()), k=max(0, commits - len(KINDS)))
        found = [*KINDS, *more]
        self._random.shuffle(found)
        return found

    def push(self, kind: str) -> str:
        """One commit of a kind."""
        if kind == "reverted":
            return self._revert()
        if kind == "invalid":
            return self._commit(kind, {"invalid.yaml": "apiVersion: gitops-agent.dev/v1\nkind: Agent\n"})
        if kind == "added":
            return self._commit(kind, dict(self._new() for _ in range(self._random.randint(1, 2))))
        if kind == "deleted" and (chosen := self._may_go()):
            return self._commit(kind, dict.fromkeys(chosen))
        return self._commit(kind, dict(self._changed(each, fails=kind == "failing") for each in self._some()))

    def last(self) -> str:
        """A commit that can converge: whatever fails is mended, and one agent is changed."""
        broken = [name for name, each in self.documents().items() if NO_IMAGE in each["spec"]["runtime"]["image"]]
        return self._commit("last", dict(self._changed(name) for name in {*broken, self._some()[0]}))

    def documents(self) -> dict[str, Json]:
        """What the work tree asks for, by file."""
        found = ((path.name, path.read_text()) for path in sorted(self._fleet.work.glob("*.yaml")))
        return {
            name: json.loads(text) for name, text in found if name != "invalid.yaml" and '"kind": "Agent"' in text
        }

    # -- how

    def _commit(self, kind: str, files: dict[str, str | None]) -> str:
        self._number += 1
        if (self._fleet.work / "invalid.yaml").exists() and "invalid.yaml" not in files:
            files = {**files, "invalid.yaml": None}
        self._fleet.commit(files, f"{self._number}: {kind}", push=False)
        return self._push(kind)

    def _revert(self) -> str:
        """Undo the last commit, unless that takes away more than may go, or all there is."""
        if len(self.history) == 1:
            return self.push("changed")
        gone = [name for name in self._added_last() if name.startswith(tuple(self._tenants))]
        if any(self._left(_tenant(name)) < len(gone) for name in gone):
            return self.push("changed")
        for name in gone:
            self._deleted.append((time.monotonic(), _tenant(name)))
        self._fleet.git("revert", "--no-edit", "HEAD")
        return self._push("reverted")

    def _added_last(self) -> list[str]:
        return self._fleet.git("diff", "--name-only", "--diff-filter=A", "HEAD~1", "HEAD").split()

    def _push(self, kind: str) -> str:
        self.history.append(Wanted(time.time(), objects_of(self.documents().values())))
        self._fleet.push()
        self.kinds[kind] += 1
        return self._fleet.head()

    def _some(self) -> list[str]:
        names = sorted(self.documents())
        return self._random.sample(names, self._random.randint(1, 4))

    def _may_go(self) -> list[str]:
        names = sorted(self.documents())
        self._random.shuffle(names)
        chosen: list[str] = []
        for name in names[: self._random.randint(1, 3)]:
            if self._left(_tenant(name)) > 0:
                chosen.append(name)
                self._deleted.append((time.monotonic(), _tenant(name)))
        return chosen

    def _left(self, tenant: str) -> int:
        """How many agents of a tenant may go now."""
        while self._deleted and self._deleted[0][0] < time.monotonic() - SETTLES_SECONDS:
            self._deleted.popleft()
        return MOST_DELETED - sum(each == tenant for _, each in self._deleted)

    def _new(self) -> tuple[str, str]:
        """Another agent; of six, one is a StatefulSet, two have a secret, one has a port."""
        number, self._made = self._made, self._made + 1
        name, tenant = f"bot-{number:03}", self._tenants[number % len(self._tenants)]
        kubernetes: dict[str, Any] = {}
        if number % 6 == 1:
            kubernetes["workload"] = "StatefulSet"
        if number % 6 == 2:
            kubernetes["ports"] = [{"name": "http", "port": 8080}]
        runtime: dict[str, Any] = {"image": self._image(), "replicas": 1 + number % 4 // 3}
        if number % 3 == 0:
            runtime["env"] = [TOKEN]
        return f"{tenant}.{name}.yaml", self._fleet.agent(
            name,
            runtime=runtime,
            kubernetes=kubernetes,
            metadata={"tenant": tenant},
            instructions=f"You are {name}.",
            rollout={"healthTimeout": "8s"},
        )

    def _changed(self, file: str, *, fails: bool = False) -> tuple[str, str]:
        document = json.loads((self._fleet.work / file).read_text())
        spec = document["spec"]
        was_failing = NO_IMAGE in spec["runtime"]["image"]
        what = self._random.choice(("image", "replicas", "instructions"))
        if fails or what == "image" or was_failing:
            spec["runtime"]["image"] = f"{NO_IMAGE}:{self._number}" if fails else self._image()
        if what == "replicas" and spec["runtime"]["replicas"] < 3:
            spec["runtime"]["replicas"] += 1  # fewer would be for the guard that counts losses
        else:
            spec["instructions"] = f"You are {document['metadata']['name']}, as of {self._number}."
        return file, json.dumps(document, indent=2) + "\n"

    def _image(self) -> str:
        return f"registry.example/bot:{self._number}"


def _tenant(file: str) -> str:
    return file.partition(".")[0]


def objects_of(documents: Iterable[Json]) -> frozenset[Key]:
    """The objects that documents stand for, by the words of docs/kubernetes.md and not by our code."""
    found: set[Key] = set()
    for each in documents:
        runtime, (tenant, name) = each["spec"]["runtime"], (each["metadata"]["tenant"], each["metadata"]["name"])
        asked = runtime.get("kubernetes", {})
        stateful = asked.get("workload") == "StatefulSet"
        kinds = ["statefulsets" if stateful else "deployments", "configmaps"]
        kinds += ["secrets"] * any("valueFrom" in variable for variable in runtime.get("env", ()))
        kinds += ["services"] * (stateful or bool(asked.get("ports")))
        found.update(Key(kind, tenant, name) for kind in kinds)
    return frozenset(found)
