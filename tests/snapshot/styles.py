"""Documents of our schema as Hypothesis draws them, written as YAML in the styles people use."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
PRINTABLE = st.characters(
    codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co"), exclude_characters="\ufeff\u2028\u2029"
)
WORDS = st.text(PRINTABLE, min_size=1, max_size=12) | st.sampled_from(
    [
        "off",
        "no",
        "yes",
        "null",
        "~",
        "010",
        "1_000",
        "1:30",
        "2020-01-01",
        "0x1F",
        "1e3",
        "*a",
        "&a",
        "!x",
        "<<",
        "- x",
    ]
)
KEYS = WORDS.filter(lambda word: word != "<<")  # refused, quoted or not
PROSE = st.text(PRINTABLE | st.just("\n"), max_size=60)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
FREE = st.dictionaries(
    KEYS,
    st.recursive(
        WORDS | NUMBERS | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
DURATIONS = st.sampled_from(["500ms", "10s", "1m"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


RUNTIMES = st.fixed_dictionaries(
    {"driver": st.just("process"), "command": st.lists(WORDS, min_size=1, max_size=3)},
    optional={
        "replicas": st.integers(1, 1000),
        "env": st.lists(
            st.fixed_dictionaries({"name": st.from_regex(r"[A-Z]{3,6}", fullmatch=True), "value": PROSE}),
            max_size=3,
            unique_by=lambda item: item["name"],
        ),
        "stop": some(signal=st.sampled_from(["SIGTERM", "SIGINT"]), grace=DURATIONS),
    },
)
SPECS = st.fixed_dictionaries(
    {"runtime": RUNTIMES},
    optional={
        "description": PROSE,
        "lifecycle": st.sampled_from(["Running", "Stopped", "Retired"]),
        "reconcile": some(mode=st.sampled_from(["Observe", "Enforce"]), paused=st.booleans(), reason=PROSE),
        "model": st.fixed_dictionaries({"provider": WORDS, "name": WORDS}, optional={"parameters": FREE}),
        "instructions": PROSE,
        "tools": st.lists(
            st.fixed_dictionaries({"name": WORDS, "allow": st.lists(WORDS, max_size=2)}),
            max_size=2,
            unique_by=lambda tool: tool["name"],
        ),
        "limits": FREE,
        "heartbeat": some(staleAfter=DURATIONS),
    },
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """The value of a valid Agent document."""
    metadata = {"name": draw(NAMES), "tenant": draw(NAMES)}
    head = {"apiVersion": "gitops-agent.dev/v1", "kind": "Agent"}
    return {**head, "metadata": metadata, "spec": draw(SPECS)}


@st.composite
def styled(draw: st.DrawFn, value: Any) -> str:
    """A value as YAML, each part in a style of its own."""
    return draw(_block(value, 0)).lstrip("\n") + "\n"


def _block(value: Any, indent: int) -> st.SearchStrategy[str]:
    pad = " " * indent
    flow = st.just(" " + json.dumps(value, ensure_ascii=False))
    if isinstance(value, dict) and value:
        step = st.sampled_from([1, 2, 4])
        parts = step.flatmap(
            lambda by: st.tuples(*(st.tuples(_key(key), _block(item, indent + by)) for key, item in value.items()))
        )
        block = parts.map(lambda rows: "\n" + "\n".join(f"{pad}{key}:{text}" for key, text in rows))
        return block if indent == 0 else st.one_of(block, block, flow)
    if isinstance(value, list) and value:
        items = st.tuples(*(_block(item, indent + 2) for item in value))
        return st.one_of(items.map(lambda rows: "\n" + "\n".join(f"{pad}-{text}" for text in rows)), flow)
    if isinstance(value, str):
        return _scalar(value, indent)
    return flow


def _key(key: str) -> st.SearchStrategy[str]:
    quoted = json.dumps(key, ensure_ascii=False)
    return (
        st.sampled_from([key, quoted])
        if re.fullmatch(r"[a-zA-Z][a-zA-Z]*", key) and not _is_special(key)
        else st.just(quoted)
    )


def _is_special(text: str) -> bool:
    return text.lower() in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


def _scalar(text: str, indent: int) -> st.SearchStrategy[str]:
    forms = [" " + json.dumps(text, ensure_ascii=False)]
    if "\n" not in text:
        forms.append(" '" + text.replace("'", "''") + "'")
    if re.fullmatch(r"[A-Za-z][A-Za-z/. -]*[A-Za-z]", text) and not _is_special(text):
        forms.append(" " + text)
    if re.fullmatch(r"([A-Za-z!&*%#<>-][^\n]*\n)+", text) and not re.search(r"[\x85]", text):
        forms.append(" |\n" + "\n".join(" " * (indent + 1) + line for line in text.splitlines()))
    return st.sampled_from(forms)
