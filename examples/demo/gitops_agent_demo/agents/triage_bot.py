"""Sorts tickets into queues by the ``queue: word, word`` lines of its instructions, also while they change."""

from __future__ import annotations

from gitops_agent_demo.agents.body import instructions, live, log

TICKETS = ("The site is down", "A typo on the start page", "My invoice is wrong", "Everything is slow today")


def queues(rules: str) -> dict[str, list[str]]:
    """The words that lead to each queue, in the order in which they are written."""
    found: dict[str, list[str]] = {}
    for line in rules.splitlines():
        name, colon, text = line.partition(":")
        if colon and name.strip():
            found[name.strip()] = [word.strip().lower() for word in text.split(",") if word.strip()]
    return found


def triage(ticket: str, rules: str) -> str:
    """The first queue with a word in the ticket; ``later`` when no queue wants it."""
    text = ticket.lower()
    return next((name for name, words in queues(rules).items() if any(word in text for word in words)), "later")


class Triage:
    """Remembers the rules it last saw, to say when they changed."""

    def __init__(self) -> None:
        self._rules: str | None = None

    def work(self, number: int) -> None:
        """Sort one ticket by the rules as they are now."""
        rules = instructions()
        if rules != self._rules:
            log(f"triage-bot: rules {'read' if self._rules is None else 'changed'}: {', '.join(queues(rules))}")
            self._rules = rules
        ticket = TICKETS[number % len(TICKETS)]
        log(f"triage-bot: {ticket!r} -> {triage(ticket, rules)}")


def main() -> None:
    """Sort tickets until asked to stop. Every turn reads the rules anew."""
    live(Triage().work)


if __name__ == "__main__":
    main()
