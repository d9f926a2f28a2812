"""Runs the requests: one thread submits real-time requests, another one best-effort batches in pieces.

A piece is submitted for the whole GPU while there is no real-time work. Otherwise it is submitted for the split that belongs to the
real-time model; if there is none, or the program cannot be limited to it, not before the real-time work is done. Pieces that have been submitted run to their end: nothing runs twice.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from typing import Optional

import numpy

from sluice.serve.backend import WHOLE, Backend, Program
from sluice.serve.errors import ModelFailed, ServeError, Unavailable
from sluice.serve.queues import Queues, Request, batch_size

log = logging.getLogger(__name__)

# How many best-effort pieces are submitted and not complete: one runs, one follows it without a pause.
DEPTH = 2


class Executor:
    """`splits[model]`: SMs of best-effort work while that real-time model runs, `WHOLE`, or `None`: it pauses."""

    def __init__(
        self, queue: int, programs: Optional[dict[str, dict[int, Program]]] = None,
        clock: Callable[[], float] = time.monotonic, finished: Callable[[Request, float, Optional[ServeError]], None] = lambda *_: None,
    ) -> None:
        self.programs: dict[str, dict[int, Program]] = {} if programs is None else programs
        self.clock, self.finished = clock, finished
        self.backend: Optional[Backend] = None
        self.queues, self.splits = Queues(queue), dict[str, Optional[int]]()
        self.changed, self.closing, self.preemptions = threading.Condition(), False, 0
        self.broken: Optional[ServeError] = None
        self.threads = [threading.Thread(target=self._guarded, args=(loop,), name=loop.__name__, daemon=True) for loop in (self._real_time, self._best_effort)]

    def start(self, backend: Backend) -> None:
        """Starts both threads."""
        self.backend = backend
        for thread in self.threads:
            thread.start()

    def submit(self, request: Request) -> None:
        """Queues a request; its future gets the rows of the answer. Cancelling the future removes the request while it waits. Raises `QueueFull` or
        `Unavailable`."""
        with self.changed:
            if self.broken or self.closing:
                raise self.broken or Unavailable("the server ends")
            self.queues.put(request)
            self.changed.notify_all()
        request.future.add_done_callback(lambda future: self._remove(request) if future.cancelled() else None)

    def _remove(self, request: Request) -> None:
        with self.changed:
            self.queues.remove(request)
            # Best-effort work may have paused for it.
            self.changed.notify_all()

    def close(self) -> None:
        """Ends after the running requests. Those that wait get an error."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        for thread in self.threads:
            if thread.ident:
                thread.join()
        self._refuse(Unavailable("the server ends"))

    def _guarded(self, loop: Callable[[], None]) -> None:
        """A thread that cannot go on leaves no request without an answer."""
        try:
            self.backend.use_here()
            loop()
        except BaseException as error:  # noqa: BLE001
            log.exception("executor failed thread=%s", threading.current_thread().name)
            self._break(error)

    def _break(self, error: BaseException) -> None:
        with self.changed:
            self.broken = self.broken or Unavailable(f"the GPU failed: {error}")
            self.changed.notify_all()
        self._refuse(self.broken)

    def _refuse(self, error: ServeError) -> None:
        with self.changed:
            waiting = self.queues.drain()
        for request in waiting:
            self._answer(request, None, error)

    def _real_time(self) -> None:
        while True:
            with self.changed:
                while not (request := self.queues.begin_real_time()):
                    if self.closing or self.broken:
                        return
                    # Cancelled requests were left out: best-effort work may have paused for them.
                    self.changed.notify_all()
                    self.changed.wait()
            program = self.programs[request.model.name][batch_size(request.model, len(request.rows))]
            answer, error = None, None
            try:
                program.begin([request.rows])
                for piece in range(program.pieces):
                    program.launch(piece, WHOLE)
                answer = program.finish()
            except BaseException as failure:  # noqa: BLE001: a request without an answer would wait for ever.
                error = failure
            with self.changed:
                self.queues.end_real_time()
                self.changed.notify_all()
            self._deliver([request], answer, error)

    def _best_effort(self) -> None:
        while (batch := self._next_batch()) is not None:
            model = batch[0].model
            program = self.programs[model.name][batch_size(model, sum(len(request.rows) for request in batch))]
            answer, error = None, None
            try:
                program.begin([request.rows for request in batch])
                self._run_pieces(program)
                answer = program.finish()
            except BaseException as failure:  # noqa: BLE001: a request without an answer would wait for ever.
                error = failure
            self._deliver(batch, answer, error)

    def _next_batch(self) -> Optional[list[Request]]:
        with self.changed:
            while not (self.closing or self.broken):
                now = self.clock()
                batch, due = self.queues.next_batch(now)
                if batch:
                    return batch
                self.changed.wait(None if due is None else max(0.0, due - now))
        return None

    def _run_pieces(self, program: Program) -> None:
        submitted: collections.deque = collections.deque()
        limited = False
        for piece in range(program.pieces):
            if len(submitted) == DEPTH:
                submitted.popleft().wait()
            split, is_limited = self._place(program)
            # A preemption is the begin of a limitation, or of a pause, within a batch.
            self.preemptions += is_limited and not limited
            limited = is_limited
            program.launch(piece, split)
            submitted.append(program.mark())

    def _place(self, program: Program) -> tuple[int, bool]:
        """The split for the next piece, and whether real-time work limits it. Waits while best effort, or this program, pauses."""
        with self.changed:
            model, paused = self.queues.real_time_model, False
            while model is not None and not self.broken:
                split = self.splits.get(model, WHOLE)
                if split is not None and (split == WHOLE or program.allows(split)):
                    return split, split != WHOLE or paused
                paused = True
                self.changed.wait()
                model = self.queues.real_time_model
            return WHOLE, paused

    def _deliver(self, batch: list[Request], answer: Optional[numpy.ndarray], error: Optional[BaseException]) -> None:
        """Gives each request its rows of the answer, or all of them the error."""
        failure = None
        rows = sum(len(request.rows) for request in batch)
        if answer is not None and (answer.ndim == 0 or len(answer) < rows):
            answer, error = None, ValueError(f"its answer has shape {list(answer.shape)}, expected {rows} rows")
        if error is not None:
            log.error("model failed model=%s error=%s", batch[0].model.name, error, exc_info=error)
            failure = ModelFailed(f"model {batch[0].model.name} failed: {error}")
            if getattr(error, "fatal", False):
                self._break(error)
        begin = 0
        for request in batch:
            end = begin + len(request.rows)
            self._answer(request, None if answer is None else answer[begin:end], failure)
            begin = end

    def _answer(self, request: Request, rows: Optional[numpy.ndarray], error: Optional[ServeError]) -> None:
        self.finished(request, self.clock() - request.arrived, error)
        if error is not None:
            request.future.set_exception(error)
        else:
            request.future.set_result(rows)
