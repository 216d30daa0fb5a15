"""``python -m gitops_agent``: the command line."""

from gitops_agent.cli import main

main()
