"""From the JSON of a document to its model, or to what is wrong with it, in the words of those who wrote it.

What was found is shown only where the schema expects a word, a number or a name; never in slots of the
environment, of secrets, or of free text.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, get_args

import orjson
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema

from gitops_agent.model import quantity, scalars
from gitops_agent.model.agent import Origin
from gitops_agent.model.document import API_VERSION, DOCUMENTS
from gitops_agent.model.strict import Strict
from gitops_agent.snapshot.codes import NOWHERE, Code, Invalid, Issue, Loc, shown
from gitops_agent.snapshot.foreign import misspelt
from gitops_agent.snapshot.second_look import Remainder
from gitops_agent.snapshot.yaml_documents import Document
from gitops_agent.support.secrets import looks_secret, may_hold_secret

Documents = Mapping[str, type[Strict]]
"""The model of each kind of document: ``DOCUMENTS``, or ``Plugins.documents`` with what the drivers add."""

MOST_LOOKS = 6
"""How often a document is looked at again without what was wrong with it."""


class Checked(NamedTuple):
    """A document that is valid: as it was written, or what is left of it without its errors."""

    model: Strict
    raw: bytes
    remainder: Remainder


_SECRET_SLOTS = frozenset({"secretRef", "credentialRef", "valueFrom", "credentialPoolRef"})
_SECRET_MODELS = ("SecretRef", "PoolKey", "ValueFrom", "Channel")
_NEVER_SHOWN = _SECRET_SLOTS | {
    *(
        "env",
        "keys",
        "command",
        "parameters",
        "instructions",
        "hooks",
        "checks",
        "patches",
        "limits",
        "headers",
        "[key]",
    ),
}
REVOKE = (
    "Revoke it, then name where it is kept: valueFrom: {secretRef: {provider: env, name: …}}. "
    "The value is not shown here."
)
_REFERENCE = "Secrets are referenced, never written: {provider: env, name: NAME_OF_VARIABLE}."

_FORMATS = {
    quantity.DURATION_PATTERN: "a duration such as 500ms, 10s, 2m or 1h30m",
    quantity.MEMORY_PATTERN: "an amount of memory such as 256Mi or 1Gi",
    quantity.CPU_PATTERN: "an amount of CPU such as 250m or 1.5",
    quantity.PERCENT_PATTERN: "a percentage such as 10%",
    quantity.MOMENT_PATTERN: "a moment such as 2030-01-31T18:00:00Z",
    scalars.NAME_PATTERN: "a name of lower-case letters, digits and dashes (at most 63)",
    scalars.REF_PATTERN: "an agent as name or tenant/name",
    scalars.ENV_PATTERN: "the name of an environment variable",
    scalars.LABEL_PATTERN: "text without control characters",
    scalars.TEXT_PATTERN: "text without control characters",
    scalars.WORD_PATTERN: "a word or a line without control characters",
    scalars.ARGUMENT_PATTERN: "text without the character NUL",
    scalars.URL_PATTERN: "an http or https address without user or password",
    scalars.HOST_PATTERN: "a host name in lower case",
    scalars.URL_PATH_PATTERN: "a path that begins with /",
    scalars.HEADER_PATTERN: "the name of an HTTP header",
    scalars.HEADER_VALUE_PATTERN: "one line of ASCII text",
}

_UNITS = {quantity.DURATION_PATTERN: "s", quantity.MEMORY_PATTERN: "Mi", quantity.PERCENT_PATTERN: "%"}
"""What is usually meant by a number alone."""

_TYPES = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}

_RANGES = {
    "greater_than_equal": ("ge", "at least {}"),
    "less_than_equal": ("le", "at most {}"),
    "string_too_long": ("max_length", "at most {} characters"),
    "too_short": ("min_length", "at least {} item"),
    "too_long": ("max_length", "at most {} items"),
}


def validate(document: Document, origin: Origin, documents: Documents) -> Strict:
    """The model of a document; Invalid with everything that is wrong with it otherwise."""
    if document.kind not in documents or document.version != API_VERSION:
        raise Invalid(_unknown(document)._replace(origin=origin))
    return check(document.raw, document.kind, documents, origin)


def check(raw: bytes, kind: str, documents: Documents, origin: Origin = NOWHERE) -> Strict:
    """The model of the JSON of a document; Invalid with everything that is wrong with it otherwise."""
    issues: list[Issue] = []
    rest: Checked | None = None
    try:
        model: Strict = documents[kind].__pydantic_validator__.validate_json(raw)
        if not may_hold_secret(raw):
            return model
        rest = Checked(model, raw, Remainder(raw))
    except ValidationError as invalid:
        issues, rest = _second_looks(raw, documents[kind], invalid)
    known = {issue.loc for issue in issues if issue.code is Code.LITERAL_SECRET}
    issues += [issue for issue in _literal_secrets(orjson.loads(raw)) if issue.loc not in known]
    if not issues:
        return model
    raise Invalid(*(issue._replace(origin=origin) for issue in issues), rest=rest)


def _second_looks(
    raw: bytes, model: type[BaseModel], invalid: ValidationError
) -> tuple[list[Issue], "Checked | None"]:
    """Every error of one document, also those that others hide, and what is left to be looked at further."""
    remainder, issues = Remainder(raw), list[Issue]()
    for _ in range(MOST_LOOKS):
        found = [{**error, "loc": remainder.written(error["loc"])} for error in _reported(invalid)]
        issues += [_issue(error, model) for error in found if remainder.is_genuine(_at_fault(error))]
        if not all(remainder.set_aside(_at_fault(error), model) for error in found):
            return issues, None
        rest = remainder.render()
        try:
            return issues, Checked(model.__pydantic_validator__.validate_json(rest), rest, remainder)
        except ValidationError as again:
            invalid = again
    return issues, None


def _at_fault(error: Mapping[str, Any]) -> Loc:
    """What has to go: the key with its value, if it is the key."""
    loc: Loc = error["loc"]
    return loc[:-1] if loc[-1:] == ("[key]",) else loc


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


def nearest(name: str, candidates: Iterable[str]) -> str:
    """``; did you mean …?`` when one of the candidates is close, else nothing."""
    # Looking for near names is slow: a fleet of thousands gets hints from its first few hundred.
    by_form = {_form(candidate): candidate for candidate in islice(candidates, 300)}
    close = difflib.get_close_matches(_form(name[:64]), by_form, n=1, cutoff=0.6)
    return f"; did you mean {by_form[close[0]]}?" if close else ""


def _form(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


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


def _literal_secrets(value: Any, loc: Loc = ()) -> Iterator[Issue]:
    """An issue for each text and each key that has the form of a credential."""
    if isinstance(value, str) and looks_secret(value):
        yield Issue(Code.LITERAL_SECRET, loc, f"{_dotted(loc)}: a secret is written into the document", REVOKE)
    elif isinstance(value, dict):
        for key, item in value.items():
            if looks_secret(key):
                summary = f"{_dotted(loc)}: a secret is written into a key"
                yield Issue(Code.LITERAL_SECRET, (*loc, key), summary, REVOKE, at_key=True)
            yield from _literal_secrets(item, (*loc, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _literal_secrets(item, (*loc, at))


def _reported(invalid: ValidationError) -> list[Mapping[str, Any]]:
    """The errors of the validator that are worth a finding."""
    errors: list[Mapping[str, Any]] = [dict(error) for error in invalid.errors(include_url=False)]
    above = {tuple(error["loc"][:depth]) for error in errors for depth in range(len(error["loc"]))}
    # A list that lost its only, broken item is reported as that item.
    return [error for error in errors if error["type"] != "too_short" or tuple(error["loc"]) not in above]


def _issue(error: Mapping[str, Any], model: type[BaseModel]) -> Issue:
    kind, loc, found = error["type"], tuple(error["loc"]), error["input"]
    if kind == "extra_forbidden":
        return _unknown_field(loc, _model_at(model, loc[:-1]))
    if kind == "missing":
        return _missing(loc, _model_at(model, loc[:-1]))
    if loc and loc[-1] in _SECRET_SLOTS and isinstance(found, str):
        return Issue(Code.LITERAL_SECRET, loc, f"{_dotted(loc)}: text where a reference is due", _REFERENCE)
    is_key = loc[-1:] == ("[key]",)
    at = loc[:-1] if is_key else loc
    if (expectation := _expectation(kind, error.get("ctx", {}))) is None:
        reason = str(error["ctx"]["error"]) if kind == "value_error" else error["msg"]
        return Issue(Code.INVALID_VALUE, at, f"{_dotted(at)}: {shown(reason, 240)}", "", is_key)
    code, expected = expectation
    seen, detail = _found(found, loc), f"Expected {expected}."
    if code is Code.UNKNOWN_WORD and isinstance(found, bool):
        code, seen = Code.WRONG_TYPE, f"{shown(found)}, a boolean where a word is due"
    elif code is Code.UNKNOWN_WORD and isinstance(found, str):
        seen += nearest(found, expected.replace(" or ", ", ").split(", "))
    elif expected == "text" and isinstance(found, (bool, int, float)):
        detail = _as_text(found, _patterns(_field_at(model, loc)))
    elif code is Code.BAD_FORMAT and isinstance(found, str) and found.isdecimal():
        detail += _with_unit(found, {error["ctx"]["pattern"]})
    elif expected == "a list" and isinstance(found, str):
        detail += " Write [item, item], or one item per line after a dash."
    return Issue(code, at, f"{_dotted(at)}: found {seen}", detail, is_key)


def _as_text(found: bool | int | float, patterns: set[str]) -> str:
    """The way out for a number or a yes/no where text is due."""
    known = [_FORMATS[pattern] for pattern in _UNITS if pattern in patterns]
    if known and not isinstance(found, bool):
        return f"Expected {known[0]}.{_with_unit(str(found), patterns)}"
    return "Expected text. Put the value in quotes."


def _with_unit(number: str, patterns: set[str]) -> str:
    """``Write 15s.`` for a number that only lacks its unit."""
    units = (unit for pattern, unit in _UNITS.items() if pattern in patterns)
    return next((f" Write {number}{unit}." for unit in units if number.isdecimal() and len(number) <= 6), "")


def _expectation(kind: str, context: Mapping[str, Any]) -> tuple[Code, str] | None:
    """What an error of the validator means, and what was expected; None when it says so itself."""
    if kind == "literal_error":
        return Code.UNKNOWN_WORD, context["expected"].replace("'", "")
    if kind in _TYPES:
        return Code.WRONG_TYPE, _TYPES[kind]
    if kind == "string_pattern_mismatch":
        return Code.BAD_FORMAT, _FORMATS.get(context["pattern"], f"text that matches {context['pattern']}")
    if kind == "value_error" and isinstance(context["error"], scalars.OutOfBounds):
        return Code.OUT_OF_RANGE, str(context["error"])
    if kind in _RANGES:
        name, phrase = _RANGES[kind]
        return Code.OUT_OF_RANGE, phrase.format(context[name])
    return None


def _unknown_field(loc: Loc, parent: type[BaseModel] | None) -> Issue:
    name = str(loc[-1])
    if name == "status":
        detail = "Status is what gitops-agent reports; remove it from the document."
        return Issue(Code.STATUS_AUTHORED, loc, f"{_dotted(loc)}: status is never authored", detail, at_key=True)
    fields = [] if parent is None else [field.alias or name for name, field in parent.model_fields.items()]
    where = f" in {_dotted(loc[:-1])}" if len(loc) > 1 else ""
    detail = f"Expected one of {', '.join(fields)}."
    if parent is not None and parent.__name__ in _SECRET_MODELS:
        detail = f"{detail} {_REFERENCE}"
    summary = f"unknown field {shown(name)}{where}{nearest(name, fields)}"
    return Issue(Code.UNKNOWN_FIELD, loc, summary, detail, at_key=True)


def _missing(loc: Loc, parent: type[BaseModel] | None) -> Issue:
    where = f"{_dotted(loc[:-1])} needs" if len(loc) > 1 else "the document needs"
    fields = parent.model_fields.values() if parent is not None else ()
    required = ", ".join(str(field.alias) for field in fields if field.is_required())
    return Issue(Code.MISSING_FIELD, loc[:-1], f"{where} {loc[-1]}", f"Required here: {required}.", at_key=True)


def _found(value: object, loc: Loc) -> str:
    """What may be shown of a value: all of it, or only its type."""
    if isinstance(value, (list, dict)) or value is None:
        return "nothing (null)" if value is None else shown(value)
    kind = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    if isinstance(value, (str, int, float)) and not _NEVER_SHOWN.isdisjoint(map(str, loc)):
        return f"{kind} (not shown)"
    return f"the {kind} {shown(value)}" if value != "" else "empty text"


def _dotted(loc: Loc) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{shown(step)}" for step in loc)
    return text.removeprefix(".") or "document"


def _field_at(model: type[BaseModel], loc: Loc) -> FieldInfo | None:
    """The field of a model that a path leads to, or to an item of which."""
    names = [step for step in loc if isinstance(step, str)]
    parent = _model_at(model, tuple(names[:-1]))
    fields = parent.model_fields.values() if parent is not None else ()
    return next((field for field in fields if field.alias == names[-1]), None)


def _patterns(field: FieldInfo | None) -> set[str]:
    """What the text of a field must match."""
    found: list[Any] = [] if field is None else [field.annotation, *field.metadata]
    patterns: set[str] = set()
    while found:
        part = found.pop()
        found += get_args(part)
        if isinstance(pattern := getattr(part, "pattern", None), str):
            patterns.add(pattern)
    return patterns


def _model_at(model: type[BaseModel] | None, loc: Loc) -> type[BaseModel] | None:
    """The model that stands at a path of another model."""
    for step in loc:
        if model is None or isinstance(step, int):
            continue  # positions in lists and keys of mappings do not change the model
        field = next((field for field in model.model_fields.values() if field.alias == step), None)
        model = model if field is None else _model_in(field.annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
