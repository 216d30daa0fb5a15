"""Validation errors in the words of the people who wrote the document.

What was found is shown only where the schema expects a word, a number or a name; never in slots of the
environment, of secrets, or of free text.
"""

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from gitops_agent.model import document as schema
from gitops_agent.model import quantity
from gitops_agent.model.agent import Origin
from gitops_agent.snapshot.codes import Code, shown
from gitops_agent.snapshot.compiled_file import Issue


class Problem(NamedTuple):
    """Something wrong at a path of a document. ``at_key``: the key is to blame, not its value."""

    code: Code
    loc: tuple[str | int, ...]
    summary: str
    detail: str = ""
    at_key: bool = False

    def at(self, origin: Origin) -> Issue:
        """The same as an issue of the document that stands there."""
        return Issue(self.code, origin, self.loc, self.summary, self.detail, self.at_key)


_SECRET_SLOTS = frozenset({"secretRef", "credentialRef", "valueFrom", "credentialPoolRef"})
_SECRET_MODELS = ("SecretRef", "PoolKey", "ValueFrom", "Channel")
_NEVER_SHOWN = _SECRET_SLOTS | {
    *("env", "keys", "command", "parameters", "instructions", "hooks", "checks", "patches", "limits", "[key]"),
}
_REFERENCE = "Secrets are referenced, never written: {provider: env, name: NAME_OF_VARIABLE}."

_FORMATS = {
    quantity.DURATION_PATTERN: "a duration such as 500ms, 10s, 2m or 1h30m",
    quantity.MEMORY_PATTERN: "an amount of memory such as 256Mi or 1Gi",
    quantity.CPU_PATTERN: "an amount of CPU such as 250m or 1.5",
    quantity.PERCENT_PATTERN: "a percentage such as 10%",
    quantity.MOMENT_PATTERN: "a moment such as 2030-01-31T18:00:00Z",
    schema.NAME_PATTERN: "a name of lower-case letters, digits and dashes (at most 63)",
    schema.REF_PATTERN: "an agent as name or tenant/name",
    schema.ENV_PATTERN: "the name of an environment variable",
    schema.LABEL_PATTERN: "text without control characters",
    schema.TEXT_PATTERN: "text without control characters",
    schema.WORD_PATTERN: "a word or a line without control characters",
    schema.ARGUMENT_PATTERN: "text without the character NUL",
    schema.URL_PATTERN: "an http or https address without user or password",
    schema.HOST_PATTERN: "a host name in lower case",
    schema.URL_PATH_PATTERN: "a path that begins with /",
}

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
}


