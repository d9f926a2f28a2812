"""The requests that wait, by class: which runs next, and which best-effort requests form a batch. No clock, no threads, no I/O."""

from __future__ import annotations

import collections
import dataclasses
from concurrent.futures import Future
from typing import Optional

import numpy

from sluice.serve.config import REAL_TIME, Model
from sluice.serve.errors import QueueFull


# Compared by identity: rows are arrays.
@dataclasses.dataclass(eq=False)
class Request:
    """Rows for one model. `arrived` is in seconds of the caller's clock."""

    model: Model
    rows: numpy.ndarray
    arrived: float
    future: Future = dataclasses.field(default_factory=Future)


class Queues:
    """At most `limit` requests of each class wait. Real-time requests run in the order of arrival, one at a time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.real_time: collections.deque[Request] = collections.deque()
        self.best_effort: dict[str, collections.deque[Request]] = {}
        self.running: Optional[Request] = None

    def put(self, request: Request) -> None:
        """Adds a request. Raises `QueueFull`."""
        if self.length(request.model.klass) >= self.limit:
            raise QueueFull(f"{self.limit} {request.model.klass} requests wait already")
        if request.model.klass == REAL_TIME:
            self.real_time.append(request)
        else:
            self.best_effort.setdefault(request.model.name, collections.deque()).append(request)

    def remove(self, request: Request) -> None:
        """Removes a request if it waits."""
        waiting = self.real_time if request.model.klass == REAL_TIME else self.best_effort.get(request.model.name)
        if waiting and request in waiting:
            waiting.remove(request)

    def length(self, klass: str) -> int:
        """How many requests of a class wait."""
        return len(self.real_time) if klass == REAL_TIME else sum(map(len, self.best_effort.values()))

    @property
    def real_time_model(self) -> Optional[str]:
        """The model of the real-time request that runs or runs next; `None` if there is no real-time work."""
        first = self.running or (self.real_time[0] if self.real_time else None)
        return first.model.name if first else None

    def begin_real_time(self) -> Optional[Request]:
        """The next real-time request, which runs from now on. Cancelled ones are left out."""
        while self.real_time:
            request = self.real_time.popleft()
            if request.future.set_running_or_notify_cancel():
                self.running = request
                return request
        return None

    def end_real_time(self) -> None:
        """The running real-time request is done."""
        self.running = None

    def next_batch(self, now: float) -> tuple[list[Request], Optional[float]]:
        """The requests of the next best-effort batch, or none and the time at which there will be one (`None`: when a request arrives).

        Of the models with a batch the one whose first request is oldest is next. A batch is taken when it is full, or when its first
        request has waited for the model's delay.
        """
        due: Optional[float] = None
        for waiting in sorted(filter(None, self.best_effort.values()), key=lambda waiting: waiting[0].arrived):
            first, model = waiting[0], waiting[0].model
            ripe = first.arrived + model.delay_s
            rows = sum(len(request.rows) for request in waiting)
            if now >= ripe or rows >= model.max_batch:
                batch = self._take(waiting, model.max_batch)
                if batch:
                    return batch, None
                continue
            due = ripe if due is None else min(due, ripe)
        return [], due

    @staticmethod
    def _take(waiting: collections.deque[Request], most: int) -> list[Request]:
        """Removes the first requests that fit into a batch; cancelled ones are left out."""
        batch: list[Request] = []
        rows = 0
        while waiting and rows + len(waiting[0].rows) <= most:
            request = waiting.popleft()
            if request.future.set_running_or_notify_cancel():
                batch.append(request)
                rows += len(request.rows)
        return batch

    def drain(self) -> list[Request]:
        """Removes and returns all that wait."""
        waiting = [*self.real_time, *(request for queue in self.best_effort.values() for request in queue)]
        self.real_time.clear()
        self.best_effort.clear()
        return [request for request in waiting if request.future.set_running_or_notify_cancel()]


def batch_size(model: Model, rows: int) -> int:
    """The smallest of the model's batch sizes that holds the rows."""
    return next(size for size in model.batches if size >= rows)
