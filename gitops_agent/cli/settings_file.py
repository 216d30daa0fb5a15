"""Read the settings file: YAML, one mapping."""

from pathlib import Path
from typing import Any

from gitops_agent.errors import UsageError

_MAX_CHARACTERS = 65536
DOCUMENTED = "see docs/configuration.md for all settings"


def read_settings_file(path: Path) -> dict[str, Any]:
    """The mapping in the file; UsageError with the place when it cannot be read."""
    import yaml_rs

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        hint = "correct --config or GITOPS_AGENT_CONFIG, or leave it out: every setting has another way in"
        raise UsageError(
            f"cannot read the settings file {path}: {why}", hint=f"{hint} ({DOCUMENTED})"
        ) from problem
    if len(text) > _MAX_CHARACTERS:
        hint = f"it holds settings, not desired state: {DOCUMENTED}"
        raise UsageError(f"the settings file {path} has more than {_MAX_CHARACTERS} characters", hint=hint)
    try:
        value = yaml_rs.loads(text)
    except Exception as problem:  # the parser has several exception types; all mean "not YAML"
        raise UsageError(f"{path} is not valid YAML: {problem}", hint=DOCUMENTED) from problem
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{path} must hold one mapping of settings", hint=DOCUMENTED)
    return value
