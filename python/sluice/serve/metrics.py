"""The server's metrics for Prometheus."""

from __future__ import annotations

from typing import Optional

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from sluice.serve.config import CLASSES
from sluice.serve.errors import ServeError
from sluice.serve.executor import Executor
from sluice.serve.queues import Request

SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Metrics:
    """Counts finished requests; reads the queues of an executor when Prometheus asks."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.seconds = prometheus_client.Histogram(
            "sluice_request_seconds", "Time from the arrival of an answered request to its answer, seconds.", ["model", "class"], buckets=SECONDS, registry=self.registry)
        self.failures = prometheus_client.Counter(
            "sluice_request_failures", "Requests that got an error after they were queued.", ["model", "class", "error"], registry=self.registry)

    def finished(self, request: Request, seconds: float, error: Optional[ServeError]) -> None:
        """Counts one request."""
        labels = request.model.name, request.model.klass
        if error is None:
            self.seconds.labels(*labels).observe(seconds)
        else:
            self.failures.labels(*labels, type(error).__name__).inc()

    def watch(self, executor: Executor) -> None:
        """Adds the metrics of an executor."""
        self.registry.register(Watched(executor))

    def text(self) -> bytes:
        """The page for Prometheus."""
        return prometheus_client.generate_latest(self.registry)


class Watched:
    """What is read from the executor."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def collect(self):
        queued = GaugeMetricFamily("sluice_queue_length", "Requests that wait.", labels=["class"])
        for klass in CLASSES:
            queued.add_metric([klass], self.executor.queues.length(klass))
        split = GaugeMetricFamily(
            "sluice_best_effort_sms", "SMs of best-effort work while a request of the real-time model runs. 0: it pauses, -1: the whole GPU.", labels=["model"])
        for model, sms in self.executor.splits.items():
            split.add_metric([model], {None: 0, 0: -1}.get(sms, sms))
        preemptions = CounterMetricFamily("sluice_serve_preemptions", "How often real-time work limited or stopped a best-effort batch that ran.", value=self.executor.preemptions)
        yield from (queued, split, preemptions)
