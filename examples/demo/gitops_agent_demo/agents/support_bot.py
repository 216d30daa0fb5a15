"""FleetReader customers of Acme with the rule of its instructions that fits: ``GET /ask?q=…&name=ada``."""

from __future__ import annotations

import json
import os
import re
from urllib.parse import urlencode
from urllib.request import urlopen

from gitops_agent.heartbeat import Heartbeat
from gitops_agent_demo.agents.body import Question, instructions, live, log, serve

INBOX = ("I want a refund", "How long does delivery take?", "Is there a discount?")


def words(text: str) -> set[str]:
    """The words of a text that carry meaning: four letters or more."""
    return set(re.findall(r"[a-z]{4,}", text.lower()))


def answer(question: str, rules: str) -> str:
    """The line of the rules that shares most words with the question; the first line when none does."""
    lines = [line.strip("-# ").strip() for line in rules.splitlines() if line.strip("-# ")]
    if not lines:
        return "I have no instructions."
    return max(lines, key=lambda line: len(words(line) & words(question)))


def plan_of(name: str, heartbeat: Heartbeat) -> str:
    """Ask crm-bot what a customer has bought; an unreachable crm-bot is an unknown plan, not a crash."""
    address = f"{os.environ['CRM_URL']}/lookup?{urlencode({'name': name})}"
    try:
        # While the call lasts, a stale heartbeat is no reason to restart us.
        with heartbeat.tool_call("crm.lookup"), urlopen(address, timeout=1) as reply:
            return str(json.load(reply)["plan"])
    except (OSError, ValueError, KeyError):
        return "unknown"


def work(number: int) -> None:
    """Answer one letter of the inbox."""
    letter = INBOX[number % len(INBOX)]
    log(f"support-bot: {letter!r} -> {answer(letter, instructions())}")


def main() -> None:
    """Open the door, then work through the inbox until asked to stop."""
    heartbeat = Heartbeat()

    def ask(question: Question) -> object:
        said = answer(question.get("q", ""), instructions())
        name = question.get("name")
        return {"answer": said, "plan": plan_of(name, heartbeat)} if name else {"answer": said}

    serve({"/ask": ask})
    live(work, every=float(os.environ.get("PACE", "2")), heartbeat=heartbeat)


if __name__ == "__main__":
    main()
