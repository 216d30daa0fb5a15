"""Fakes we ship and test: a frozen clock, an in-memory driver, a fault injector.

What belongs here: stand-ins for the ports that make a test deterministic and fast, useful to authors of drivers as
well as to our own tests. What does not: fixtures of our tests (``tests/``), anything a production path needs.

Called by tests and benchmarks; ``wiring`` wraps the journal in ``faults`` only when it is asked to.
"""
