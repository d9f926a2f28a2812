"""`sluice trace` on the simulated GPU, read by Perfetto's trace processor."""

import signal
import socket
import subprocess
import time
import urllib.request

import perfetto_engine
import pytest
from conftest import BUILD

CLIENTS = """
clients:
  - { name: train-a, request: 0.3, memory: 1Gi }
  - { name: train-b, request: 0.3, memory: 1Gi }
  - { name: serve, request: 0.3, memory: 1Gi, class: latency-critical }
"""

SLICES = """
select slice.name, slice.ts, slice.dur, thread.name as track, process.name as client
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
"""
PROCESS_SLICES = """
select slice.name, slice.dur, process.name as client
from slice join process_track on slice.track_id = process_track.id join process using (upid)
"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


class Manager:
    """A pod-manager of the simulated GPU, with two trainings and a service."""

    def __init__(self, simulator, folder):
        self.socket, self.trace = folder / "tenants" / "gpu.sock", folder / "operator" / "gpu.trace"
        (folder / "clients.yaml").write_text(CLIENTS)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        command = ["pod-manager", "--socket", self.socket, "--resource-file", folder / "clients.yaml",
                   "--controls", "simulated", "--trace", self.trace, "--metrics", self.address]
        self.process = subprocess.Popen([BUILD / "sluice", *command])
        while not self.trace.exists() or not self.socket.exists():
            assert self.process.poll() is None, "the manager ended"
            time.sleep(0.01)
        self.loads = [self._load(simulator, name, *words) for name, *words in (
            ("train-a", "be"), ("train-b", "be"), ("serve", "lc", "--period-us", "20000", "--duration-us", "2000"))]
        for load in self.loads:
            load.stdout.readline()

    def _load(self, simulator, name, *words):
        environment = {**simulator.environment(hook=True), "SLUICE_SOCKET": str(self.socket), "SLUICE_CLIENT": name}
        return subprocess.Popen([BUILD / "sluice", "load", *words], env=environment, stdout=subprocess.PIPE)

    def metrics(self):
        """All series by name with labels."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            rows = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {series: float(value) for series, value in rows}

    def stop(self):
        for process in [*self.loads, self.process]:
            process.send_signal(signal.SIGTERM)
            process.wait()


@pytest.fixture
def manager(simulator, tmp_path):
    manager = Manager(simulator, tmp_path)
    yield manager
    manager.stop()


def test_trace_opens_in_perfetto_and_agrees_with_the_metrics(manager, tmp_path):
    trace = tmp_path / "t.json"
    before = manager.metrics()
    subprocess.run([BUILD / "sluice", "trace", "--socket", manager.trace, "--seconds", "3", "-o", trace], check=True)
    after = manager.metrics()
    slices, process_slices, errors = perfetto_engine.query(trace, SLICES, PROCESS_SLICES, ERRORS)
    assert errors == []
    grown = {series: after[series] - before.get(series, 0) for series in after}

    quanta = [row for row in slices if row["name"] == "quantum"]
    assert {row["client"] for row in quanta} == {"train-a", "train-b"}
    spans = sorted((row["ts"], row["ts"] + row["dur"]) for row in quanta)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:])), "one training at a time"
    length = 3e9
    assert 0.8 * length <= sum(end - begin for begin, end in spans) <= 1.05 * length
    # The metrics were read before and after the trace, so they have counted a little more.
    turns = sum(row["name"] == "granted" and row["client"].startswith("train") for row in slices)
    assert 0 < turns <= grown["sluice_turns_total"] <= turns + 20
    for control in ("stop", "start"):
        count = sum(row["name"] == control for row in slices)
        assert 0 < count <= grown[f'sluice_controls_total{{control="{control}",outcome="done"}}'] <= count + 20

    requests = [row for row in process_slices if row["name"] == "request"]
    assert {row["client"] for row in requests} == {"serve"}
    assert 50 <= len(requests) <= grown['sluice_request_seconds_count{client="serve"}']
    assert sum(row["dur"] for row in slices if row["name"] == "work" and row["client"] == "serve") > 0
    on_gpu = {row["name"] for row in process_slices if row["client"] == "GPU"}
    assert on_gpu == {"train-a", "train-b", "serve"}


def test_trace_socket_is_for_the_managers_user_only(manager):
    assert manager.trace.stat().st_mode & 0o777 == 0o600
    refused = subprocess.run(
        [BUILD / "sluice", "trace", "--socket", manager.socket, "--seconds", "1", "-o", "-"], capture_output=True, text=True)
    assert refused.returncode == 1 and "cannot read a trace from" in refused.stderr
