#!/usr/bin/env python3
"""Time of the pod-manager's event loop without and with a reader of its trace, for several builds in turn.

Usage: tools/benchmarks/trace-cost.py SECONDS ROUNDS NAME=FOLDER ...

Each folder has the programs of one build: sluice, libsluice.so, libcuda.so. A name that ends in `+reader` is measured with a reader. The load is
two trainings and a service of 1 ms each 10 ms on the simulated GPU, with driver controls and by token. The manager runs with real-time priority
(`chrt -r 1`, root), so that other programs of the machine do not count.
"""

import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

CLIENTS = """
clients:
  - { name: a, request: 0.3, memory: 1Gi }
  - { name: b, request: 0.3, memory: 1Gi }
  - { name: lc, request: 0.3, memory: 1Gi, class: latency-critical }
"""
LOADS = {"a": ["be"], "b": ["be"], "lc": ["lc", "--period-us", "10000", "--duration-us", "1000"]}
WARM_UP = 2


def measure(build, controls, reader, seconds):
    """Time of a round in µs, rounds and milliseconds of the loop in a second."""
    with tempfile.TemporaryDirectory(prefix="sluice-trace-cost-") as name:
        folder, started = pathlib.Path(name), []

        def start(*command, env=None):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started.append(subprocess.Popen([str(word) for word in command], env=env, **quiet))

        (folder / "clients.yaml").write_text(CLIENTS)
        (folder / "driver").mkdir()
        (folder / "driver" / "libcuda.so.1").symlink_to(build / "libcuda.so")
        gpu, manager, trace = folder / "sim.sock", folder / "tenants" / "gpu.sock", folder / "operator" / "gpu.trace"
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        try:
            start(build / "sluice", "sim", "--socket", gpu)
            wait_for(gpu)
            start("chrt", "-r", "1", build / "sluice", "pod-manager", "--socket", manager, "--resource-file", folder / "clients.yaml",
                  "--controls", controls, "--metrics", address, *(["--trace", trace] if reader else []))
            wait_for(manager)
            kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLUICE_", "LD_"))}
            for client, words in LOADS.items():
                start(build / "sluice", "load", *words, env={
                    **kept, "LD_PRELOAD": str(build / "libsluice.so"), "LD_LIBRARY_PATH": str(folder / "driver"),
                    "SLUICE_SIM_SOCKET": str(gpu), "SLUICE_SOCKET": str(manager), "SLUICE_CLIENT": client})
            time.sleep(WARM_UP)
            if reader:
                start(build / "sluice", "trace", "--socket", trace, "--seconds", seconds + 1, "-o", "/dev/null")
            before = rounds(address)
            time.sleep(seconds)
            after = rounds(address)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
        spent, count = after[0] - before[0], after[1] - before[1]
        return 1e6 * spent / count, count / seconds, 1e3 * spent / seconds


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def rounds(address):
    """Seconds and number of the loop's rounds so far."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        series = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return [float(series[f"sluice_event_loop_seconds_{part}"]) for part in ("sum", "count")]


def main():
    seconds, count = float(sys.argv[1]), int(sys.argv[2])
    builds = dict(word.split("=", 1) for word in sys.argv[3:])
    print("controls   build            µs a round (each run)             rounds/s   ms/s")
    for controls in ("simulated", "off"):
        runs = {name: [] for name in builds}
        for turn in range(count):
            names = list(builds) if turn % 2 == 0 else list(builds)[::-1]
            for name in names:
                runs[name].append(measure(pathlib.Path(builds[name]).resolve(), controls, name.endswith("+reader"), seconds))
        for name, figures in runs.items():
            middle = [statistics.median(row[column] for row in figures) for column in range(3)]
            each = ", ".join(f"{row[0]:.1f}" for row in figures)
            print(f"{controls:10} {name:16} {middle[0]:6.1f} ({each}) {middle[1]:10.0f} {middle[2]:6.1f}", flush=True)


if __name__ == "__main__":
    main()
