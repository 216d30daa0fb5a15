"""The agents of ``examples/desired-repo`` and of ``gitops-agent demo``: small, real, and nothing but Python.

What belongs here: one module per demo agent, started as ``python3 -m gitops_agent_demo.agents.<name>``, each
short enough to be read as a first example of an agent that lives well under gitops-agent. What does not: any
part of gitops-agent itself. They are ordinary managed processes that know us only by the environment they
get, so they import the standard library, each other and ``gitops_agent.heartbeat``, and nothing of ours
imports them. No language model is called: each follows its instructions by plain rules, so that a change of
instructions is visible in its answers and in its log.
"""
