#!/usr/bin/env python3
"""How well the next request, and the preparation of a request, are predicted: today's smoothing, an online linear model, and a random forest.

    cargo build --release -p sluice-hook-core --example predict_arrivals
    python3 -m venv VENV && VENV/bin/pip install numpy scikit-learn
    VENV/bin/python3 tools/predictors/measure.py [--json FILE]        as root: threads are recorded with a real-time priority

Series of requests: the arrival models of `sluice sim run` (crates/policy-sim), and requests of real threads of this machine, which pace themselves,
prepare an input on the CPU and copy it. A prediction is a time with a margin; all predictors have the hook's rule for it (four times the
smoothed error, 20 us at least; with more than 400 us there is no prediction). Judged is the second half of each series:
  hits      part of all requests that came within the margin of their prediction
  held      time for which a hold kernel would have kept the GPU in vain, microseconds a request: from the earliest likely time to the request or the end
            of the margin
  error     median of the absolute errors of the predictions, microseconds
`from-end` and `by-size` are the smallest variants with what the online model turned out to use. The forest (seed 002: 100 trees) learns from the first half at once. The online model learns from each request after it was predicted, as the smoothing
does. The results are in docs/design/predictors.md.

`--models` leaves out the threads, whose times differ in each run, and the forest. It needs numpy only. python/tests/test_predictors.py compares its
results with the page. SLUICE_BUILD is the folder of the build, target/release if it is not set.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import threading
import time
import zlib

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = pathlib.Path(os.environ.get("SLUICE_BUILD", REPOSITORY / "target/release")) / "examples/predict_arrivals"
MS, US = 1_000_000, 1_000
LEAST_MARGIN, MOST_MARGIN, LEARNED = 20 * US, 400 * US, 8
# Recent values that a model sees.
RECENT = 4


class Request:
    """Begin and preparation in nanoseconds; bytes copied and launches."""

    def __init__(self, begin, prepare, size, launches):
        self.begin, self.prepare, self.size, self.launches = int(begin), float(prepare), size, launches


# Arrival models of the simulator.

def periodic(chance, jitter, count, every=10 * MS):
    return [n * every + chance.uniform(0, jitter) for n in range(count)]


def poisson(chance, mean, count):
    times, now = [], 0.0
    for _ in range(count):
        now += chance.expovariate(1 / mean)
        times.append(now)
    return times


def bursts(chance, size, every, count):
    """Requests of a burst follow each other as the service completes them, 1.2 ms each."""
    return [n // size * every + n % size * 1.2 * MS + chance.uniform(0, 50 * US) for n in range(count)]


def closed(chance, service, think, count):
    times, now = [], 0.0
    for _ in range(count):
        times.append(now)
        now += service + think + abs(chance.gauss(0, 30 * US))
    return times


def two_clocks(chance, count):
    """Two cameras of 33.3 and 40 ms on one service."""
    times = [n * 33.3 * MS + chance.uniform(0, 100 * US) for n in range(count)] + [n * 40 * MS + chance.uniform(0, 100 * US) for n in range(count)]
    return sorted(times)[:count]


def modelled(times, chance):
    """Requests at these times. Their inputs have sizes of four kinds, as batches have; a copy of 1 MB takes 18 us, and the host 60 us."""
    requests = []
    for at in times:
        size = chance.choice((150_000, 600_000, 1_200_000, 4_800_000))
        requests.append(Request(at, 60 * US + size * 0.018 + abs(chance.gauss(0, 8 * US)), size, 1))
    return requests


def recorded(pace, count, noise=0, sizes=(40_000, 160_000, 320_000, 640_000)):
    """Requests of a thread of this machine that waits for `pace`, then decompresses and copies an input of one of these sizes. `noise`: threads that
    compute beside it."""
    chance = random.Random(5)
    inputs = [zlib.compress(bytes(chance.randrange(256) for _ in range(size // 8)) * 8, 1) for size in sizes]
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            zlib.compress(inputs[-1], 6)

    others = [threading.Thread(target=compute, daemon=True) for _ in range(noise)]
    for other in others:
        other.start()
    requests, due = [], time.monotonic_ns()
    # Another program on the machine is not to delay the thread.
    if os.geteuid() == 0:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    for number in range(count):
        due = pace(number, due)
        if (left := due - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        begin, packed = time.monotonic_ns(), chance.choice(inputs)
        size = len(bytearray(zlib.decompress(packed)))
        requests.append(Request(begin, time.monotonic_ns() - begin, size, 1))
    stop.set()
    if os.geteuid() == 0:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return requests


# Predictors of one value. `learn` comes after the value is known, `predict` before.

class Smoothing:
    """PreparationEstimate of the hook: the mean of the last values, whatever the request is."""

    def __init__(self):
        self.mean = None

    def predict(self, _features):
        return self.mean

    def learn(self, _features, value):
        self.mean = value if self.mean is None else self.mean + (value - self.mean) / 8


class Online:
    """Recursive least squares with forgetting: weights for each feature and a constant."""

    FORGET = 0.998

    def __init__(self):
        self.weights = self.covariance = self.scale = None

    def row(self, features):
        return numpy.append(numpy.asarray(features) / self.scale, 1.0)

    def predict(self, features):
        return None if self.weights is None else float(self.row(features) @ self.weights)

    def learn(self, features, value):
        if self.weights is None:
            self.scale = numpy.maximum(numpy.abs(numpy.asarray(features, dtype=float)), 1.0)
            self.weights, self.covariance = numpy.zeros(len(features) + 1), numpy.eye(len(features) + 1) * 1e3
            self.weights[-1] = value
        row = self.row(features)
        gain = self.covariance @ row / (self.FORGET + row @ self.covariance @ row)
        self.weights = self.weights + gain * (value - row @ self.weights)
        self.covariance = (self.covariance - numpy.outer(gain, row @ self.covariance)) / self.FORGET


class FromEnd(Smoothing):
    """The smoothed pause between the end of a request and the next one. The last feature is the time that the request took."""

    def predict(self, features):
        return None if self.mean is None else self.mean + features[-1]

    def learn(self, features, value):
        super().learn(features, value - features[-1])


class BySize(Online):
    """The online model with the size of the input alone."""

    def row(self, features):
        return numpy.array([features[-2] / self.scale[-2], 1.0])

    def learn(self, features, value):
        if self.weights is None:
            self.scale = numpy.maximum(numpy.abs(numpy.asarray(features, dtype=float)), 1.0)
            self.weights, self.covariance = numpy.array([0.0, value]), numpy.eye(2) * 1e3
        super().learn(features, value)


class Forest:
    """The forest of the seed, trained once."""

    def __init__(self, features, values):
        from sklearn.ensemble import RandomForestRegressor
        self.model = RandomForestRegressor(n_estimators=100, random_state=1, n_jobs=1).fit(features, values)

    def all(self, features):
        return list(self.model.predict(features))


class Margin:
    """The hook's margin: four times the smoothed absolute error."""

    def __init__(self):
        self.deviation, self.learned = None, 0

    def value(self):
        if self.learned < LEARNED:
            return None
        margin = max(4 * self.deviation, LEAST_MARGIN)
        return margin if margin <= MOST_MARGIN else None

    def learn(self, error):
        counted = min(abs(error), 4 * MOST_MARGIN)
        self.deviation = counted if self.deviation is None else self.deviation + (counted - self.deviation) / 4
        self.learned += 1


