"""`sluice-client`: sends requests to a server of the open inference protocol and prints latencies and throughput.

It uses tritonclient, NVIDIA's client library, so it measures any such server: `pip install 'tritonclient[grpc]'`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import time
from typing import Any, Optional

import numpy

ARRIVALS = ("continuous", "periodic", "poisson")
READY_S = 120


@dataclasses.dataclass(frozen=True)
class Load:
    """Requests of `rows` rows. Continuous: the next one follows the answer. Otherwise `rate` a second; `jitter`: a pause differs from the
    period by up to this part of it. `start`: Unix time, 0 for now."""

    arrivals: str = "continuous"
    rate: float = 10.0
    seconds: float = 10.0
    rows: int = 1
    jitter: float = 0.0
    start: float = 0.0
    seed: int = 0


class Client:
    """A connection to a model with one input."""

    def __init__(self, url: str, model: str) -> None:
        import tritonclient.grpc as triton

        self.triton, self.model = triton, model
        self.connection = triton.InferenceServerClient(url)
        wait_until_ready(self.connection, model)
        self.input = self.connection.get_model_metadata(model).inputs[0]
        self.rows: dict[int, Any] = {}

    def prepare(self, rows: int) -> Any:
        """The input of a request: the same random numbers each time."""
        if rows not in self.rows:
            from tritonclient.utils import triton_to_np_dtype

            shape = [rows, *self.input.shape[1:]]
            tensor = self.triton.InferInput(self.input.name, shape, self.input.datatype)
            tensor.set_data_from_numpy(numpy.random.default_rng(0).integers(0, 2, shape).astype(triton_to_np_dtype(self.input.datatype)))
            self.rows[rows] = tensor
        return self.rows[rows]

    def infer(self, rows: int) -> bytes:
        """The first output of one request."""
        answer = self.connection.infer(self.model, [self.prepare(rows)])
        return answer.as_numpy(answer.get_response().outputs[0].name).tobytes()

    def run(self, load: Load) -> dict[str, Any]:
        """Latencies in ms, counted from the time at which a request was due, and the rows a second."""
        self.infer(load.rows)
        time.sleep(max(0.0, load.start - time.time()))
        chance, latencies, answers = random.Random(load.seed), [], set()
        begin = time.perf_counter()
        due = begin + (0.0 if load.arrivals == "continuous" else chance.uniform(0, 1 / load.rate))
        while due < begin + load.seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            answers.add(self.infer(load.rows))
            now = time.perf_counter()
            latencies.append((now, 1000 * (now - due)))
            due = next_due(load, chance, due, now)
        return {**summary([latency for _, latency in latencies]), "kinds": len(answers), "rate": load.rows * sum(at < begin + load.seconds for at, _ in latencies) / load.seconds}


def next_due(load: Load, chance: random.Random, due: float, now: float) -> float:
    """When the next request is due. Periods that have passed are left out; Poisson arrivals wait."""
    if load.arrivals == "continuous":
        return now
    if load.arrivals == "poisson":
        return due + chance.expovariate(load.rate)
    due += (1 + chance.uniform(-load.jitter, load.jitter)) / load.rate
    return due if due > now - 1 / load.rate else now


def wait_until_ready(connection: Any, model: str) -> None:
    """Returns when the server serves the model."""
    end = time.monotonic() + READY_S
    while True:
        try:
            if connection.is_model_ready(model):
                return
            why: Optional[Exception] = None
        except Exception as error:
            why = error
        if time.monotonic() > end:
            raise SystemExit(f"model {model} is not ready: {why}")
        time.sleep(0.1)


def summary(latencies: list[float]) -> dict[str, Any]:
    """Percentiles in ms."""
    ordered = sorted(latencies)
    return {"n": len(ordered), **{f"p{part}_ms": ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in (50, 90, 99) if ordered}, "latencies_ms": latencies}


def main() -> int:
    parser = argparse.ArgumentParser(prog="sluice-client", description=__doc__)
    parser.add_argument("--url", default="127.0.0.1:8001", help="of gRPC")
    parser.add_argument("--model", required=True, help="its class decides whether the load is real-time or best-effort")
    parser.add_argument("--arrivals", choices=ARRIVALS, default="continuous")
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rows", type=int, default=1, help="of a request")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rate <= 0 or options.rows < 1:
        parser.error("--rate and --rows are positive")
    told = Client(options.url, options.model).run(Load(options.arrivals, options.rate, options.seconds, options.rows))
    if options.json:
        print(json.dumps(told))
    elif told["n"]:
        print(f"{options.model}: {told['n']} requests, p50 {told['p50_ms']:.3f} ms, p99 {told['p99_ms']:.3f} ms, {told['rate']:.1f} rows/s")
    else:
        print(f"{options.model}: no request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
