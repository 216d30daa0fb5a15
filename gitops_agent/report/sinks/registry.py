"""The registry of metrics: what ``metrics.toml`` names, and nothing else, with its values.

A label only takes values from a set that is known when we start, so that no fleet makes more series than another.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gitops_agent.model.freezes import KINDS_OF_SCOPE
from gitops_agent.model.plan import Class, Confidence
from gitops_agent.model.status import ConditionType, Phase

SURENESS: Mapping[Confidence, float] = {Confidence.LOW: 0.0, Confidence.MEDIUM: 0.5, Confidence.HIGH: 1.0}
MEAN_COMMITS = 20
"""How many converged commits the mean is taken of."""

_SETS: Mapping[str, Sequence[str]] = {
    "$drift": tuple(str(cls) for cls in Class if cls.is_drift),
    "$scope": KINDS_OF_SCOPE,
    "$condition": tuple(map(str, ConditionType)),
    "$phase": tuple(map(str, Phase)),
}
_MAKERS: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``labels``: which values each may take, or where they come from."""

    name: str
    kind: str
    meaning: str
    labels: Mapping[str, Sequence[str] | str] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


def metrics() -> tuple[Metric, ...]:
    """Every metric that ``metrics.toml`` names, in its order."""
    listed = tomllib.loads(files("gitops_agent.report.sinks").joinpath("metrics.toml").read_text("utf-8"))
    for about in listed.values():
        about["labels"] = {label: _SETS.get(str(v), v) for label, v in about.get("labels", {}).items()}
    return tuple(Metric(name, **about) for name, about in listed.items())


class Registry:
    """The values of all metrics, in a registry of our own. Any thread may write and read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._made = {metric.name: self._make(metric) for metric in metrics()}

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        self._series(name, labels).inc(amount)

    def put(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._series(name, labels).set(value)

    def follow(self, name: str, read: Callable[[], float], /, **labels: str) -> None:
        """Have a gauge read from a callable at every scrape."""
        self._series(name, labels).set_function(read)

    def observe(self, name: str, value: float) -> None:
        """Add an observation to a histogram."""
        self._series(name, {}).observe(value)

    def text(self) -> bytes:
        """All values, in the text format that scrapers read."""
        return generate_latest(_WithoutCreated(self._registry))

    def _series(self, name: str, labels: Mapping[str, str]) -> Any:
        made = self._made[name]
        return made.labels(**labels) if labels else made

    def _make(self, metric: Metric) -> Any:
        more = {"buckets": metric.buckets} if metric.buckets else {}
        maker = _MAKERS[metric.kind]
        made = maker(metric.name, metric.meaning, tuple(metric.labels), registry=self._registry, **more)
        # Known series are there from the start at 0, so that their first increase can be seen.
        for label, values in metric.labels.items():
            for value in () if isinstance(values, str) else values:
                made.labels(**{label: value})
        return made


class _WithoutCreated(Collector):
    """The registry without the ``_created`` series, which would double the names and are of no use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
