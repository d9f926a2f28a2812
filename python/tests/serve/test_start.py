"""The start of a server: live at once, ready when the models are captured and profiled."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from model_server import MODELS

from sluice.serve import sim
from sluice.serve.config import parse
from sluice.serve.errors import NotFound, Unavailable
from sluice.serve.service import Inference, Service

PATIENCE = 60
# A server whose models take until a file exists.
SLOW = """
import os, pathlib, sys, time
from sluice.serve import __main__, sim
prepare = sim.Backend.prepare
def slow(backend, model):
    while not pathlib.Path(os.environ["PREPARED"]).exists():
        time.sleep(0.01)
    return prepare(backend, model)
sim.Backend.prepare = slow
sys.exit(__main__.main())
"""


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def eventually(check):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if check():
                return
        except Exception:
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def slow_server(tmp_path):
    """The process, its clients, and the file for which it waits."""
    (tmp_path / "models.yaml").write_text(MODELS)
    http, grpc = free_address(), free_address()
    command = [sys.executable, "-c", SLOW, "--models", tmp_path / "models.yaml", "--http", http, "--grpc", grpc]
    process = subprocess.Popen(command, env={**os.environ, "PREPARED": str(tmp_path / "prepared")}, stdout=subprocess.PIPE, text=True)
    yield process, [tritonclient.http.InferenceServerClient(http), tritonclient.grpc.InferenceServerClient(grpc)], tmp_path / "prepared"
    process.kill()
    process.wait(PATIENCE)


def test_server_is_live_and_not_ready_while_models_are_prepared(slow_server):
    process, clients, prepared = slow_server
    for client in clients:
        eventually(client.is_server_live)
        assert not client.is_server_ready() and not client.is_model_ready("be")
        with pytest.raises(Exception, match="still being prepared"):
            client.get_model_metadata("be")
    prepared.touch()
    assert re.match("ready ", process.stdout.readline())
    assert all(client.is_server_ready() and client.is_model_ready("be") for client in clients)


def test_server_ends_in_the_middle_of_its_start(slow_server):
    process, clients, prepared = slow_server
    eventually(clients[0].is_server_live)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    prepared.touch()
    assert process.wait(PATIENCE) == 0


PROFILED = """
queue: 1
models:
  - {name: rt, class: real-time, source: {sim: {kernels: 1, us: 100}}, input: {shape: [4]}}
  - {name: be, class: best-effort, source: {sim: {kernels: 1, us: 100}}, input: {shape: [4]}}
  - {name: other, class: best-effort, source: {sim: {kernels: 1, us: 100}}, input: {shape: [4]}}
"""


def failing(name):
    """A simulated GPU on which one model fails."""
    class Backend(sim.Backend):
        def prepare(self, model):
            programs, output = super().prepare(model)
            if model.name == name:
                def fail(*_):
                    raise RuntimeError("planned")
                programs[1].launch = fail
            return programs, output
    return Backend()


@pytest.mark.parametrize("name", ["rt", "be"])
def test_profile_whose_load_fails_names_the_model_and_the_server_starts(caplog, name):
    service = Service(parse(PROFILED), failing(name))
    service.start()
    assert service.is_ready and service.executor.splits == {"rt": None}
    assert "profile failed model=rt" in caplog.text and f"{name}: model {name} failed: planned" in caplog.text
    other = service.submit(Inference("other", [("input", numpy.zeros((1, 4), "<f4"))]))
    assert other.result(PATIENCE).shape == (1, 2)
    service.close()


def test_load_of_the_profile_fits_into_the_queue(caplog):
    service = Service(parse(PROFILED))
    service.start()
    assert service.is_ready and "profile failed" not in caplog.text
    service.close()


def test_metadata_before_the_models_are_prepared_is_unavailable():
    service = Service(parse(MODELS))
    with pytest.raises(Unavailable):
        service.model_metadata("be")
    with pytest.raises(NotFound):
        service.model_metadata("none")
