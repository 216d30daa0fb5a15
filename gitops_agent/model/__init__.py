"""The values that travel between the stages. All frozen, none does I/O, none reads a clock.

What belongs here: nouns of the design (agent, resource, revision, snapshot, observation, base, finding, plan,
intent, outcome, condition). What does not: decisions (``plan/``), parsing (``snapshot/``), rendering
(``report/``). Every other package may import this one; this one imports nothing of ours.
"""
