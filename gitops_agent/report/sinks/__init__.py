"""Sinks: where reports go. Notes on commits, metrics, drift reports, Sentry.

A sink subclasses ``ports.Sink`` and is served by ``report.outbox``, which owns queue, rate, retries, leadership
and the durable mark of what was delivered. Every text that leaves is masked where it is rendered.
"""
