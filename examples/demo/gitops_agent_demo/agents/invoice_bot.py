"""Reminds of invoices that are overdue by more days than its instructions allow."""

from __future__ import annotations

from gitops_agent_demo.agents.body import instructions, live, log
from gitops_agent_demo.agents.rules import first_number

LEDGER = {"INV-104": 3, "INV-107": 21, "INV-111": 45}
"""Invoices and the days by which each is overdue."""


def overdue(limit: int) -> list[str]:
    """The invoices to remind of, longest overdue first."""
    late = {name: days for name, days in LEDGER.items() if days > limit}
    return sorted(late, key=lambda name: -late[name])


def main() -> None:
    """Write reminders until asked to stop."""
    limit = first_number(instructions(), default=30)
    live(lambda _number: log(f"invoice-bot: remind of {', '.join(overdue(limit)) or 'nobody'}"), every=2.0)


if __name__ == "__main__":
    main()
