"""Where best-effort pieces go while real-time work runs."""

import queue
import threading

import numpy
import pytest

from sluice.serve.backend import WHOLE
from sluice.serve.config import BEST_EFFORT, CLASSES, REAL_TIME, Model, Tensor
from sluice.serve.errors import ModelFailed
from sluice.serve.executor import Executor
from sluice.serve.queues import Request

PATIENCE = 60


class Recorded:
    """A program of pieces that are complete at once. A real-time one runs until it is released."""

    def __init__(self, pieces, splits, released=None):
        self.pieces, self.splits, self.released = pieces, splits, released
        self.launched, self.steps = queue.Queue(), threading.Semaphore(0)

    def allows(self, split):
        return split in self.splits

    def begin(self, rows):
        self.rows = rows[0]

    def launch(self, piece, split):
        self.launched.put((piece, split))
        if self.released is None:
            assert self.steps.acquire(timeout=PATIENCE)

    def mark(self):
        return self

    def wait(self):
        pass

    def finish(self):
        if self.released is not None:
            assert self.released.wait(PATIENCE)
        return self.rows

    def use_here(self):
        pass


def model(name, klass):
    return Model(name, klass, ("sim", {}), Tensor("input", "FP32", (1,)), (1,), 0.0)


@pytest.mark.parametrize("splits, while_real_time_runs", [((32,), [(1, 32)]), ((16,), [])])
def test_program_that_cannot_be_limited_to_the_split_pauses(splits, while_real_time_runs):
    released = threading.Event()
    best_effort, real_time = Recorded(3, splits), Recorded(1, (), released)
    executor = Executor(10, {"be": {1: best_effort}, "rt": {1: real_time}})
    executor.splits["rt"] = 32
    executor.start(best_effort)
    requests = [Request(model("be", BEST_EFFORT), numpy.zeros((1, 1)), 0.0), Request(model("rt", REAL_TIME), numpy.zeros((1, 1)), 0.0)]
    executor.submit(requests[0])
    assert best_effort.launched.get(timeout=PATIENCE) == (0, WHOLE)
    executor.submit(requests[1])
    assert real_time.launched.get(timeout=PATIENCE) == (0, WHOLE)
    # The first piece ends, and so may the second one, if it is submitted.
    best_effort.steps.release()
    seen = [best_effort.launched.get(timeout=PATIENCE) for _ in while_real_time_runs]
    assert seen == while_real_time_runs
    if not while_real_time_runs:
        with pytest.raises(queue.Empty):
            best_effort.launched.get(timeout=0.3)
    released.set()
    best_effort.steps.release(3)
    for request in requests:
        request.future.result(PATIENCE)
    left = [best_effort.launched.get(timeout=PATIENCE) for _ in range(2 - len(seen))]
    assert [piece for piece, _ in seen + left] == [1, 2]
    assert left[-1] == (2, WHOLE) or seen
    executor.close()


class Shaped(Recorded):
    """A program with an answer of this shape."""

    def __init__(self, shape):
        super().__init__(0, ())
        self.shape = shape

    def finish(self):
        return numpy.zeros(self.shape)


@pytest.mark.parametrize("klass", CLASSES)
@pytest.mark.parametrize("shape", [(), (1, 4)])
def test_answer_with_fewer_rows_than_the_request_is_an_error_and_the_next_request_is_answered(klass, shape):
    program = Shaped(shape)
    executor = Executor(10, {"it": {2: program}})
    executor.start(program)
    asked = Model("it", klass, ("sim", {}), Tensor("input", "FP32", (1,)), (2,), 0.0)
    wrong, right = (Request(asked, numpy.zeros((2, 1)), 0.0) for _ in range(2))
    executor.submit(wrong)
    with pytest.raises(ModelFailed, match="model it failed: .* rows"):
        wrong.future.result(PATIENCE)
    program.shape = (2, 4)
    executor.submit(right)
    assert right.future.result(PATIENCE).shape == (2, 4)
    executor.close()
