"""The process that reads and writes large JSON: its memory, and what happens if it ends."""

import asyncio
import multiprocessing

import numpy
import pytest

from sluice.serve.errors import BodyTooLarge, InvalidRequest
from sluice.serve.json_bodies import JsonWorker


def request_of(value, count):
    """A request with so many values, and its length."""
    values = b",".join([value] * count)
    body = bytearray(b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [%d], "data": [%s]}]}' % (count, values))
    return body, len(body)


def test_worker_refuses_what_needs_more_than_its_memory_and_works_on():
    async def use():
        worker = JsonWorker(1 << 20)
        try:
            assert len((await worker.parse(*request_of(b"1", 1_000_000)))[1][0][1]) == 1_000_000
            process, = multiprocessing.active_children()
            # 36 times 12 MB.
            with pytest.raises(BodyTooLarge, match="send binary tensors"):
                await worker.parse(*request_of(b"[]", 4_000_000))
            with pytest.raises(InvalidRequest, match="ask for binary_data"):
                await worker.encode({"outputs": [{}]}, numpy.full(10_000_000, 0.1))
            assert len((await worker.parse(*request_of(b"0.5", 1_000_000)))[1][0][1]) == 1_000_000
            assert bytes(await worker.encode({"outputs": [{}]}, numpy.ones(10_000))).endswith(b"1.0]}]}")
            assert process.is_alive() and multiprocessing.active_children() == [process]
        finally:
            worker.close()

    asyncio.run(use())
