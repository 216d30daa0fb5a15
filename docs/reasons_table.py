"""Writes ``reasons.md`` from the code: ``python docs/reasons_table.py``."""

from __future__ import annotations

from pathlib import Path

from gitops_agent.drivers.plugins import load_plugins
from gitops_agent.plan.reasons import Hold, ReasonCode

PAGE = Path(__file__).with_name("reasons.md")


def page() -> str:
    """All of it: the codes of core, of the drivers that we ship, and of the guards."""
    shipped = [each for each in load_plugins() if each.connect.__module__.startswith("gitops_agent.")]
    own = sorted(((each.name, code), m) for each in shipped for code, m in each.reasons.items())
    core = [(code, code.meaning) for code in ReasonCode]
    lines = [
        "# Reason codes",
        "",
        "Every action carries one. Generated from `gitops_agent/plan/reasons.py` and the drivers' `reasons`; a",
        "test keeps the two in step.",
        "",
        "| code | class | meaning | decision |",
        "|---|---|---|---|",
        *(f"| `{code}` | {m.drift} | {m.text} | {m.decision} |" for code, m in core),
        "",
        "## Of the drivers",
        "",
        "| code | driver | class | meaning | repair |",
        "|---|---|---|---|---|",
        *(f"| `{code}` | {driver} | {m.drift} | {m.text} | {m.repair} |" for (driver, code), m in own),
        "",
        "The decision is that of high confidence. With medium confidence a repair of drift asks first, with low",
        "it only alerts. What a commit asks for is always repaired, unless a guard holds it. Lag is no drift, and",
        "no repair follows from it. An agent that is starting differs in nothing, so no action stands for it: its",
        "condition `Ready` says so.",
        "",
        "## Why an action is held",
        "",
        "Guards hold actions; the finding says which number tripped and how to release it.",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{hold}` | {hold.text} |" for hold in Hold),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
