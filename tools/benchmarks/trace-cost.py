#!/usr/bin/env python3
"""What the pod-manager's trace costs, in the time of the event loop and in what the hook adds to a launch.

Usage: tools/benchmarks/trace-cost.py SECONDS BLOCKS FOLDER [--without FOLDER] [--json FILE]

FOLDER has the programs of a build: sluice, sluice-dev, libsluice.so, libcuda.so; `--without` names one whose manager records no traces. Each
block has each arm once, in an order that a fixed seed shuffles:

  off       the manager has no trace socket
  again     the same once more; its difference to `off` is the noise
  socket    the manager has a trace socket, and no reader is connected
  reader    a reader is connected
  without   the build of `--without`, no trace socket

In each run the event loop is measured for SECONDS beside two trainings and a service of 1 ms each 10 ms on the simulated GPU. Then these end, and the
worker of `sluice-dev bench hook` measures the launch path under the same manager. All of it happens once with driver controls and once by
token. The manager and the worker run with real-time priority (`chrt -r 1`, root), so that other programs of the machine count less.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

CLIENTS = """
clients:
  - { name: a, request: 0.3, memory: 1Gi }
  - { name: b, request: 0.3, memory: 1Gi }
  - { name: lc, request: 0.3, memory: 1Gi, class: latency-critical }
  - { name: bench, request: 0.1, memory: 1Gi }
"""
LOADS = {"a": ["be"], "b": ["be"], "lc": ["lc", "--period-us", "10000", "--duration-us", "1000"]}
# Processes that measure launches, one after the other, and rounds of four blocks of launches in each.
WORKERS, ROUNDS = 9, "40"
WARM_UP = 2
REAL_TIME = ["chrt", "-r", "1"]
SEED = 37
# What is measured in a run, with its unit.
FIGURES = {"round_us": "µs a round", "rounds_per_s": "rounds/s", "loop_ms_per_s": "ms/s", "hook_added_ns": "ns a launch", "hook_noise_ns": "ns"}


class Run:
    """The programs of one run, and where they meet."""

    def __init__(self, build, folder):
        self.build, self.folder, self.started = build, folder, []
        self.gpu, self.manager, self.trace = folder / "sim.sock", folder / "tenants" / "gpu.sock", folder / "operator" / "gpu.trace"
        (folder / "clients.yaml").write_text(CLIENTS)
        (folder / "driver").mkdir()
        (folder / "driver" / "libcuda.so.1").symlink_to(build / "libcuda.so")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    def start(self, *command, env=None):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.started.append(subprocess.Popen([str(word) for word in command], env=env, **quiet))
        return self.started[-1]

    def environment(self, client, **more):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLUICE_", "LD_"))}
        own = {"LD_LIBRARY_PATH": self.folder / "driver", "SLUICE_SIM_SOCKET": self.gpu, "SLUICE_SIM_LABEL": client,
               "SLUICE_SOCKET": self.manager, "SLUICE_CLIENT": client}
        return {**kept, **{key: str(value) for key, value in {**own, **more}.items()}}

    def rounds(self):
        """Seconds and number of the loop's rounds so far."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            series = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
        return [float(series[f"sluice_event_loop_seconds_{part}"]) for part in ("sum", "count")]

    def launches(self):
        """What the worker of `bench hook` measured."""
        command = [*REAL_TIME, self.build / "sluice-dev", "bench", "hook-worker", "--hook", self.build / "libsluice.so", "--rounds", ROUNDS]
        ran = subprocess.run([str(word) for word in command], env=self.environment("bench"), capture_output=True, text=True, timeout=120)
        if ran.returncode:
            raise SystemExit(f"bench hook-worker: {ran.stderr}")
        return json.loads(ran.stdout.splitlines()[-1])[0]

    def end(self):
        for process in reversed(self.started):
            process.terminate()
            process.wait()


