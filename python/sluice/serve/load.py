"""Load inside the server's process, for the profile at its start and for benchmarks."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Sequence
from typing import Optional

import numpy

from sluice.serve.config import Model
from sluice.serve.errors import ServeError
from sluice.serve.executor import Executor
from sluice.serve.queues import Request
from sluice.serve.tensors import DTYPES


@dataclasses.dataclass
class Measured:
    """Latencies in seconds, and the rows of best effort that were answered in `seconds`. `changed`: real-time answers with other bits than the first;
    `kinds`: how many different answers a best-effort client got to its one request, at most one for each batch size. `errors`: the first error
    of each model that had one."""

    latencies: list[float]
    rows: int
    seconds: float
    changed: int
    kinds: int
    failed: int
    errors: dict[str, str]


def rows_of(model: Model, rows: int, seed: int) -> numpy.ndarray:
    """Random rows for a model, the same for the same seed."""
    return numpy.random.default_rng(seed).integers(0, 2, (rows, *model.input.shape)).astype(DTYPES[model.input.dtype])


class BestEffort:
    """Clients that send the next request when they have the answer."""

    def __init__(self, executor: Executor, clients: Sequence[tuple[Model, int]]) -> None:
        self.executor, self.stopped, self.failed, self.errors = executor, False, 0, dict[str, str]()
        self.answered: list[tuple[float, int]] = []
        self.kinds: list[set[bytes]] = [set() for _ in clients]
        self.rows = [rows_of(model, rows, index) for index, (model, rows) in enumerate(clients)]
        for index, (model, _) in enumerate(clients):
            self._send(model, index)

    def _send(self, model: Model, index: int) -> None:
        request = Request(model, self.rows[index], self.executor.clock())
        request.future.add_done_callback(lambda future: self._answered(model, index, future))
        try:
            self.executor.submit(request)
        except ServeError as error:
            self._note(model, error)

    def _note(self, model: Model, error: BaseException) -> None:
        self.failed += 1
        self.errors.setdefault(model.name, str(error))

    def _answered(self, model: Model, index: int, future) -> None:
        if future.exception() is None:
            self.answered.append((time.perf_counter(), len(self.rows[index])))
            self.kinds[index].add(future.result().tobytes())
        else:
            self._note(model, future.exception())
        if not self.stopped and not future.exception():
            self._send(model, index)


class RealTime:
    """Requests after random pauses of `period` seconds on average, between half and one and a half of it."""

    def __init__(self, executor: Executor, model: Model, period: float, seed: int) -> None:
        self.executor, self.model, self.period, self.chance = executor, model, period, random.Random(seed)
        self.rows, self.first = rows_of(model, 1, 0), b""
        self.latencies: list[float] = []
        self.changed, self.failed, self.errors, self.idle = 0, 0, dict[str, str](), threading.Semaphore(1)

    def _answered(self, begin: float, future) -> None:
        took = time.perf_counter() - begin
        if future.exception() is None:
            self.latencies.append(took)
            answer = future.result().tobytes()
            self.first = self.first or answer
            self.changed += answer != self.first
        else:
            self._note(future.exception())
        self.idle.release()

    def _note(self, error: BaseException) -> None:
        self.failed += 1
        self.errors.setdefault(self.model.name, str(error))

    def run(self, until: float) -> None:
        """Sends requests until that time. A request that is due before the last one is answered is sent after it."""
        # At most half of the time, so that a block of a slow model has a request.
        due = time.perf_counter() + min(self.period * self.chance.uniform(0, 1), (until - time.perf_counter()) / 2)
        while due < until:
            time.sleep(max(0.0, due - time.perf_counter()))
            self.idle.acquire()
            begin = time.perf_counter()
            request = Request(self.model, self.rows, self.executor.clock())
            request.future.add_done_callback(lambda future, begin=begin: self._answered(begin, future))
            try:
                self.executor.submit(request)
            except ServeError as error:
                self._note(error)
                self.idle.release()
            due = max(due + self.period * self.chance.uniform(0.5, 1.5), time.perf_counter())
        self.idle.acquire()


def measure(
    executor: Executor, seconds: float, real_time: Optional[Model] = None, period: float = 0.0, best_effort: Sequence[tuple[Model, int]] = (), seed: int = 0,
) -> Measured:
    """Runs the load for so long. `best_effort`: the model and the rows of each client."""
    others = BestEffort(executor, best_effort)
    # The first batches are in the pipeline when the window begins.
    time.sleep(min(0.1, seconds / 5))
    begin, requests = time.perf_counter(), None
    if real_time:
        requests = RealTime(executor, real_time, period, seed)
        requests.run(begin + seconds)
    time.sleep(max(0.0, begin + seconds - time.perf_counter()))
    end = time.perf_counter()
    others.stopped = True
    wait_idle(executor)
    rows = sum(count for at, count in others.answered if begin <= at < end)
    latencies, changed, failed, errors = (requests.latencies, requests.changed, requests.failed, requests.errors) if requests else ([], 0, 0, {})
    return Measured(latencies, rows, end - begin, changed, max(map(len, others.kinds), default=0), failed + others.failed, {**others.errors, **errors})


def wait_idle(executor: Executor, patience: float = 10.0) -> None:
    """Returns when no request waits. The last batch may still run."""
    end = time.monotonic() + patience
    while any(executor.queues.length(klass) for klass in ("real-time", "best-effort")) and time.monotonic() < end:
        time.sleep(0.001)
