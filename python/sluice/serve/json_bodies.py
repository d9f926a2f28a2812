"""Requests and answers as JSON, with the binary tensor extension. Large ones are read and written in another process.

Python reads JSON with its lock held: 64 MiB would delay every real-time request by more than a second. The text goes to the worker
process and back in anonymous files, so that this process copies nothing with the lock held.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import json
import mmap
import multiprocessing
import os
import pathlib
import re
import resource
import signal
import threading
from collections.abc import Callable
from typing import Any, Optional, Union

import numpy

from sluice.serve.errors import BodyTooLarge, InvalidRequest, Unavailable
from sluice.serve.tensors import check_count, check_shape, from_bytes, from_values
from sluice.serve.waiting import until_done

# What takes about half a millisecond in this process: bytes of JSON, elements of an answer.
SMALL_BYTES, SMALL_ELEMENTS = 16 << 10, 4 << 10
# Characters of a request's `id`, which the answer repeats, and of a name.
MOST_CHARACTERS = 1024
# The worker's memory: so many times the largest body, and at least so many bytes. A JSON of numbers took up to 14 times its bytes.
MEMORY_TIMES, MEMORY_LEAST = 16, 256 << 20
Arrays = list[tuple[str, numpy.ndarray]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a request has besides its inputs. `outputs`: the names that it asks for. `binary`: the form of the answer."""

    id: Optional[str]
    outputs: list[str]
    binary: bool


def expect(kind: type, value: Any, what: str) -> Any:
    """The value if it has this type. A string is also short."""
    if not isinstance(value, kind):
        raise InvalidRequest(f"{what}: expected {({dict: 'an object', list: 'a list', str: 'a string', bool: 'true or false'})[kind]}")
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        raise InvalidRequest(f"{what} has {len(value)} characters, at most {MOST_CHARACTERS} are possible")
    return value


def refuse_constant(name: str) -> None:
    """Python would accept NaN and Infinity."""
    raise ValueError(f"{name} is not JSON")


def parse(body: memoryview, size: int) -> tuple[Asked, Arrays]:
    """The request. The first `size` bytes are JSON, the others binary tensors."""
    try:
        request = expect(dict, json.loads(str(body[:size], "utf-8"), parse_constant=refuse_constant), "the request")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the request is not JSON: {error}") from None
    return asked_of(request), inputs_of(expect(list, request.get("inputs"), "inputs"), body[size:])


def asked_of(request: dict[str, Any]) -> Asked:
    """The rest of a request. It goes from process to process, so it is small whatever the client sends."""
    number = request.get("id")
    all_binary = expect(bool, expect(dict, request.get("parameters", {}), "parameters").get("binary_data_output", False), "binary_data_output")
    names, binary = [], []
    for each in check_count(expect(list, request.get("outputs", []), "outputs"), "outputs"):
        output = expect(dict, each, "outputs")
        names.append(expect(str, output.get("name"), "outputs.name"))
        binary.append(expect(bool, expect(dict, output.get("parameters", {}), "outputs.parameters").get("binary_data", all_binary), "binary_data"))
    return Asked(None if number is None else expect(str, number, "id"), names, any(binary) if names else all_binary)


def inputs_of(listed: list[Any], binary: memoryview) -> Arrays:
    """The arrays of the inputs; `binary` has those with a `binary_data_size`, one after the other."""
    found = []
    for each in check_count(listed, "inputs"):
        tensor = expect(dict, each, "inputs")
        name, dtype = expect(str, tensor.get("name"), "inputs.name"), expect(str, tensor.get("datatype"), "inputs.datatype")
        shape = check_shape(tensor.get("shape"))
        size = expect(dict, tensor.get("parameters", {}), "inputs.parameters").get("binary_data_size")
        if size is None:
            array = from_values(name, dtype, shape, expect(list, tensor.get("data"), f"the data of input {name!r}"))
            if not numpy.isfinite(array).all():
                raise InvalidRequest(f"input {name!r}: a number is too large for {dtype}")
            found.append((name, array))
            continue
        if not isinstance(size, int) or not 0 <= size <= len(binary):
            raise InvalidRequest(f"input {name!r}: binary_data_size is {size!r}, and {len(binary)} bytes are left")
        found.append((name, from_bytes(name, dtype, shape, binary[:size])))
        binary = binary[size:]
    if len(binary):
        raise InvalidRequest(f"{len(binary)} bytes behind the last input")
    return found


def encode(answer: dict[str, Any], rows: numpy.ndarray) -> bytes:
    """The answer, whose one output gets these values."""
    if not numpy.isfinite(rows).all():
        raise InvalidRequest("the output has values that JSON cannot express (NaN or infinite): ask for binary_data")
    answer["outputs"][0]["data"] = rows.ravel().tolist()
    return json.dumps(answer, allow_nan=False).encode()


def parse_file(source: str, size: int, target: str) -> tuple[Asked, list[tuple[str, str, tuple[int, ...]]]]:
    """`parse` in the worker: arrays are written to a file, one after the other, and described."""
    with contextlib.suppress(MemoryError):
        return read_file(source, size, target)
    # Raised here, where the memory of the request is free again.
    raise BodyTooLarge(f"{size} bytes of JSON need more memory than is allowed: send binary tensors")


