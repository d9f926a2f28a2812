"""Requests before they reach the queues."""

import numpy
import pytest
from model_server import MODELS

from sluice.serve.config import parse
from sluice.serve.errors import InvalidRequest, Unavailable
from sluice.serve.service import Inference, Service
from sluice.serve.tensors import check_shape


def test_requests_are_accepted_between_start_and_end_only():
    service = Service(parse(MODELS))
    rows = Inference("be", [("input", numpy.zeros((1, 4), "<f4"))])
    with pytest.raises(Unavailable):
        service.submit(rows)
    service.start()
    assert service.submit(rows).result(60).shape == (1, 2)
    service.close()
    with pytest.raises(Unavailable):
        service.submit(rows)


def test_shape_of_very_many_dimensions_is_refused_by_their_number():
    # The product of the sizes would take minutes.
    with pytest.raises(InvalidRequest, match="1000000 dimensions"):
        check_shape([1 << 62] * 1_000_000)
