"""The process that reads and writes large JSON: its memory, and what happens if it ends."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import pathlib
import signal

import numpy
import pytest

from sluice.serve.errors import BodyTooLarge, InvalidRequest, Unavailable
from sluice.serve.json_bodies import JsonWorker, MemoryFiles


def request_of(value, count):
    """A request with so many values, and its length."""
    values = b",".join([value] * count)
    body = bytearray(b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [%d], "data": [%s]}]}' % (count, values))
    return body, len(body)


@contextlib.asynccontextmanager
async def started():
    """A worker that has read a request, and its process."""
    worker = JsonWorker(1 << 20)
    await worker.parse(*request_of(b"1", 10_000))
    process, = multiprocessing.active_children()
    try:
        yield worker, process
    finally:
        # Not a stopped one: requests would wait for it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        worker.close()
        for each in multiprocessing.active_children():
            each.join(20)


def test_worker_refuses_what_needs_more_than_its_memory_and_works_on():
    async def use():
        async with started() as (worker, process):
            # 32 times 12 MB.
            with pytest.raises(BodyTooLarge, match="send binary tensors"):
                await worker.parse(*request_of(b"[]", 4_000_000))
            with pytest.raises(InvalidRequest, match="ask for binary_data"):
                await worker.encode({"outputs": [{}]}, numpy.full(10_000_000, 0.1))
            assert len((await worker.parse(*request_of(b"0.5", 1_000_000)))[1][0][1]) == 1_000_000
            assert bytes(await worker.encode({"outputs": [{}]}, numpy.ones(10_000))).endswith(b"1.0]}]}")
            assert process.is_alive() and multiprocessing.active_children() == [process]

    asyncio.run(use())


def memory_files():
    """How many anonymous files of requests this process has open."""
    targets = []
    for each in pathlib.Path("/proc/self/fd").iterdir():
        try:
            targets.append(os.readlink(each))
        except OSError:
            pass
    return sum("memfd:sluice-" in target for target in targets)


async def until(check):
    for _ in range(1000):
        if check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("did not come true within 10 s")


async def waiting(worker, process):
    """A request whose files are open, and whose worker is stopped."""
    # The map of an earlier test's answer has a descriptor of its own until it is collected.
    gc.collect()
    os.kill(process.pid, signal.SIGSTOP)
    request = asyncio.ensure_future(worker.parse(*request_of(b"1", 10_000)))
    await until(lambda: memory_files() == 2)
    return request


def test_cancelled_request_ends_when_the_worker_has_read_its_files():
    async def use():
        async with started() as (worker, process):
            request = await waiting(worker, process)
            await asyncio.sleep(0.2)
            request.cancel()
            await asyncio.wait([request], timeout=0.2)
            assert not request.done() and memory_files() == 2
            os.kill(process.pid, signal.SIGCONT)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(request, 20)
            assert memory_files() == 0

    asyncio.run(use())


def test_files_of_a_request_that_is_cancelled_twice_stay_open_until_the_worker_has_read_them():
    async def use():
        async with started() as (worker, process):
            request = await waiting(worker, process)
            for _ in range(2):
                await asyncio.sleep(0.2)
                request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(request, 20)
            assert memory_files() == 2
            os.kill(process.pid, signal.SIGCONT)
            await until(lambda: memory_files() == 0)

    asyncio.run(use())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worker_works_on_after_a_signal_that_ends_the_server(number):
    async def use():
        async with started() as (worker, process):
            os.kill(process.pid, number)
            assert len((await worker.parse(*request_of(b"1", 10_000)))[1][0][1]) == 10_000
            assert multiprocessing.active_children() == [process]

    asyncio.run(use())


def test_requests_that_wait_when_the_worker_ends_fail_and_later_ones_share_its_successor():
    async def use():
        async with started() as (worker, process):
            async def ask_again():
                with MemoryFiles() as files:
                    with pytest.raises(Unavailable, match="the process that reads large JSON ended"):
                        await worker._run(files, os.getpid)
                    return await worker._run(files, os.getpid)

            os.kill(process.pid, signal.SIGSTOP)
            requests = [asyncio.ensure_future(ask_again()) for _ in range(2)]
            await asyncio.sleep(0.2)
            os.kill(process.pid, signal.SIGKILL)
            first, second = await asyncio.gather(*requests)
            assert first == second != process.pid, "the process of the first one's next request stays"

    asyncio.run(use())
