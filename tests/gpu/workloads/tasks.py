"""Latency-critical tasks beside a best-effort one in one process, by the Python package `sluice`. Prints {"ready"}.

Each line of input is a block: {"requests": N, "seconds": S, "beside": true|false}. Latency-critical tasks of five kernels of 100 us with a wait of
the host after each are submitted at random times, and best-effort tasks of kernels of 1 ms are always there if `beside`. Without
requests the best effort runs for S seconds alone. Answered by one JSON line.
"""

import argparse
import json
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "python"))

import sluice  # noqa: E402
from spin import Spin  # noqa: E402

KERNEL_US, KERNELS = 1000, 20
STEPS, STEP_US = 5, 100


class Training:
    """Best-effort tasks, two of them submitted at any time, until it is stopped."""

    def __init__(self, scheduler, spin):
        self.scheduler, self.kernels, self.stopped = scheduler, 0, threading.Event()
        self.task = scheduler.best_effort()(self.run)
        self.spin = spin
        self.begun = time.perf_counter()
        self.futures = [scheduler.submit(self.task) for _ in range(2)]
        self.thread = threading.Thread(target=self.feed)
        self.thread.start()

    def run(self):
        for _ in range(KERNELS):
            self.spin(KERNEL_US, sluice.current_stream())

    def feed(self):
        while not self.stopped.is_set():
            self.futures.pop(0).result(timeout=60)
            self.kernels += KERNELS
            self.futures.append(self.scheduler.submit(self.task))

    def stop(self):
        """Kernels per second."""
        rate = self.kernels / (time.perf_counter() - self.begun)
        self.stopped.set()
        self.thread.join()
        for future in self.futures:
            future.result(timeout=60)
        return rate


def block(scheduler, spin, chance, requests, seconds, beside):
    @scheduler.latency_critical()
    def answer():
        for _ in range(STEPS):
            spin(STEP_US, sluice.current_stream())
            spin.wait(sluice.current_stream())

    before = scheduler.get_metrics()["preemptions"]
    training = Training(scheduler, spin) if beside else None
    if beside:
        time.sleep(0.1)
    latencies = []
    for _ in range(requests):
        time.sleep(chance.uniform(0.005, 0.015))
        begun = time.perf_counter()
        scheduler.submit(answer).result(timeout=60)
        latencies.append((time.perf_counter() - begun) * 1e6)
    if not requests:
        time.sleep(seconds)
    rate = training.stop() if training else 0.0
    metrics = scheduler.get_metrics()
    kept = ("mode", "reason", "preemption_level", "hint")
    return {"latencies_us": latencies, "kernels_per_s": rate, "preemptions": metrics["preemptions"] - before, **{name: metrics[name] for name in kept}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preemption", choices=("none", "host", "device"), required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with sluice.GPUScheduler(sluice.Config(preemption=options.preemption)) as scheduler:
        spin = scheduler.submit(scheduler.latency_critical()(Spin)).result(timeout=60)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(block(scheduler, spin, chance, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
