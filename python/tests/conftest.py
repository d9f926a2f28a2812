"""The simulated GPU for tests. The programs of `cargo build` are in $SLUICE_BUILD, target/debug by default."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", HERE.parent.parent / "target" / "debug")).resolve()


class Simulator:
    """A simulated GPU, and programs that use it."""

    def __init__(self, folder):
        self.socket, self.driver = folder / "sim.sock", folder / "driver"
        self.driver.mkdir()
        for name in ("libcuda.so.1", "libcuda.so"):
            (self.driver / name).symlink_to(BUILD / "libcuda.so")
        self.process = subprocess.Popen([BUILD / "sluice", "sim", "--socket", self.socket])
        while not self.socket.exists():
            assert self.process.poll() is None, "the simulator ended"
            time.sleep(0.01)

    def environment(self, *, hook):
        """Of a program that finds the GPU, with or without libsluice.so."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "LD_"))}
        with_hook = {"LD_PRELOAD": str(BUILD / "libsluice.so")} if hook else {}
        return {**kept, **with_hook, "SLUICE_SIM_SOCKET": str(self.socket), "LD_LIBRARY_PATH": str(self.driver)}

    def run(self, *command, hook, label=""):
        """The JSON line that a program prints last. Python programs are named by file."""
        words = [sys.executable, HERE / command[0], *command[1:]] if str(command[0]).endswith(".py") else command
        environment = {**self.environment(hook=hook), "SLUICE_SIM_LABEL": label}
        done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    def ledger(self, label):
        """The GPU's own account of the process with this label."""
        command = [BUILD / "sluice", "sim", "ledger", "--socket", self.socket]
        rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["processes"]
        return next(row for row in rows if row["label"] == label)


@pytest.fixture(scope="session")
def simulator():
    with tempfile.TemporaryDirectory(prefix="sluice-python-") as folder:
        simulator = Simulator(pathlib.Path(folder))
        yield simulator
        simulator.process.terminate()
        simulator.process.wait()
