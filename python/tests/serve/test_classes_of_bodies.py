"""Bodies and JSON of best-effort requests leave real-time requests their part."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from model_server import serving
from test_bodies import tensor

PATIENCE = 60
MODELS = """
split: 32
max_body_mib: 4
models:
  - {name: rt, class: real-time, source: {sim: {kernels: 1, us: 100}}, input: {shape: [4]}}
  - {name: be, class: best-effort, source: {sim: {kernels: 1, us: 100}}, input: {shape: [4]}}
"""


def post(server, model, body, timeout=PATIENCE):
    with urllib.request.urlopen(f"http://{server.http}/v2/models/{model}/infer", data=body, timeout=timeout) as answer:
        return json.loads(answer.read())


@pytest.fixture
def server():
    with serving(MODELS) as server:
        yield server


def refusal(server, model, body):
    """The status with which a body that is no request is refused."""
    with pytest.raises(urllib.error.HTTPError) as error:
        post(server, model, body)
    return error.value.code


def test_real_time_bodies_have_room_when_those_of_best_effort_have_used_theirs(server):
    host, _, port = server.http.partition(":")
    most = 4 << 20
    with contextlib.ExitStack() as stack:
        end = time.monotonic() + PATIENCE
        while refusal(server, "be", b" " * most) != 429:
            assert time.monotonic() < end
            # It lacks its last byte.
            connection = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"POST /v2/models/be/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % most + b" " * (most - 1))
        # The largest body.
        assert post(server, "rt", tensor(b"1,1,1,1", [1, 4]) + b" " * (most - 1000))["outputs"][0]["data"] == [4, 1]


def json_processes(server):
    """The processes of the server that read JSON."""
    server = server.process.pid
    children = [int(each) for task in pathlib.Path(f"/proc/{server}/task").iterdir() for each in (task / "children").read_text().split()]
    return [child for child in children if b"spawn_main" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()]


def test_real_time_json_is_read_while_the_process_for_that_of_best_effort_is_busy(server):
    large = tensor(b"1,1,1,1", [1, 4]) + b" " * (1 << 20)
    post(server, "be", large)
    busy = json_processes(server)
    assert len(busy) == 1
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(post(server, "be", large)))
    try:
        for each in busy:
            os.kill(each, signal.SIGSTOP)
        waiting.start()
        assert post(server, "rt", large, timeout=20)["outputs"][0]["data"] == [4, 1]
        assert not answers
    finally:
        for each in busy:
            os.kill(each, signal.SIGCONT)
        waiting.join()
    assert answers