def measure(build, arm, controls, seconds):
    with tempfile.TemporaryDirectory(prefix="sluice-trace-cost-") as name:
        run = Run(build, pathlib.Path(name))
        try:
            run.start(build / "sluice", "sim", "--socket", run.gpu)
            wait_for(run.gpu)
            trace = ["--trace", run.trace] if arm in ("socket", "reader") else []
            run.start(*REAL_TIME, build / "sluice", "pod-manager", "--socket", run.manager, "--resource-file", run.folder / "clients.yaml",
                      "--controls", controls, "--metrics", run.address, *trace)
            wait_for(run.manager)
            loads = [run.start(build / "sluice", "load", *words, env=run.environment(client, LD_PRELOAD=build / "libsluice.so"))
                     for client, words in LOADS.items()]
            reader = None
            if arm == "reader":
                wait_for(run.trace)
                reader = run.start(build / "sluice", "trace", "--socket", run.trace, "--seconds", 600, "-o", "/dev/null")
            time.sleep(WARM_UP)
            began, before = time.monotonic(), run.rounds()
            time.sleep(seconds)
            after, took = run.rounds(), time.monotonic() - began
            for process in loads:
                process.terminate()
                process.wait()
            workers = [run.launches() for _ in range(WORKERS)]
            # A reader that has left would make the arm one without a reader.
            if reader and reader.poll() is not None:
                raise SystemExit("the reader of the trace has ended")
        finally:
            run.end()
    spent, count = after[0] - before[0], after[1] - before[1]
    return {"round_us": 1e6 * spent / count, "rounds_per_s": count / took, "loop_ms_per_s": 1e3 * spent / took,
            "hook_added_ns": middle(workers, lambda launch: launch["added_ns"]["p50"]),
            "hook_noise_ns": middle(workers, lambda launch: launch["noise_ns"]),
            "hooked_ns": middle(workers, lambda launch: launch["hooked_ns"]["p50"]),
            "bare_ns": middle(workers, lambda launch: launch["bare_ns"]["p50"])}


def middle(workers, figure):
    return statistics.median(figure(launch) for launch in workers)


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def summary(runs):
    """The median of each arm, and the median of its differences to `off` of the same block, for each figure."""
    rows = {}
    for arm, figures in runs.items():
        rows[arm] = {}
        for figure in FIGURES:
            values = [run[figure] for run in figures]
            more = [value - off[figure] for value, off in zip(values, runs["off"], strict=True)]
            rows[arm][figure] = {"median": statistics.median(values), "more_than_off": statistics.median(more), "least": min(more), "most": max(more)}
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float)
    parser.add_argument("blocks", type=int)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--without", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    builds = dict.fromkeys(["off", "again", "socket", "reader"], given.folder.resolve())
    if given.without:
        builds["without"] = given.without.resolve()
    order, results = random.Random(SEED), {}
    began = datetime.datetime.now(datetime.timezone.utc)
    for controls, by in (("simulated", "driver controls"), ("off", "token")):
        runs = {arm: [] for arm in builds}
        for _ in range(given.blocks):
            for arm in order.sample(list(builds), len(builds)):
                runs[arm].append(measure(builds[arm], arm, controls, given.seconds))
        rows = summary(runs)
        results[by] = {"summary": rows, "runs": runs}
        print(f"\n{by}: median of {given.blocks} runs (more than off in the same block: median, least to most)")
        for figure, unit in FIGURES.items():
            for arm, row in rows.items():
                cell = row[figure]
                print(f"  {unit:12} {arm:8} {cell['median']:9.2f} ({cell['more_than_off']:+.2f}, {cell['least']:+.2f} to {cell['most']:+.2f})", flush=True)
    if given.json:
        facts = {
            "command": f"tools/benchmarks/trace-cost.py {given.seconds:g} {given.blocks} FOLDER" + (" --without FOLDER" if given.without else ""),
            "date": began.isoformat(timespec="seconds"), "cores": os.cpu_count(), "load_at_the_end": os.getloadavg()[0]}
        given.json.write_text(json.dumps({**facts, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
