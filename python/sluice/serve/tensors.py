"""Tensors of the protocol: data types, and arrays from raw bytes or from lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

import numpy

from sluice.serve.errors import InvalidRequest

DTYPES = {
    "BOOL": numpy.dtype("?"), "UINT8": numpy.dtype("u1"), "UINT16": numpy.dtype("<u2"), "UINT32": numpy.dtype("<u4"), "UINT64": numpy.dtype("<u8"),
    "INT8": numpy.dtype("i1"), "INT16": numpy.dtype("<i2"), "INT32": numpy.dtype("<i4"), "INT64": numpy.dtype("<i8"),
    "FP16": numpy.dtype("<f2"), "FP32": numpy.dtype("<f4"), "FP64": numpy.dtype("<f8"),
}
# numpy's own limit was 32 before version 2.
MOST_DIMENSIONS = 32
# Inputs, or outputs, of a request. A model has one of each; more of them only get an error.
MOST_TENSORS = 64
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_of(name: str) -> numpy.dtype:
    """numpy's type of a data type of the protocol."""
    if name not in DTYPES:
        raise InvalidRequest(f"data type {name!r} is not supported: expected one of {', '.join(DTYPES)}")
    return DTYPES[name]


def check_count(tensors: Sequence[Any], what: str) -> Sequence[Any]:
    """The inputs or outputs of a request, if there are not too many."""
    if len(tensors) > MOST_TENSORS:
        raise InvalidRequest(f"the request has {len(tensors)} {what}, at most {MOST_TENSORS} are possible")
    return tensors


def check_shape(shape: Any) -> tuple[int, ...]:
    """A shape with at most 32 positive sizes and fewer than 2^31 elements."""
    # Before anything else is done with the sizes: their product is a number of as many digits as a client likes.
    if isinstance(shape, (list, tuple)) and len(shape) > MOST_DIMENSIONS:
        raise InvalidRequest(f"the shape has {len(shape)} dimensions, at most {MOST_DIMENSIONS} are possible")
    if not isinstance(shape, (list, tuple)) or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape):
        raise InvalidRequest(f"shape {shape!r}: expected a list of positive integers")
    if math.prod(shape) >= 1 << 31:
        raise InvalidRequest(f"shape {list(shape)}: too many elements")
    return tuple(shape)


def from_bytes(name: str, dtype: str, shape: Sequence[int], raw: Union[bytes, memoryview]) -> numpy.ndarray:
    """The array in raw little-endian bytes."""
    kind, sizes = dtype_of(dtype), check_shape(list(shape))
    wanted = math.prod(sizes) * kind.itemsize
    if len(raw) != wanted:
        raise InvalidRequest(f"input {name!r} has {len(raw)} bytes, but {dtype} of shape {list(sizes)} has {wanted}")
    return numpy.frombuffer(raw, kind).reshape(sizes)


def integers(values: Any) -> numpy.ndarray:
    """Values as UINT64. numpy makes floats of integers below and above 2^63 together."""
    given = numpy.asarray(values, object)
    if not all(type(value) is int for value in given.flat):
        raise ValueError("not numbers of this type")
    return given.astype(DTYPES["UINT64"])


def from_values(name: str, dtype: str, shape: Sequence[int], values: Any) -> numpy.ndarray:
    """The array in a flat or nested list of numbers."""
    kind, sizes = dtype_of(dtype), check_shape(list(shape))
    try:
        # Without a type first: numpy would otherwise read numbers from strings, and drop fractions.
        given = numpy.asarray(values)
        if kind == DTYPES["UINT64"] and given.dtype.kind == "f":
            given = integers(values)
        if given.dtype.kind not in "biuf" or (kind.kind != "f" and given.dtype.kind == "f"):
            raise ValueError("not numbers of this type")
        if kind.kind in "iu" and given.size and not (numpy.iinfo(kind).min <= given.min() and given.max() <= numpy.iinfo(kind).max):
            raise ValueError("out of range")
        # Numbers beyond a type of floats become infinite, which JSON has not.
        with numpy.errstate(over="ignore"):
            array = given.astype(kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequest(f"input {name!r}: its data is not {dtype}: {error}") from None
    if array.size != math.prod(sizes):
        raise InvalidRequest(f"input {name!r} has {array.size} elements, but its shape {list(sizes)} has {math.prod(sizes)}")
    return array.reshape(sizes)
