"""From the JSON of a document to its model, or to findings: an address, what was found, what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from gitops_agent.model.document import API_VERSION, DOCUMENTS, AgentDocument, Strict
from gitops_agent.model.finding import Finding
from gitops_agent.snapshot.codes import Code, FilePosition, error, shown
from gitops_agent.snapshot.foreign import misspelt
from gitops_agent.snapshot.positions import Loc, Locator
from gitops_agent.snapshot.schema_errors import Problem, explain, nearest
from gitops_agent.snapshot.yaml_documents import Document
from gitops_agent.support.secret_patterns import looks_secret

Documents = Mapping[str, type[Strict]]
"""The model of each kind of document: ``DOCUMENTS``, or ``Plugins.documents`` with what the drivers add."""


def validate(
    path: str, document: Document, locator: Locator, documents: Documents = DOCUMENTS
) -> tuple[Strict | None, list[Finding]]:
    """The model of a document, or every finding about it."""
    if document.kind not in documents or document.version != API_VERSION:
        return None, [_unknown(path, document, locator)]
    model, problems = check(document.raw, document.kind, documents)
    if not problems:
        return model, []
    positions = locator.positions(document.text, document.line)
    findings = []
    for problem in problems:
        spot = positions.key(problem.loc) if problem.at_key else positions.value(problem.loc)
        findings.append(error(problem.code, FilePosition(path, *spot), problem.summary, problem.detail))
    return None, findings


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


def _unknown(path: str, document: Document, locator: Locator) -> Finding:
    positions = locator.positions(document.text, document.line)
    if document.version != API_VERSION:
        place = FilePosition(path, *positions.value(["apiVersion"]))
        summary = f"unknown apiVersion {shown(document.version)}; expected {API_VERSION}"
        detail = f"This version of gitops-agent reads {API_VERSION}: correct the line, or update gitops-agent."
        return error(Code.UNKNOWN_API_VERSION, place, summary, detail)
    expected = f"Expected one of {', '.join(DOCUMENTS)}."
    if document.kind:
        place = FilePosition(path, *positions.value(["kind"]))
        summary = f"unknown kind {shown(document.kind)}{nearest(document.kind, DOCUMENTS)}"
        return error(Code.UNKNOWN_KIND, place, summary, expected)
    wrong = misspelt(orjson.loads(document.raw), "kind")
    summary = f"key {shown(wrong)}; did you mean kind?" if wrong else "kind is missing or not text"
    return error(Code.UNKNOWN_KIND, FilePosition(path, *positions.key([wrong or "kind"])), summary, expected)


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
