"""A server on the simulated GPU of `sluice.serve.sim`, as a process of its own."""

import contextlib
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import threading

MODELS = """
split: 32
queue: 4
models:
  - {name: rt, class: real-time, source: {sim: {kernels: 3, us: 100}}, input: {shape: [4], dtype: FP16}}
  - {name: rt-long, class: real-time, source: {sim: {kernels: 20, us: 5000}}, input: {shape: [4], dtype: FP16}}
  - {name: be, class: best-effort, source: {sim: {kernels: 5, us: 100}}, input: {shape: [4]}, batches: [1, 2, 4], delay_ms: 20}
  - {name: slow, class: best-effort, source: {sim: {kernels: 100, us: 5000}}, input: {shape: [4]}}
"""


class Server:
    """`python -m sluice.serve` with the models of a text. `http` and `grpc` are its addresses."""

    def __init__(self, folder, models):
        file = folder / "models.yaml"
        file.write_text(models)
        command = [sys.executable, "-m", "sluice.serve", "--models", file, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        ports = re.fullmatch(r"ready http=(\d+) grpc=(\d+)\n", lines.get(timeout=60))
        assert ports, "the server did not start"
        self.http, self.grpc = (f"127.0.0.1:{port}" for port in ports.groups())

    def end(self):
        """The exit status after a request to end."""
        self.process.terminate()
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def serving(models):
    """A server with the models of a text, which ends without an error."""
    with tempfile.TemporaryDirectory(prefix="sluice-serve-") as folder:
        server = Server(pathlib.Path(folder), models)
        yield server
        assert server.end() == 0
