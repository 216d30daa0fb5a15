"""Shortens messages to as many words as its instructions allow; replicas share the messages among them."""

from __future__ import annotations

import os

from gitops_agent_demo.agents.body import instructions, live, log
from gitops_agent_demo.agents.rules import first_number

MESSAGES = (
    "The new warehouse opens on Monday and the old one closes at the end of the month",
    "Payroll moves to the fourth Thursday because of the holiday",
    "Please move your meetings out of the large room until the projector has been repaired",
    "The cafeteria asks everybody to bring back the cups",
)


def shorten(message: str, limit: int) -> str:
    """The first words of a message, with a sign when something was left out."""
    parts = message.split()
    return " ".join(parts[:limit]) + (" …" if len(parts) > limit else "")


def main() -> None:
    """Shorten every message that falls to this replica, over and over."""
    replica = int(os.environ.get("MANAGED_AGENT_REPLICA", "0"))
    limit = first_number(instructions(), default=8)

    def work(number: int) -> None:
        message = MESSAGES[(2 * number + replica) % len(MESSAGES)]
        log(f"digest-bot[{replica}]: {shorten(message, limit)}")

    live(work, every=2.0)


if __name__ == "__main__":
    main()