def explain(invalid: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Every error of one document, as problems."""
    errors: list[Mapping[str, Any]] = [dict(error) for error in invalid.errors(include_url=False)]
    places = [tuple(error["loc"]) for error in errors]
    return [
        _problem(error, model)
        for error in errors
        # A list that lost its only, broken item is reported as that item.
        if not (error["type"] == "too_short" and any(_inside(loc, error["loc"]) for loc in places))
    ]


def nearest(name: str, candidates: Iterable[str]) -> str:
    """``; did you mean …?`` when one of the candidates is close, else nothing."""
    # Looking for near names is slow: a fleet of thousands gets hints from its first few hundred.
    by_form = {_form(candidate): candidate for candidate in islice(candidates, 300)}
    close = difflib.get_close_matches(_form(name[:64]), by_form, n=1, cutoff=0.6)
    return f"; did you mean {by_form[close[0]]}?" if close else ""


def _form(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _inside(loc: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
    return len(loc) > len(outer) and loc[: len(outer)] == outer


def _problem(error: Mapping[str, Any], model: type[BaseModel]) -> Problem:
    kind, loc = error["type"], tuple(error["loc"])
    if kind == "extra_forbidden":
        return _unknown_field(loc, model)
    if kind == "missing":
        return _missing(loc, model)
    if loc and loc[-1] in _SECRET_SLOTS and isinstance(error["input"], str):
        return Problem(Code.LITERAL_SECRET, loc, f"{_dotted(loc)}: text where a reference is due", _REFERENCE)
    if kind == "literal_error":
        return _wrong_word(error, loc)
    if kind in _TYPES:
        return _wrong_type(error, loc)
    return _wrong_value(error, loc)


def _unknown_field(loc: tuple[str | int, ...], model: type[BaseModel]) -> Problem:
    name, parent = str(loc[-1]), _model_at(model, loc[:-1])
    if name == "status":
        detail = "Status is what gitops-agent reports; remove it from the document."
        return Problem(Code.STATUS_AUTHORED, loc, f"{_dotted(loc)}: status is never authored", detail, at_key=True)
    fields = _field_names(parent)
    where = f" in {_dotted(loc[:-1])}" if len(loc) > 1 else ""
    summary = f"unknown field {shown(name)}{where}{nearest(name, fields)}"
    detail = f"Expected one of {', '.join(fields)}."
    if parent is not None and parent.__name__ in _SECRET_MODELS:
        detail = f"{detail} {_REFERENCE}"
    return Problem(Code.UNKNOWN_FIELD, loc, summary, detail, at_key=True)


def _missing(loc: tuple[str | int, ...], model: type[BaseModel]) -> Problem:
    parent = _model_at(model, loc[:-1])
    where = f"{_dotted(loc[:-1])} needs" if len(loc) > 1 else "the document needs"
    required = [name for name in _field_names(parent) if _is_required(parent, name)]
    detail = f"Required here: {', '.join(required)}."
    return Problem(Code.MISSING_FIELD, loc[:-1], f"{where} {loc[-1]}", detail, at_key=True)


def _wrong_word(error: Mapping[str, Any], loc: tuple[str | int, ...]) -> Problem:
    expected, found = error["ctx"]["expected"].replace("'", ""), error["input"]
    detail = f"Expected {expected}."
    if isinstance(found, bool):
        summary = f"{_dotted(loc)}: found {shown(found)}, a boolean where a word is due"
        return Problem(Code.WRONG_TYPE, loc, summary, detail)
    words = expected.replace(" or ", ", ").split(", ")
    hint = nearest(found, words) if isinstance(found, str) else ""
    return Problem(Code.UNKNOWN_WORD, loc, f"{_dotted(loc)}: found {_found(found, loc)}{hint}", detail)


def _wrong_type(error: Mapping[str, Any], loc: tuple[str | int, ...]) -> Problem:
    found, expected = error["input"], _TYPES[error["type"]]
    detail = f"Expected {expected}."
    if expected == "text" and isinstance(found, (bool, int, float)):
        detail += " Put the value in quotes."
    elif expected == "a list" and isinstance(found, str):
        detail += " Write [item, item], or one item per line after a dash."
    return Problem(Code.WRONG_TYPE, loc, f"{_dotted(loc)}: found {_found(found, loc)}", detail)


def _wrong_value(error: Mapping[str, Any], loc: tuple[str | int, ...]) -> Problem:
    kind, context, found = error["type"], error.get("ctx", {}), error["input"]
    key = loc[-1] == "[key]" if loc else False
    at = tuple(loc[:-1]) if key else loc
    if kind == "string_pattern_mismatch":
        expected = _FORMATS.get(context["pattern"], f"text that matches {context['pattern']}")
        return Problem(
            Code.BAD_FORMAT, at, f"{_dotted(at)}: found {_found(found, loc)}", f"Expected {expected}.", key
        )
    if kind in _RANGES:
        name, phrase = _RANGES[kind]
        detail = f"Expected {phrase.format(context[name])}."
        return Problem(Code.OUT_OF_RANGE, at, f"{_dotted(at)}: found {_found(found, loc)}", detail, key)
    reason = str(context["error"]) if kind == "value_error" else error["msg"]
    return Problem(Code.INVALID_VALUE, at, f"{_dotted(at)}: {shown(reason, 240)}", "", key)


def _found(value: object, loc: tuple[str | int, ...]) -> str:
    """What may be shown of a value: all of it, or only its type."""
    if isinstance(value, (list, dict)) or value is None:
        return "nothing (null)" if value is None else shown(value)
    kind = _kind(value)
    if isinstance(value, (str, int, float)) and not _NEVER_SHOWN.isdisjoint(map(str, loc)):
        return f"{kind} (not shown)"
    return f"the {kind} {shown(value)}" if value != "" else "empty text"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def _dotted(loc: Iterable[str | int]) -> str:
    text = ""
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{shown(step)}"
    return text.removeprefix(".") or "document"


def _field_names(model: type[BaseModel] | None) -> list[str]:
    return [] if model is None else [field.alias or name for name, field in model.model_fields.items()]


def _is_required(model: type[BaseModel] | None, alias: str) -> bool:
    fields = model.model_fields.values() if model is not None else ()
    return any(field.alias == alias and field.is_required() for field in fields)


def _model_at(model: type[BaseModel] | None, loc: tuple[str | int, ...]) -> type[BaseModel] | None:
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