def judged(predictions, values, half):
    """`predictions`: (mean, margin) or None for each value."""
    hits, held, errors = 0, 0.0, []
    for predicted, value in list(zip(predictions, values))[half:]:
        if predicted is None:
            continue
        mean, margin = predicted
        if mean is not None and margin is not None:
            errors.append(abs(value - mean))
            hits += abs(value - mean) <= margin
            held += max(0.0, min(value, mean + margin) - (mean - margin))
    count = len(values) - half
    return {"hits": hits / count, "held_us": held / count / US, "error_us": statistics.median(errors) / US if errors else None}


def online(model, features, values):
    """Predictions by a model that learns from each value after it was predicted."""
    margin, told = Margin(), []
    for row, value in zip(features, values):
        mean = model.predict(row)
        told.append(None if mean is None else (mean, margin.value()))
        if mean is not None:
            margin.learn(value - mean)
        model.learn(row, value)
    return told


def forest(features, values, half):
    margin, told = Margin(), [None] * half
    for mean, value in zip(Forest(features[:half], values[:half]).all(features[half:]), values[half:]):
        told.append((mean, margin.value()))
        margin.learn(value - mean)
    return told


def hook(times):
    """What the hook's own code predicts."""
    begin = times[0] - 1_000 * MS
    done = subprocess.run([EXAMPLE], input="".join(f"{at - begin}\n" for at in times), capture_output=True, text=True, check=True)
    told = []
    for line in done.stdout.splitlines():
        told.append(None if line == "-" else (float(line.split()[0]) + begin, float(line.split()[1])))
    return told


