"""A desired repository in memory: commits are dictionaries, blobs are named as git names them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gitops_agent.drivers.api import CREDENTIAL
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.errors import InvalidDesiredState
from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import TreeEntry
from gitops_agent.settings import Settings
from gitops_agent.snapshot.cache import Cache
from gitops_agent.snapshot.loader import Loader
from tests.support.plugins import a_plugin

Content = str | bytes | tuple[str, str | bytes]
"""Text of a regular file, or mode and content."""


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class MemoryReader:
    """Implements BlobReader, and counts what was asked of it."""

    def __init__(self) -> None:
        self.trees: dict[str, dict[str, tuple[str, str]]] = {}
        self.contents: dict[str, bytes] = {}
        self.read: list[str] = []

    def commit(self, files: Mapping[str, Content]) -> Revision:
        tree: dict[str, tuple[str, str]] = {}
        for path, content in files.items():
            mode, body = content if isinstance(content, tuple) else ("100644", content)
            data = body.encode() if isinstance(body, str) else body
            self.contents[blob_id(data)] = data
            tree[path] = (mode, blob_id(data))
        name = hashlib.sha1(repr(sorted(tree.items())).encode()).hexdigest()
        sha = hashlib.sha1(f"{name}{len(self.trees)}".encode()).hexdigest()
        self.trees[sha] = tree
        return Revision(sha, name, (), author="A", authored_at=0.0, committed_at=0.0, message="m")

    def entries(self, sha: str) -> Sequence[TreeEntry]:
        return [
            TreeEntry(mode, "blob", blob, len(self.contents[blob]), path)
            for path, (mode, blob) in self.trees[sha].items()
        ]

    def changed(self, old_sha: str, new_sha: str) -> Sequence[TreeEntry]:
        old, new = self.trees[old_sha], self.trees[new_sha]
        differing = (path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path))
        found = ((path, *new.get(path, ("000000", ""))) for path in differing)
        return [TreeEntry(mode, "blob", blob, None, path) for path, mode, blob in found]

    def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for blob in ids:
            self.read.append(blob)
            yield blob, self.contents[blob]


def runtime(key: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """A stand-in for the process driver's compiler."""
    if document.spec.runtime.driver != "process":
        return ()
    spec = document.spec
    fields = Fields.of({"command": spec.runtime.command, "replicas": spec.runtime.replicas})
    brain = Fields.of({"instructions": spec.instructions})
    return (
        Resource(ResourceKey(key, "runtime", "process"), "process", fields, ("command",)),
        Resource(ResourceKey(key, "config", "bundle"), "config", brain),
    )


Compiler = Callable[[AgentKey, AgentDocument], tuple[Resource, ...]]
COMPILERS: tuple[tuple[str, Compiler], ...] = (("process", runtime),)


def plugins_of(compilers: Iterable[tuple[str, Compiler]]) -> Plugins:
    """Plugins that compile as some functions do and are never connected."""
    plugins = {name: a_plugin(name, None, compiler=compiler) for name, compiler in compilers}
    if "credential" in plugins:
        plugins["credential"] = replace(plugins["credential"], kinds=(CREDENTIAL,))
    return Plugins(plugins.values())


PLUGINS = plugins_of(COMPILERS)


class World:
    """One loader over one repository in memory."""

    def __init__(self, settings: Settings | None = None, cache: Cache | None = None, compilers: Any = COMPILERS):
        self.reader = MemoryReader()
        self.settings = settings or Settings(instance="prod")
        self.loader = Loader(self.reader, plugins_of(compilers), self.settings, cache)

    def load(self, files: Mapping[str, Content]) -> Snapshot:
        return self.loader.load(self.reader.commit(files))

    def refuse(self, files: Mapping[str, Content]) -> list[Finding]:
        """The findings of a commit that must be invalid."""
        return self.refuse_after(None, self.reader.commit(files))

    def refuse_after(self, in_force: Snapshot | None, revision: Revision) -> list[Finding]:
        """The findings of a commit that must be invalid on top of what is in force."""
        with pytest.raises(InvalidDesiredState) as refused:
            self.loader.load(revision, in_force)
        return list(refused.value.findings)


def load(files: Mapping[str, Content], **options: Any) -> Snapshot:
    return World(**options).load(files)


def refuse(files: Mapping[str, Content], **options: Any) -> list[Finding]:
    return World(**options).refuse(files)


def codes(findings: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in findings if finding.severity == "error"]


def document(name: str = "bot", *, tenant: str | None = None, labels: Any = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if tenant is not None:
        metadata["tenant"] = tenant
    if labels is not None:
        metadata["labels"] = labels
    spec.setdefault("runtime", {"driver": "process", "command": ["run"]})
    return {"apiVersion": "gitops-agent.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec}


def agent(name: str = "bot", **rest: Any) -> str:
    """The text of a valid Agent document (JSON is YAML)."""
    return text(document(name, **rest))


def other(kind: str, spec: Any, **metadata: Any) -> str:
    value = {"apiVersion": "gitops-agent.dev/v1", "kind": kind, "spec": spec}
    return text(value | ({"metadata": metadata} if metadata else {}))


def text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
