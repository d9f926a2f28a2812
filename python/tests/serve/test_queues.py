"""Which request runs next, with times of the test's own."""

import numpy
import pytest

from sluice.serve.config import BEST_EFFORT, REAL_TIME, Model, Tensor
from sluice.serve.errors import QueueFull
from sluice.serve.queues import Queues, Request, batch_size


def request(name, arrived=0.0, rows=1, klass=BEST_EFFORT, batches=(1, 2, 4), delay=0.0):
    model = Model(name, klass, ("sim", {}), Tensor("input", "FP32", (1,)), batches, delay)
    return Request(model, numpy.zeros((rows, 1)), arrived)


def filled(*requests, limit=100):
    queues = Queues(limit)
    for each in requests:
        queues.put(each)
    return queues


def test_real_time_requests_run_in_order_of_arrival_without_cancelled_ones():
    first, cancelled, last = (request(name, klass=REAL_TIME) for name in "abc")
    queues = filled(first, cancelled, last)
    cancelled.future.cancel()
    assert queues.begin_real_time() is first
    assert queues.real_time_model == "a"
    queues.end_real_time()
    assert queues.begin_real_time() is last
    queues.end_real_time()
    assert queues.begin_real_time() is None and queues.real_time_model is None


def test_batch_waits_for_the_delay_of_its_first_request_or_until_it_is_full():
    queues = filled(request("a", arrived=1.0, delay=0.5))
    assert queues.next_batch(1.25) == ([], 1.5)
    assert len(queues.next_batch(1.5)[0]) == 1
    queues = filled(*(request("a", arrived=1.0, delay=0.5) for _ in range(5)))
    assert len(queues.next_batch(1.0)[0]) == 4
    assert queues.next_batch(1.0) == ([], 1.5)


def test_model_whose_request_is_oldest_is_next():
    queues = filled(request("a", arrived=2.0), request("b", arrived=1.0), request("a", arrived=3.0))
    assert [each.model.name for each in queues.next_batch(5.0)[0]] == ["b"]
    assert [each.model.name for each in queues.next_batch(5.0)[0]] == ["a", "a"]


def test_request_that_does_not_fit_into_the_batch_waits():
    queues = filled(request("a", rows=3), request("a", rows=2))
    assert [len(each.rows) for each in queues.next_batch(0.0)[0]] == [3]
    assert [len(each.rows) for each in queues.next_batch(0.0)[0]] == [2]


def test_limit_is_for_each_class():
    queues = filled(request("a"), limit=1)
    with pytest.raises(QueueFull):
        queues.put(request("b"))
    queues.put(request("c", klass=REAL_TIME))


def test_smallest_batch_that_holds_the_rows():
    model = request("a").model
    assert [batch_size(model, rows) for rows in (1, 2, 3, 4)] == [1, 2, 4, 4]
