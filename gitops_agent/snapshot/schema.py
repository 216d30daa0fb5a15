"""From the JSON of a document to its model, or to what is wrong with it: where, what is found, what expected."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from gitops_agent.model.agent import Origin
from gitops_agent.model.document import API_VERSION, DOCUMENTS, AgentDocument, Strict
from gitops_agent.snapshot.codes import NOWHERE, Code, Invalid, Issue, shown
from gitops_agent.snapshot.foreign import misspelt
from gitops_agent.snapshot.schema_errors import explain, nearest
from gitops_agent.snapshot.yaml_documents import Document
from gitops_agent.support.secret_patterns import looks_secret

Documents = Mapping[str, type[Strict]]
"""The model of each kind of document: ``DOCUMENTS``, or ``Plugins.documents`` with what the drivers add."""


def validate(document: Document, origin: Origin, documents: Documents) -> Strict:
    """The model of a document; Invalid with everything that is wrong with it otherwise."""
    if document.kind not in documents or document.version != API_VERSION:
        raise Invalid(_unknown(document)._replace(origin=origin))
    return check(document.raw, document.kind, documents, origin)


def check(raw: bytes, kind: str, documents: Documents, origin: Origin = NOWHERE) -> Strict:
    """The model of the JSON of a document; Invalid with everything that is wrong with it otherwise."""
    try:
        model: Strict = documents[kind].__pydantic_validator__.validate_json(raw)
        issues = _literal_secrets(model) if isinstance(model, AgentDocument) else []
    except ValidationError as invalid:
        issues = explain(invalid, documents[kind])
    if issues:
        raise Invalid(*(issue._replace(origin=origin) for issue in issues))
    return model


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


def _unknown(document: Document) -> Issue:
    if document.version != API_VERSION:
        summary = f"unknown apiVersion {shown(document.version)}; expected {API_VERSION}"
        detail = f"This version of gitops-agent reads {API_VERSION}: correct the line, or update gitops-agent."
        return Issue(Code.UNKNOWN_API_VERSION, ("apiVersion",), summary, detail)
    expected = f"Expected one of {', '.join(DOCUMENTS)}."
    if document.kind:
        summary = f"unknown kind {shown(document.kind)}{nearest(document.kind, DOCUMENTS)}"
        return Issue(Code.UNKNOWN_KIND, ("kind",), summary, expected)
    wrong = misspelt(orjson.loads(document.raw), "kind")
    summary = f"key {shown(wrong)}; did you mean kind?" if wrong else "kind is missing or not text"
    return Issue(Code.UNKNOWN_KIND, (wrong or "kind",), summary, expected, at_key=True)


def _literal_secrets(document: AgentDocument) -> list[Issue]:
    """An issue for each value that has the form of a credential."""
    runtime = document.spec.runtime
    command = [
        ("command", position) for position, argument in enumerate(runtime.command) if looks_secret(argument)
    ]
    env = [
        ("env", position, "value")
        for position, variable in enumerate(runtime.env)
        if variable.value is not None and looks_secret(variable.value)
    ]
    summary = "a secret is written into the document"
    detail = (
        "Revoke it, then name where it is kept: valueFrom: {secretRef: {provider: env, name: …}}. "
        "The value is not shown here."
    )
    return [Issue(Code.LITERAL_SECRET, ("spec", "runtime", *loc), summary, detail) for loc in (*env, *command)]
