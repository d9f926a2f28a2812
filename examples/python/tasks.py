"""Latency-critical requests beside a best-effort training in one process.

    cargo xtask build --profile release      # target/release/libsluice.so
    pip install ./python
    LD_PRELOAD=$PWD/target/release/libsluice.so python examples/python/tasks.py

The training submits kernels of a millisecond. Requests arrive meanwhile and do not wait for them. The kernels only occupy the GPU: a
PyTorch program writes `model(batch)` in their place, because its current stream is that of the task. Without libsluice.so only stream
priorities help; without a GPU the scheduler says so, and this program needs one.
"""

import json
import time

from spin import Spin

import sluice

REQUESTS, STEPS, KERNELS = 20, 10, 20


def main():
    with sluice.GPUScheduler() as scheduler:
        spin = scheduler.submit(scheduler.latency_critical()(Spin)).result(timeout=60)

        @scheduler.latency_critical(priority=sluice.Priority.HIGH, slo_ms=10)
        def answer(question):
            stream = sluice.current_stream()
            for _ in range(5):
                spin(100, stream)
                spin.wait(stream)  # A service that reads a result and continues.
            return len(question)

        @scheduler.best_effort()
        def train(step):
            for _ in range(KERNELS):
                spin(1000, sluice.current_stream())
            return step

        steps = [scheduler.submit(train, step) for step in range(STEPS)]
        for _ in range(REQUESTS):
            time.sleep(0.005)
            assert scheduler.submit(answer, "how long?").result(timeout=10) == 9
        assert [step.result(timeout=60) for step in steps] == list(range(STEPS))
        print(json.dumps(scheduler.get_metrics()))


if __name__ == "__main__":
    main()
