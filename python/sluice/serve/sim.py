"""A GPU of timed sleeps, so that the server runs without a GPU and without PyTorch.

A model has `kernels` kernels of `us` microseconds on the whole GPU. Its answer for a row is the row's sum and the number of kernels that
ran for it, so that a lost or repeated piece shows. Kernels for the whole GPU run one after the other in the order of submission, those of
all programs; kernels for a split run beside them.
"""

from __future__ import annotations

import threading
import time

import numpy

from sluice.serve.config import Model, Tensor

SMS = 132


class Gpu:
    """The time at which the last submitted kernel for the whole GPU ends."""

    def __init__(self) -> None:
        self.until, self.lock = 0.0, threading.Lock()


class Program:
    """Kernels one after the other; fewer SMs make each of them longer in proportion."""

    def __init__(self, gpu: Gpu, kernels: int, us: float) -> None:
        self.gpu, self.pieces, self.seconds, self.until, self.ran = gpu, kernels, us / 1e6, 0.0, 0
        self.rows = numpy.zeros((0, 1))

    def allows(self, split: int) -> bool:
        return True

    def begin(self, rows: list[numpy.ndarray]) -> None:
        self.rows, self.ran = numpy.concatenate(rows), 0
        self.until = time.monotonic()

    def launch(self, piece: int, split: int) -> None:
        assert piece == self.ran, "pieces run in order, each once"
        self.ran += 1
        begin = max(self.until, time.monotonic())
        if split:
            self.until = begin + self.seconds * SMS / split
            return
        with self.gpu.lock:
            self.until = self.gpu.until = max(begin, self.gpu.until) + self.seconds

    def mark(self) -> "Mark":
        return Mark(self.until)

    def finish(self) -> numpy.ndarray:
        Mark(self.until).wait()
        sums = self.rows.reshape(len(self.rows), -1).sum(axis=1, dtype=numpy.float64)
        return numpy.stack([sums, numpy.full(len(sums), float(self.ran))], axis=1).astype(numpy.float32)


class Mark:
    """The time at which the work before it is complete."""

    def __init__(self, until: float) -> None:
        self.until = until

    def wait(self) -> None:
        while (left := self.until - time.monotonic()) > 0:
            time.sleep(left)


class Backend:
    """The simulated GPU."""

    splits = (16, 32, 64)

    def __init__(self) -> None:
        self.gpu = Gpu()

    def prepare(self, model: Model) -> tuple[dict[int, Program], Tensor]:
        what = model.source[1]
        return {size: Program(self.gpu, what["kernels"], what["us"]) for size in model.batches}, Tensor("output", "FP32", (2,))

    def use_here(self) -> None:
        """Nothing belongs to a thread."""
