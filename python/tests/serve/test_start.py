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
def slow_server(tmp_path, request):
    """The process, its clients, and the file for which it waits. The parameter is another program."""
    (tmp_path / "models.yaml").write_text(MODELS)
    http, grpc = free_address(), free_address()
    command = [sys.executable, "-c", getattr(request, "param", SLOW), "--models", tmp_path / "models.yaml", "--http", http, "--grpc", grpc]
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


# A server that is asked to end during its start, which ends while requests are still served.
STARTS_DURING_THE_END = SLOW.replace("sim.Backend.prepare = slow", """sim.Backend.prepare = slow
from sluice.serve import grpc_api
stop = grpc_api.Server.stop
def stop_later(server, grace):
    pathlib.Path(os.environ["PREPARED"]).touch()
    time.sleep(1)
    stop(server, grace)
grpc_api.Server.stop = stop_later""")


@pytest.mark.parametrize("slow_server", [STARTS_DURING_THE_END], indirect=True, ids=["slow stop"])
def test_server_whose_start_ends_during_its_end_is_not_reported_as_ready(slow_server):
    process, clients, _ = slow_server
    eventually(clients[0].is_server_live)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert process.stdout.read() == ""


def started_by(program, folder):
    """The end of a program that changes the server and starts it with the models of `PROFILED`."""
    (folder / "models.yaml").write_text(PROFILED)
    command = [sys.executable, "-c", program, "--models", folder / "models.yaml", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


# A server on whose GPU nothing runs any more after the first kernel.
BROKEN = """
import sys
from sluice.serve import __main__, sim
def fail(program, piece, split):
    error = RuntimeError("planned")
    error.fatal = True
    raise error
sim.Program.launch = fail
sys.exit(__main__.main())
"""


def test_server_whose_gpu_fails_during_the_profile_ends_with_an_error(tmp_path):
    done = started_by(BROKEN, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "start failed error=the GPU failed: planned" in done.stderr


# A server whose GPU refuses a model when it is prepared.
REFUSED = """
import sys
from sluice.serve import __main__, sim
from sluice.serve.config import ConfigError
def refuse(backend, model):
    raise ConfigError([f"model {model.name}: planned"])
sim.Backend.prepare = refuse
sys.exit(__main__.main())
"""


def test_server_with_a_model_that_cannot_be_prepared_ends_as_with_a_wrong_file(tmp_path):
    done = started_by(REFUSED, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "model rt: planned" in done.stderr and "Traceback" not in done.stderr


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