def arrivals(requests, with_forest):
    times = [request.begin for request in requests]
    intervals = [after - before for before, after in zip(times, times[1:])]
    # Of request n + 1, from what is known after request n.
    rows, values = [], []
    for n in range(RECENT, len(intervals)):
        before = requests[n]
        rows.append([*intervals[n - RECENT:n], before.size, before.launches, before.prepare])
        values.append(intervals[n])
    half = len(values) // 2
    by_hook = hook(times)[RECENT + 1:]
    told = {"smoothing": [None if one is None else (one[0] - times[n + RECENT], one[1]) for n, one in enumerate(by_hook)]}
    told |= {"from-end": online(FromEnd(), rows, values), "online": online(Online(), rows, values)}
    if with_forest:
        told["forest"] = forest(rows, values, half)
    return {name: judged(predictions, values, half) for name, predictions in told.items()}


def preparations(requests, with_forest):
    rows, values = [], []
    for n in range(RECENT, len(requests)):
        this = requests[n]
        # The first copy of the request is known when its preparation is predicted.
        rows.append([*(before.prepare for before in requests[n - RECENT:n]), this.size, this.launches])
        values.append(this.prepare)
    half = len(values) // 2
    told = {"smoothing": online(Smoothing(), rows, values), "by-size": online(BySize(), rows, values), "online": online(Online(), rows, values)}
    if with_forest:
        told["forest"] = forest(rows, values, half)
    return {name: judged(predictions, values, half) for name, predictions in told.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1200)
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    chance, count = random.Random(3), options.requests
    paced = lambda every: lambda _number, due: due + every
    thinking = lambda pause: lambda _number, _due: time.monotonic_ns() + pause
    waiting = random.Random(9)
    models = {
        "model: periodic, jitter 0.1 ms": modelled(periodic(chance, 100 * US, count), chance),
        "model: periodic, jitter 1 ms": modelled(periodic(chance, MS, count), chance),
        "model: Poisson": modelled(poisson(chance, 10 * MS, count), chance),
        "model: bursts of 4": modelled(bursts(chance, 4, 40 * MS, count), chance),
        "model: closed loop": modelled(closed(chance, 1.2 * MS, 5 * MS, count), chance),
        "model: two clocks": modelled(two_clocks(chance, count), chance),
    }
    threads = {} if options.models else {
        "thread: each 10 ms": recorded(paced(10 * MS), count),
        "thread: each 10 ms, two threads beside it": recorded(paced(10 * MS), count, noise=2),
        "thread: pauses of 5 ms": recorded(thinking(5 * MS), count),
        "thread: each 10 ms, inputs of one size": recorded(paced(10 * MS), count, sizes=(320_000,)),
        "thread: each 10 ms, one size, two threads beside it": recorded(paced(10 * MS), count, noise=2, sizes=(320_000,)),
        "thread: pauses of 5 ms, inputs of one size": recorded(thinking(5 * MS), count, sizes=(320_000,)),
        "thread: random": recorded(lambda _number, due: due + int(waiting.expovariate(1 / (10 * MS))), count),
    }
    result = {"requests": count, "arrivals": {}, "preparations": {}}
    for name, requests in (models | threads).items():
        for what, measure in (("arrivals", arrivals), ("preparations", preparations)):
            result[what][name] = measure(requests, not options.models)
            shown = {predictor: f"hits {row['hits']:.3f} held {row['held_us']:6.1f} error {row['error_us'] if row['error_us'] is None else round(row['error_us'], 1)}" for predictor, row in result[what][name].items()}
            print(f"{what:13} {name:52} {shown}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
