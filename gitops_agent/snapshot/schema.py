"""From the JSON of a document to its model, or to what is wrong with it: where, what is found, what expected."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from gitops_agent.model.document import API_VERSION, DOCUMENTS, AgentDocument, Strict
from gitops_agent.snapshot.codes import Code, shown
from gitops_agent.snapshot.foreign import misspelt
from gitops_agent.snapshot.positions import Loc
from gitops_agent.snapshot.schema_errors import Problem, explain, nearest
from gitops_agent.snapshot.yaml_documents import Document
from gitops_agent.support.secrets import looks_secret

Documents = Mapping[str, type[Strict]]
"""The model of each kind of document: ``DOCUMENTS``, or ``Plugins.documents`` with what the drivers add."""


def validate(document: Document, documents: Documents = DOCUMENTS) -> tuple[Strict | None, list[Problem]]:
    """The model of a document, or everything that is wrong with it."""
    if document.kind not in documents or document.version != API_VERSION:
        return None, [_unknown(document)]
    return check(document.raw, document.kind, documents)


def check(raw: bytes, kind: str, documents: Documents = DOCUMENTS) -> tuple[Strict | None, list[Problem]]:
    """The model, or what is wrong with the JSON of a document, addressed by paths into it."""
    try:
        model: Strict = documents[kind].__pydantic_validator__.validate_json(raw)
    except ValidationError as invalid:
        return None, explain(invalid, documents[kind])
    problems = [_literal(loc) for loc in _literal_secrets(model)] if isinstance(model, AgentDocument) else []
    return (None if problems else model), problems


def json_schema(documents: Documents = DOCUMENTS) -> dict[str, Any]:
    """The JSON Schema of every kind, generated from the models."""
    refs, schema = models_json_schema([(model, "validation") for model in documents.values()], by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/schema.json",
        "title": f"Documents of {API_VERSION}",
        "oneOf": list(refs.values()),
        **schema,
    }


def _unknown(document: Document) -> Problem:
    if document.version != API_VERSION:
        summary = f"unknown apiVersion {shown(document.version)}; expected {API_VERSION}"
        detail = f"This version of gitops-agent reads {API_VERSION}: correct the line, or update gitops-agent."
        return Problem(Code.UNKNOWN_API_VERSION, ("apiVersion",), summary, detail)
    expected = f"Expected one of {', '.join(DOCUMENTS)}."
    if document.kind:
        summary = f"unknown kind {shown(document.kind)}{nearest(document.kind, DOCUMENTS)}"
        return Problem(Code.UNKNOWN_KIND, ("kind",), summary, expected)
    wrong = misspelt(orjson.loads(document.raw), "kind")
    summary = f"key {shown(wrong)}; did you mean kind?" if wrong else "kind is missing or not text"
    return Problem(Code.UNKNOWN_KIND, (wrong or "kind",), summary, expected, at_key=True)


def _literal_secrets(document: AgentDocument) -> list[Loc]:
    """Where a value stands that has the form of a credential."""
    runtime = document.spec.runtime
    found: list[Loc] = []
    for position, variable in enumerate(runtime.env):
        if variable.value is not None and looks_secret(variable.value):
            found.append(("spec", "runtime", "env", position, "value"))
    for position, argument in enumerate(runtime.command):
        if looks_secret(argument):
            found.append(("spec", "runtime", "command", position))
    return found


def _literal(loc: Loc) -> Problem:
    return Problem(
        Code.LITERAL_SECRET,
        tuple(loc),
        "a secret is written into the document",
        "Revoke it, then name where it is kept: valueFrom: {secretRef: {provider: env, name: …}}. "
        "The value is not shown here.",
    )