def read_file(source: str, size: int, target: str) -> tuple[Asked, list[tuple[str, str, tuple[int, ...]]]]:
    """The same, with as much memory as it takes."""
    asked, inputs = parse(memoryview(pathlib.Path(source).read_bytes()), size)
    with open(target, "wb") as file:
        for _, array in inputs:
            file.write(numpy.ascontiguousarray(array).data)
    return asked, [(name, array.dtype.str, array.shape) for name, array in inputs]


def encode_file(source: str, dtype: str, shape: tuple[int, ...], answer: dict[str, Any], target: str) -> None:
    """`encode` in the worker."""
    with contextlib.suppress(MemoryError):
        return write_file(source, dtype, shape, answer, target)
    raise InvalidRequest("the output as JSON needs more memory than is allowed: ask for binary_data")


def write_file(source: str, dtype: str, shape: tuple[int, ...], answer: dict[str, Any], target: str) -> None:
    """The same, with as much memory as it takes."""
    rows = numpy.frombuffer(pathlib.Path(source).read_bytes(), dtype).reshape(shape)
    pathlib.Path(target).write_bytes(encode(answer, rows))


def limit_memory(more: int) -> None:
    """Lets this process allocate so many bytes besides what it has. Kubernetes ends all processes of a container whose memory is used up."""
    used = re.search(r"VmData:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())
    most = (int(used[1]) << 10 if used else 0) + more
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def begin_worker(memory: int) -> None:
    """Limits the worker's memory, and lets it run until the server has ended: signals that end the server do not end the worker."""
    limit_memory(memory)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        # If the machine is short of memory, the kernel ends the worker before the server.
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
        os.nice(5)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(0)), daemon=True).start()


class MemoryFiles:
    """Two anonymous files: their descriptors, and the paths by which the worker opens them.

    They are closed at the end of the `with`, but not before what uses them has ended: another file could get their descriptors.
    """

    def __init__(self) -> None:
        self.files = [os.memfd_create(f"sluice-json-{name}") for name in ("given", "made")]
        self.given, self.made = (f"/proc/{os.getpid()}/fd/{file}" for file in self.files)
        self.user: Optional[asyncio.Future[Any]] = None

    def __enter__(self) -> MemoryFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self.user is None or self.user.done():
            self._close()
        else:
            self.user.add_done_callback(self._close)

    def _close(self, *_: object) -> None:
        for file in self.files:
            os.close(file)

    async def use(self, pool: Optional[concurrent.futures.Executor], function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function that uses the files, which runs in the pool, or in a thread if there is none. A cancelled request waits for
        its end: the files have the memory of a body."""
        self.user = asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
        return await until_done(self.user)


def write_all(file: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(file, data):]


def mapped(file: int) -> Union[mmap.mmap, bytes]:
    """The contents of a file, which stay when it is closed."""
    size = os.fstat(file).st_size
    return mmap.mmap(file, size) if size else b""


class JsonWorker:
    """Reads requests and writes answers: small ones at once, large ones in the worker, which starts when it is first needed."""

    def __init__(self, largest: int) -> None:
        """`largest`: bytes of a body."""
        self.pool: Any = None
        self.memory = max(MEMORY_TIMES * largest, MEMORY_LEAST)

    async def parse(self, body: bytearray, size: int) -> tuple[Asked, Arrays]:
        """As the function `parse`."""
        if size <= SMALL_BYTES:
            return parse(memoryview(body), size)
        with MemoryFiles() as files:
            await files.use(None, write_all, files.files[0], memoryview(body))
            asked, described = await self._run(files, parse_file, files.given, size, files.made)
            data, begin, inputs = mapped(files.files[1]), 0, []
        for name, dtype, shape in described:
            array = numpy.ndarray(shape, dtype, data, begin)
            inputs.append((name, array))
            begin += array.nbytes
        return asked, inputs

    async def encode(self, answer: dict[str, Any], rows: numpy.ndarray) -> Union[mmap.mmap, bytes]:
        """As the function `encode`."""
        if rows.size <= SMALL_ELEMENTS:
            return encode(answer, rows)
        with MemoryFiles() as files:
            await files.use(None, write_all, files.files[0], memoryview(numpy.ascontiguousarray(rows)).cast("B"))
            await self._run(files, encode_file, files.given, rows.dtype.str, rows.shape, answer, files.made)
            return mapped(files.files[1])

    async def _run(self, files: MemoryFiles, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.pool is None:
            self.pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), begin_worker, (self.memory,))
        pool = self.pool
        try:
            return await files.use(pool, function, *arguments)
        except concurrent.futures.process.BrokenProcessPool:
            # Each request that waited comes here. Only the first one finds the pool that failed; the others must not end the next one.
            if self.pool is pool:
                self.close()
            raise Unavailable("the process that reads large JSON ended, probably for lack of memory: send binary tensors") from None

    def close(self) -> None:
        """Ends the worker; a later request starts another one."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None
