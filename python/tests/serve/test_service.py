"""Requests before they reach the queues."""

import numpy
import pytest
from model_server import MODELS

from sluice.serve import messages
from sluice.serve.backend import output_of
from sluice.serve.config import ConfigError, Tensor, parse
from sluice.serve.errors import InvalidRequest, Unavailable
from sluice.serve.grpc_api import VALUES, arrays_of
from sluice.serve.service import Inference, Service
from sluice.serve.tensors import check_shape, from_values


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


BELOW_AND_ABOVE = [1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


@pytest.mark.parametrize("values", [BELOW_AND_ABOVE, [BELOW_AND_ABOVE[:2], BELOW_AND_ABOVE[2:]]])
def test_unsigned_numbers_below_and_above_half_of_their_range_are_read_exactly(values):
    assert from_values("input", "UINT64", [4], values).tolist() == BELOW_AND_ABOVE


@pytest.mark.parametrize("values", [[0.5, 1 << 63], [1.0, 1 << 63], [-1, 1 << 63], [True, 1 << 63, 1], [1, 1 << 64], ["1", 1 << 63]])
def test_values_that_are_no_unsigned_numbers_are_refused(values):
    with pytest.raises(InvalidRequest, match="its data is not UINT64"):
        from_values("input", "UINT64", [len(values)], values)


@pytest.mark.parametrize("values", [BELOW_AND_ABOVE, [1] * VALUES + [1 << 63] * VALUES])
def test_unsigned_numbers_below_and_above_half_of_their_range_are_read_exactly_over_grpc(values):
    request = messages.CLASSES["ModelInferRequest"]()
    request.inputs.add(name="input", datatype="UINT64", shape=[len(values)]).contents.uint64_contents.extend(values)
    assert arrays_of(request)[0][1].tolist() == values


@pytest.mark.parametrize(("dtype", "field", "values"), [
    ("BOOL", "bool_contents", [True, False]), ("INT8", "int_contents", [-128, 127]), ("INT64", "int64_contents", [-(1 << 63), (1 << 63) - 1]),
    ("UINT32", "uint_contents", [0, (1 << 32) - 1]), ("FP32", "fp32_contents", [0.5, -2.0]), ("FP64", "fp64_contents", [0.1, 1e300])])
def test_typed_contents_are_read_exactly(dtype, field, values):
    request = messages.CLASSES["ModelInferRequest"]()
    getattr(request.inputs.add(name="input", datatype=dtype, shape=[2]).contents, field).extend(values)
    assert arrays_of(request)[0][1].tolist() == values
    request.inputs[0].contents.Clear()
    with pytest.raises(InvalidRequest, match="has 0 elements"):
        arrays_of(request)


def test_number_outside_of_a_type_that_is_smaller_than_its_field_is_refused():
    request = messages.CLASSES["ModelInferRequest"]()
    request.inputs.add(name="input", datatype="INT8", shape=[1]).contents.int_contents.append(128)
    with pytest.raises(InvalidRequest, match="out of range"):
        arrays_of(request)


@pytest.mark.parametrize("shapes", [{1: (1000,), 2: (2000,)}, {1: (), 2: ()}, {1: (1, 10), 2: (1, 10)}, {1: (1, 10), 2: (2, 20)}, {1: (1, 10), 2: (2,)}])
def test_model_whose_output_has_not_one_row_for_each_row_of_the_batch_is_refused(shapes):
    with pytest.raises(ConfigError, match="model be: .* batch"):
        output_of("be", "FP32", shapes)


@pytest.mark.parametrize("row", [(), (10,), (3, 4)])
def test_shape_of_an_output_is_that_of_a_row(row):
    assert output_of("be", "FP32", {size: (size, *row) for size in (1, 4)}) == Tensor("output", "FP32", row)
