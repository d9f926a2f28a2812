"""Requests whose clients vanish: they do not run, and leave their places in the queue and the memory of their bodies to others."""

import contextlib
import json
import socket
import struct
import threading
import time

import grpc
import numpy
import pytest
from in_process import Serving

from sluice.serve import http_api, messages, sim
from sluice.serve.bodies import Bodies
from sluice.serve.config import BEST_EFFORT, CLASSES, parse
from sluice.serve.errors import QueueFull
from sluice.serve.executor import Executor
from sluice.serve.queues import Request
from sluice.serve.service import Service

PATIENCE = 60
ROW = 200_000
MODELS = """
split: 32
queue: 2
max_body_mib: 1
models:
  - {name: real-time, class: real-time, source: {sim: {kernels: 1, us: 100}}, input: {shape: [200000]}}
  - {name: best-effort, class: best-effort, source: {sim: {kernels: 1, us: 100}}, input: {shape: [200000]}}
"""


class Held(sim.Backend):
    """A GPU on which each batch runs until it is released. `began`: the first value of each."""

    def __init__(self):
        super().__init__()
        self.began, self.released = [], threading.Event()

    def prepare(self, model):
        programs, output = super().prepare(model)
        for program in programs.values():
            program.begin = self.begin_of(program.begin)
        return programs, output

    def begin_of(self, begin):
        def held(rows):
            self.began.append(float(rows[0].flat[0]))
            assert self.released.wait(PATIENCE)
            begin(rows)
        return held


def eventually(check):
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def held(monkeypatch):
    """A server whose GPU is held, and the bodies that it counts."""
    counted = []

    class Counted(Bodies):
        def __init__(self, most):
            super().__init__(most)
            counted.append(self)

    monkeypatch.setattr(http_api, "Bodies", Counted)
    backend = Held()
    with Serving(Service(parse(MODELS), backend)) as serving:
        serving.backend, serving.bodies = backend, counted[0]
        try:
            yield serving
        finally:
            backend.released.set()


def ask_http(held, model, value):
    """A request of one row of this value, in binary. The result is the connection."""
    raw = numpy.full(ROW, value, "<f4").tobytes()
    head = json.dumps({"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, ROW], "parameters": {"binary_data_size": len(raw)}}]}).encode()
    host, _, port = held.http.partition(":")
    connection = socket.create_connection((host, int(port)), PATIENCE)
    connection.sendall(
        b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
        % (model.encode(), len(head), len(head) + len(raw)) + head + raw)
    return connection


def ask_grpc(held, model, value):
    request = messages.CLASSES["ModelInferRequest"](model_name=model, raw_input_contents=[numpy.full(ROW, value, "<f4").tobytes()])
    request.inputs.add(name="input", datatype="FP32", shape=[1, ROW])
    channel = grpc.insecure_channel(held.grpc)
    call = channel.unary_unary(f"/{messages.SERVICE}/ModelInfer").future(request.SerializeToString())
    # The call ends if nothing refers to it.
    channel.call = call
    return channel


ASK = {"http": ask_http, "grpc": ask_grpc}


@pytest.mark.parametrize("kind", ASK)
@pytest.mark.parametrize("model", CLASSES)
def test_waiting_request_of_a_client_that_vanishes_does_not_run_and_leaves_its_place(held, kind, model):
    length = held.service.executor.queues.length
    with contextlib.closing(ASK[kind](held, model, 1)):
        eventually(lambda: held.backend.began == [1])
        for _ in range(3):
            # As many as may wait.
            gone = [ASK[kind](held, model, 2) for _ in range(2)]
            eventually(lambda: length(model) == 2)
            for each in gone:
                each.close()
            eventually(lambda: length(model) == 0)
        with contextlib.closing(ASK[kind](held, model, 3)):
            eventually(lambda: length(model) == 1)
            held.backend.released.set()
            eventually(lambda: held.backend.began == [1, 3])
            eventually(lambda: length(model) == 0)


def test_body_of_a_waiting_request_is_released_when_the_client_vanishes_and_that_of_a_running_one_when_it_has_ended(held):
    used = held.bodies.used
    running = ask_http(held, BEST_EFFORT, 1)
    eventually(lambda: held.backend.began == [1] and used[BEST_EFFORT] > 4 * ROW)
    of_one = used[BEST_EFFORT]
    waiting = ask_http(held, BEST_EFFORT, 2)
    eventually(lambda: used[BEST_EFFORT] == 2 * of_one)
    running.close()
    waiting.close()
    eventually(lambda: used[BEST_EFFORT] == of_one)
    # Its rows are still used.
    time.sleep(0.2)
    assert used[BEST_EFFORT] == of_one
    held.backend.released.set()
    eventually(lambda: used[BEST_EFFORT] == 0)


@pytest.mark.parametrize("reset", [False, True])
def test_client_that_vanishes_leaves_no_traceback_in_the_log(held, caplog, reset):
    """In the middle of its body, and while its request waits or runs."""
    host, _, port = held.http.partition(":")
    partial = socket.create_connection((host, int(port)), PATIENCE)
    partial.sendall(b"POST /v2/models/best-effort/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + b" " * 500)
    eventually(lambda: held.bodies.used[BEST_EFFORT] == 500)
    gone = [partial, ask_http(held, BEST_EFFORT, 1)]
    eventually(lambda: held.backend.began == [1])
    gone.append(ask_http(held, BEST_EFFORT, 2))
    eventually(lambda: held.service.executor.queues.length(BEST_EFFORT) == 1)
    for each in gone:
        if reset:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    held.backend.released.set()
    eventually(lambda: held.bodies.used[BEST_EFFORT] == 0)
    with contextlib.closing(ask_http(held, BEST_EFFORT, 3)) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert caplog.text == ""


def test_cancelled_requests_make_room_in_the_queue_and_fill_no_batch():
    model, = (each for each in parse(MODELS.replace("[200000]", "[1]")).models if each.klass == BEST_EFFORT)
    executor = Executor(1)
    for _ in range(3):
        request = Request(model, numpy.zeros((1, 1), numpy.float32), 0.0)
        executor.submit(request)
        with pytest.raises(QueueFull):
            executor.submit(Request(model, request.rows, 0.0))
        assert request.future.cancel()
    assert executor.queues.length(BEST_EFFORT) == 0
    executor.close()
