"""Knows the customers of Acme and tells other agents about them: ``GET /lookup?name=ada``."""

from __future__ import annotations

from gitops_agent_demo.agents.body import Question, bundle, live, log, serve

CUSTOMERS = {
    "ada": {"plan": "gold", "since": 2021},
    "grace": {"plan": "silver", "since": 2023},
    "linus": {"plan": "free", "since": 2025},
}


def lookup(question: Question) -> object:
    """One customer by name, or the plan of a stranger."""
    return CUSTOMERS.get(question.get("name", "").lower(), {"plan": "unknown"})


def main() -> None:
    """Serve the directory until asked to stop."""
    model = bundle().get("model") or {}
    serve({"/lookup": lookup})
    log(f"crm-bot: {len(CUSTOMERS)} customers, thinking with {model.get('name', 'no model')}")
    live(lambda _number: None)


if __name__ == "__main__":
    main()
