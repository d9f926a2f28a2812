"""A captured model at one batch size: its pieces for the whole GPU, and the same kernels for fewer SMs."""

from __future__ import annotations

import logging
import time

import numpy
import torch

from sluice.serve.backend import WHOLE
from sluice.serve.cuda.capture import capture
from sluice.serve.cuda.driver import Driver, DriverError, Event
from sluice.serve.cuda.networks import PRECISIONS
from sluice.serve.executor import DEPTH

log = logging.getLogger(__name__)
# Length of a piece, seconds: what real-time work may find submitted, and what a batch loses at each end of a split.
PIECE_S = 0.0002
TORCH = {"BOOL": torch.bool, "UINT8": torch.uint8, "INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32, "INT64": torch.int64, "FP64": torch.float64, **PRECISIONS}
# Since PyTorch 2.3.
TORCH |= {name: getattr(torch, name.lower()) for name in ("UINT16", "UINT32", "UINT64") if hasattr(torch, name.lower())}


class Program:
    """`contexts`: green contexts by their number of SMs; without any the program runs in one piece."""

    def __init__(self, driver: Driver, network: torch.nn.Module, dtype: str, shape: tuple[int, ...], stream: torch.cuda.Stream, contexts: dict, pieced: bool) -> None:
        self.driver, self.stream, self.handle = driver, stream, stream.cuda_stream
        # The graphs hold addresses only. Memory of weights that are collected is used again, or unmapped, when the next model is prepared.
        self.network = network
        self.images = torch.zeros(shape, dtype=TORCH[dtype], device="cuda")
        self.staged = torch.zeros(shape, dtype=TORCH[dtype]).pin_memory()
        self.host_rows = self.staged.numpy()
        self.done, self.marks, self.marked = Event(driver, sleeping=False), [Event(driver, sleeping=True) for _ in range(DEPTH + 1)], 0
        self._capture(network, 1)
        if pieced:
            parts, whole = max(4, round(self.seconds(WHOLE) / PIECE_S)), self.executables[WHOLE]
            self._capture(network, parts)
            driver.destroy(whole)
        reference = self.run(WHOLE)
        # Kernels that add in the order of arrival answer differently each time; then a split cannot be compared.
        self.exact = self.run(WHOLE).tobytes() == reference.tobytes()
        self.times = {WHOLE: self.seconds(WHOLE)}
        for split, context in contexts.items():
            self._limit(split, context, reference)
        log.info("captured shape=%s pieces=%d exact=%s ms=%s", shape, self.pieces, self.exact, {split: round(1000 * each, 3) for split, each in self.times.items()})

    def _capture(self, network: torch.nn.Module, parts: int) -> None:
        self.graphs, self.answer = capture(network, self.images, self.stream, parts)
        self.pieces = len(self.graphs)
        self.told = torch.empty_like(self.answer, device="cpu").pin_memory()
        self.host_answer = self.told.numpy()
        self.executables = {WHOLE: [self.driver.instantiate(graph.raw_cuda_graph()) for graph in self.graphs]}

    def _limit(self, split: int, context: object, reference: numpy.ndarray) -> None:
        """Adds the pieces for a split, if the driver accepts them and their answer is the same to the bit."""
        try:
            self.executables[split] = [self.driver.instantiate(graph.raw_cuda_graph(), context) for graph in self.graphs]
            same = self.run(split).tobytes() == reference.tobytes() or not self.exact
        except DriverError as error:
            log.warning("split not usable sms=%d error=%s", split, error)
            self.executables.pop(split, None)
            return
        if same:
            self.times[split] = self.seconds(split)
        else:
            log.warning("split not usable sms=%d error=other answer", split)
            del self.executables[split]

    def allows(self, split: int) -> bool:
        return split in self.executables

    def run(self, split: int) -> numpy.ndarray:
        """One batch of fixed random rows in that split."""
        chance = numpy.random.default_rng(0)
        # Small integers are exact in every type.
        self.begin([chance.integers(0, 2, self.host_rows.shape).astype(self.host_rows.dtype)])
        for piece in range(self.pieces):
            self.launch(piece, split)
        return self.finish()

    def seconds(self, split: int, times: int = 12) -> float:
        """Median time of a batch."""
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            self.run_again(split)
            taken.append(time.perf_counter() - begin)
        return sorted(taken)[times // 2]

    def run_again(self, split: int) -> None:
        """The same batch once more, without copies."""
        for piece in range(self.pieces):
            self.launch(piece, split)
        self.done.record(self.handle).wait()

    def begin(self, rows: list[numpy.ndarray]) -> None:
        begin = 0
        for each in rows:
            self.host_rows[begin:begin + len(each)] = each
            begin += len(each)
        # What lies behind the last row belongs to an earlier batch, and its answer is not sent.
        self.driver.copy_in(self.images.data_ptr(), self.staged.data_ptr(), self.host_rows.nbytes // len(self.host_rows) * begin, self.handle)

    def launch(self, piece: int, split: int) -> None:
        self.driver.launch(self.executables[split][piece], self.handle)

    def mark(self) -> Event:
        self.marked = (self.marked + 1) % len(self.marks)
        return self.marks[self.marked].record(self.handle)

    def finish(self) -> numpy.ndarray:
        self.driver.copy_out(self.told.data_ptr(), self.answer.data_ptr(), self.host_answer.nbytes, self.handle)
        self.done.record(self.handle).wait()
        return self.host_answer.copy()
