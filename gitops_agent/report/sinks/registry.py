"""Metrics: their names, which are frozen, what they mean, and the registry that holds their values.

``METRICS`` is the whole list; ``docs/metrics.md`` shows it, and nothing else is served. A label only takes values
from a set that is known when we start, so that no fleet makes more series than another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gitops_agent.model.freezes import KINDS_OF_SCOPE
from gitops_agent.model.plan import Class, Confidence
from gitops_agent.model.status import ConditionType, Phase

DRIFT = tuple(str(cls) for cls in Class if cls.is_drift)
POLICIES = ("automatic", "approved")
SURENESS: Mapping[Confidence, float] = {Confidence.LOW: 0.0, Confidence.MEDIUM: 0.5, Confidence.HIGH: 1.0}
COMMITS = 20
"""How many converged commits the mean is taken of."""

_CONVERGING = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_PASSING = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``labels``: which values each may take, or where they come from."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Mapping[str, Sequence[str] | str] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


METRICS: tuple[Metric, ...] = (
    Metric(
        "drift_detected_total",
        "counter",
        "Deviations found, by class of drift. Counted once, when one begins, also while frozen.",
        {"type": DRIFT},
    ),
    Metric(
        "drift_repaired_total",
        "counter",
        "Repairs of drift that succeeded, by what let them happen: `automatic` (sure enough, and no guard in the "
        "way) or `approved` (people approved this very action).",
        {"policy": POLICIES},
    ),
    Metric(
        "repair_confidence_distribution",
        "histogram",
        "How sure we were of each deviation when it began: low is 0, medium 0.5, high 1.",
        buckets=tuple(SURENESS.values()),
    ),
    Metric(
        "orphan_resource_count", "gauge", "Objects that carry our mark and that neither Git nor our record knows."
    ),
    Metric("stuck_workflow_count", "gauge", "Workflows that need a person: `gitops-agent workflows` lists them."),
    Metric(
        "mean_time_to_converge",
        "gauge",
        f"Seconds from seeing a commit to its convergence, mean of the last {COMMITS} that converged, also of "
        "those before a restart. 0 before the first.",
    ),
    Metric(
        "repeated_drift_rate",
        "gauge",
        "Share of the deviations of the last hour that hit a resource which had deviated in that hour before.",
    ),
    Metric(
        "manual_patch_without_event_count",
        "gauge",
        "Live changes found by observing that no event had announced, since we started: they went past "
        "everything we watch, or we did not run.",
    ),
    Metric(
        "gitops_agent_time_to_converge_seconds", "histogram", "The same times as a histogram.", buckets=_CONVERGING
    ),
    Metric("gitops_agent_info", "gauge", "Always 1.", {"name": "the instance", "version": "ours"}),
    Metric(
        "gitops_agent_last_fetch_age_seconds",
        "gauge",
        "Since the source last answered, or since we started. Grows by itself when polling has died.",
    ),
    Metric(
        "gitops_agent_last_pass_age_seconds",
        "gauge",
        "Since a pass was last completed, or since we started. Grows by itself when a pass hangs.",
    ),
    Metric("gitops_agent_queue_depth", "gauge", "Agents and requests that wait for the next pass."),
    Metric("gitops_agent_notes_pending", "gauge", "1 while notes wait to be written or pushed."),
    Metric(
        "gitops_agent_frozen", "gauge", "1 while a freeze of this scope is in force.", {"scope": KINDS_OF_SCOPE}
    ),
    Metric(
        "gitops_agent_breaker_open",
        "gauge",
        "1 while nothing is given to a driver because it failed too often in a row.",
        {"driver": "the installed drivers"},
    ),
    Metric("gitops_agent_fleet_size", "gauge", "Agents known."),
    Metric(
        "gitops_agent_agents",
        "gauge",
        "Agents of which a condition is true.",
        {"condition": tuple(map(str, ConditionType))},
    ),
    Metric("gitops_agent_drift_standing", "gauge", "Deviations that stand, by class of drift.", {"type": DRIFT}),
    Metric(
        "gitops_agent_commit_phase",
        "gauge",
        "1 for the phase of the newest commit, 0 for the others.",
        {"phase": tuple(map(str, Phase))},
    ),
    Metric(
        "gitops_agent_rollout_wave",
        "gauge",
        "Waves of the rollout under way: how many there are, were released, and are held by a failed gate.",
        {"state": ("total", "released", "held")},
    ),
    Metric(
        "gitops_agent_passes_total",
        "counter",
        "Passes, by whether they were completed.",
        {"result": ("completed", "failed")},
    ),
    Metric("gitops_agent_pass_duration_seconds", "histogram", "How long completed passes took.", buckets=_PASSING),
)


class Registry:
    """The values of all metrics, in a registry of our own. Any thread may write and read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            self._make(metric)

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def put(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def follow(self, name: str, read: Callable[[], float], /, **labels: str) -> None:
        """Have a gauge read from a callable at every scrape."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set_function(read)

    def observe(self, name: str, value: float) -> None:
        """Add an observation to a histogram."""
        self._histograms[name].observe(value)

    def text(self) -> bytes:
        """All values, in the text format that scrapers read."""
        return generate_latest(_WithoutCreated(self._registry))

    def _make(self, metric: Metric) -> None:
        about = (metric.name, metric.meaning, tuple(metric.labels))
        if metric.kind == "histogram":
            self._histograms[metric.name] = Histogram(*about, buckets=metric.buckets, registry=self._registry)
            return
        made: Counter | Gauge
        if metric.kind == "counter":
            made = self._counters[metric.name] = Counter(*about, registry=self._registry)
        else:
            made = self._gauges[metric.name] = Gauge(*about, registry=self._registry)
        # Known series are there from the start at 0, so that their first increase can be seen.
        for label, values in metric.labels.items():
            for value in () if isinstance(values, str) else values:
                made.labels(**{label: value})


class _WithoutCreated(Collector):
    """The registry without the ``_created`` series, which would double the names and are of no use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def table() -> str:
    """The list for ``docs/metrics.md``."""
    rows = (
        f"| `{metric.name}` | {metric.kind} | {'; '.join(_label(*item) for item in metric.labels.items()) or '-'} "
        f"| {metric.meaning} |"
        for metric in METRICS
    )
    return "\n".join(("| name | kind | labels | meaning |", "|---|---|---|---|", *rows))


def _label(name: str, values: Sequence[str] | str) -> str:
    return f"`{name}`: {values}" if isinstance(values, str) else f"`{name}`: {', '.join(values)}"
