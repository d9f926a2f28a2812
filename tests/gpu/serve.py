#!/usr/bin/env python3
"""A latency-critical service beside one and two trainings: alone, stock time slicing, MPS, and under Sluice.

First each service's first hundred requests, which are not counted. Then interleaved blocks: each round runs every arm once, in an order that changes (order.py), so that drift of the machine falls on all alike; `alone`
runs twice a round, and the difference of its halves is the A/A noise. No program is restarted between blocks: idle programs keep their contexts. Latencies count from the time a request was due.

Arms (LC = ResNet-50 graph each 10 ms, BE = ResNet-50 training):
  alone, alone2          LC without the hook and without other programs
  stock1, stock2         beside one / two trainings, no hook anywhere
  mps1, mps2             the same under one MPS server
  hooked-alone           LC under Sluice without other programs
  plain1, plain2         under Sluice, hints off
  auto1, auto2           under Sluice, automatic hints: at a request's first copy, and ahead of requests that come at a steady pace
  api1, api2             under Sluice, a hint by API 300 us ahead of each request
  light-alone, light-random   as be-alone and auto1-random, beside kernels that occupy the GPU and draw little power (workloads/light.py)
  alone-random, alone-random2, plain1-random, auto1-random   the same as alone, alone2, plain1 and auto1 with requests that come up to half a period late, so that they cannot be predicted
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import rig
import rounds
from clocks import Clocks
from order import Order

SLACK = 60.0

# Arms without a bar: fewer requests suffice.
UNJUDGED = {"hooked-alone", "alone-random", "alone-random2", "auto1-random", "plain1-random", "light-random"}

# The programs of each arm: service, lead of the hint in us, trainings.
ARMS = {
    "alone": ("lc0", 0, []), "alone2": ("lc0", 0, []),
    "stock1": ("lc0", 0, ["be0.stock"]), "stock2": ("lc0", 0, ["be0.stock", "be1.stock"]),
    "mps1": ("lc.mps", 0, ["be0.mps"]), "mps2": ("lc.mps", 0, ["be0.mps", "be1.mps"]),
    "hooked-alone": ("lc", 0, []),
    "plain1": ("lcplain", 0, ["be0"]), "plain2": ("lcplain", 0, ["be0", "be1"]),
    "auto1": ("lc", 0, ["be0"]), "auto2": ("lc", 0, ["be0", "be1"]),
    "api1": ("lc", 300, ["be0"]), "api2": ("lc", 300, ["be0", "be1"]),
    "alone-random": ("lc0", 0, []), "alone-random2": ("lc0", 0, []), "auto1-random": ("lc", 0, ["be0"]),
    "plain1-random": ("lcplain", 0, ["be0"]),
    "light-random": ("lc", 0, ["be0.light"]), "light-alone": (None, 0, ["be0.light"]),
    # Trainings alone and in pairs without requests: the kept part is relative to the first.
    "be-alone": (None, 0, ["be0"]), "be-alone.1": (None, 0, ["be1"]), "pair": (None, 0, ["be0", "be1"]),
}


class Mps:
    """A private MPS server, identified by its folder. It ends after its clients."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-mps-"))
        self.variables = {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")}
        try:
            for name in ("pipe", "log"):
                (self.folder / name).mkdir()
            started = subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.env(), capture_output=True, text=True, timeout=20)
            if started.returncode != 0:
                raise OSError(started.stderr or started.stdout)
        except (OSError, subprocess.TimeoutExpired):
            shutil.rmtree(self.folder)
            raise
        rig.LAST.append(self.stop)

    def env(self):
        return rig.plain_env(**self.variables)

    def stop(self):
        try:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", env=self.env(), text=True, timeout=15, capture_output=True)
        except subprocess.TimeoutExpired:
            rig.say("the MPS server does not end")
        shutil.rmtree(self.folder, ignore_errors=True)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values):
    return {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "p999": percentile(values, 0.999), "mean": statistics.fmean(values), "n": len(values)}


class Stage:
    """The programs of all arms."""

    # Further arguments of the trainings.
    TRAINING = ()

    def __init__(self, options, arms=None):
        self.options, self.gpu, self.clocks = options, rig.Gpu(options.gpu), Clocks()
        self.arms = ARMS if arms is None else arms
        gpu = self.gpu
        # The service has cores of its own, as a pod of the Guaranteed class has on a node that pins CPUs; no other process runs there.
        cores = sorted(os.sched_getaffinity(0))
        served, others = (cores[2:4], cores[:2] + cores[4:]) if options.pin and len(cores) >= 6 else (cores, cores)
        os.sched_setaffinity(0, others)
        training = gpu.python("torch_model.py", "resnet50", "--batch", options.batch, "--staged", *self.TRAINING)
        service = ["taskset", "-c", ",".join(map(str, served)), *gpu.python("torch_serve.py", "--staged")]
        clients = [{"name": f"be{i}", "request": q, "limit": 1.0, "memory": "40Gi"} for i, q in enumerate(options.quota)]
        # Requests of 1.2 ms each 10 ms need 0.12. Beyond its request a latency-critical client would be delayed for the trainings.
        clients += [{"name": n, "request": 0.2, "limit": 1.0, "memory": "20Gi", "class": "latency-critical"} for n in ("lc", "lcplain")]
        self.manager = rig.Manager(clients, [f"--controls={gpu.controls}", *options.manager])
        self.mps = None
        wanted = {program for arm in options.arms for program in (self.arms[arm][0], *self.arms[arm][2])}
        children = {name: how for name, how in self.programs(service, training, wanted).items() if name in wanted}
        self.children = {name: rig.Child(name, command, env) for name, (command, env) in children.items()}
        self.ready = rig.one_by_one(self.children)

    def programs(self, service, training, wanted):
        """The command and the environment of each program, by name."""
        gpu = self.gpu
        children = {"lc0": (service, gpu.plain())}
        children |= {name: (training, gpu.plain()) for name in ("be0.stock", "be1.stock")}
        if wanted & {"lc.mps", "be0.mps"}:
            try:
                self.mps = Mps()
                children |= {name: (program, self.mps.env()) for name, program in (("lc.mps", service), ("be0.mps", training), ("be1.mps", training))}
            except (OSError, subprocess.TimeoutExpired) as why:
                rig.say("no MPS:", why)
        children |= {name: (training, gpu.under(self.manager, name)) for name in ("be0", "be1")}
        children["be0.light"] = (gpu.python("torch_model.py", "light", "--staged"), gpu.under(self.manager, "be0"))
        children["lc"] = (service, gpu.under(self.manager, "lc"))
        children["lcplain"] = (service, gpu.under(self.manager, "lcplain", SLUICE_HINTS="off"))
        return children

    def run(self, service, lead, trainings, requests, jitter=0.0):
        """One block: requests of `service` beside `trainings`; returns their results."""
        seconds = requests * self.options.period / 1e6
        start = time.time() + 0.3
        for name in trainings:
            self.children[name].ask(f"run {start:.6f} {seconds + 0.4:.3f}")
        if service:
            self.children[service].ask(f"serve {start + 0.2:.6f} {requests} {self.options.period} {lead} {jitter}")
        told = self.children[service].answer(seconds + SLACK) if service else None
        return told, {name: self.children[name].answer(seconds + SLACK) for name in trainings}

    def stop(self):
        for child in self.children.values():
            child.stop()
        self.manager.stop()


def plan(stage):
    """The arms whose programs run."""
    arms = stage.arms
    return {name: arms[name] for name in stage.options.arms if all(program in stage.children for program in (arms[name][0], *arms[name][2]) if program)}


def add_arguments(parser):
    """The flags of every script that measures arms of this form."""
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=600, help="of an arm in a round")
    parser.add_argument("--short-requests", type=int, default=300, help="of an arm in a round where no request is judged: trainings alone, the hook's cost")
    parser.add_argument("--warm", type=int, default=100, help="requests of each service before the first round, not counted")
    parser.add_argument("--period", type=float, default=10_000, help="us between arrivals")
    parser.add_argument("--quota", type=float, nargs=2, default=[0.2, 0.4], help="of the two trainings; the two services request 0.2 each")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True, help="give the service two cores of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order")
    parser.add_argument("--limit", type=int, default=560)
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-manager")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default="alone be-alone stock1 plain1 auto1 api1 hooked-alone stock2 plain2 auto2 pair mps1 mps2 alone-random auto1-random alone-random2 alone2".split())
    parser.add_argument("--name", default="serve")
    add_arguments(parser)
    options = parser.parse_args()
    rig.limit(options.limit)
    return measure(options, Stage(options))


def measure(options, stage):
    """Runs the rounds and writes the result; the exit status."""
    arms = plan(stage)
    latencies = {name: [] for name in arms}
    windows_of = {name: {} for name in arms}
    holds_of, clocks = ({name: [] for name in arms} for _ in range(2))
    wrong = []
    fit(options, arms)
    warm(options, arms, stage)
    order = Order(arms, options.seed)
    for number in rounds.numbers(options):
        for name in order.round():
            service, lead, trainings = arms[name]
            jitter = options.period / 2 if "-random" in name else 0.0
            begin = time.time() + 0.5
            told, windows = stage.run(service, lead, trainings, requests_of(options, arms[name], name), jitter)
            clocks[name].append(stage.clocks.between(begin, time.time() - 0.3))
            for program, window in windows.items():
                windows_of[name].setdefault(program, []).append(window)
            if told:
                latencies[name].append(told["latencies_us"])
                # Where the program hints itself, the hook predicts hardly any request.
                ahead = {} if lead else {"not_ahead": told["not_ahead"]}
                holds_of[name].append({**told["holds"], "slowest": told["slowest"], **ahead})
                if not told["answer_unchanged"]:
                    wrong.append((number, name))
                rig.say(f"round {number} {name:12}", {k: round(v) for k, v in summary(told["latencies_us"]).items()}, {w: round(r["rate"] * options.batch) for w, r in windows.items()}, told["hints"] or "")
            else:
                rig.say(f"round {number} {name:12}", {w: round(r["rate"] * options.batch) for w, r in windows.items()})
        # Written after each round, because the run may be interrupted.
        rig.write(options.name, {**result(options, arms, latencies, windows_of, holds_of, wrong, stage), **order.result(), "clocks": clocks})
    stage.stop()
    return 1 if wrong else 0


# Time of a block beside its requests, seconds.
AROUND = 1.0


def warm(options, arms, stage):
    """Serves each service's first requests beside a training, where it has one: meanwhile the hook learns the service's
    rhythm and the benefit of hold kernels, and clocks and caches settle. They are not counted."""
    for service in dict.fromkeys(program for program, _, _ in arms.values() if program):
        beside = max((trainings[:1] for program, _, trainings in arms.values() if program == service), key=len)
        told, _ = stage.run(service, 0, beside, options.warm)
        rig.say(f"warm {service:8} beside {beside}", {k: round(v) for k, v in summary(told["latencies_us"]).items()}, told["holds"])


def requests_of(options, arm, name):
    """Requests of an arm in a round."""
    return options.requests if arm[0] and name not in UNJUDGED else options.short_requests


def fit(options, arms):
    """Shortens the blocks if the requested rounds do not fit: many short blocks are better than few long ones."""
    asked = sum(requests_of(options, arm, name) for name, arm in arms.items())
    part = rounds.fitting(options, asked * options.period / 1e6, len(arms) * AROUND)
    if part < 1.0:
        options.requests = max(50, int(options.requests * part))
        options.short_requests = max(50, int(options.short_requests * part))
        rig.say(f"too little: {options.requests} requests in a block")


def result(options, arms, latencies, windows_of, holds_of, wrong, stage):
    """Everything measured; ratios against `alone` of the same run, medians of the rounds' rates; shares of the steps of all rounds."""
    pooled = {name: summary([value for block in blocks for value in block]) for name, blocks in latencies.items() if blocks}
    median = {name: {program: statistics.median(window["rate"] for window in windows) for program, windows in by.items()} for name, by in windows_of.items()}
    # The training alone, by whatever name the arm's only program has.
    first = next(iter(median.get("be-alone", {}).values()), None)
    # The two train the same model.
    alone = {"be0": first, "be1": median.get("be-alone.1", {}).get("be1", first)}
    light = median.get("light-alone", {}).get("be0.light")
    rows = {}
    for name in arms:
        row = {"blocks_p99": [percentile(block, 0.99) for block in latencies[name]], **pooled.get(name, {})}
        than = "alone-random" if "-random" in name else "alone"
        if name in pooled and than in pooled:
            row |= {"p50_of_alone": row["p50"] / pooled[than]["p50"], "p99_of_alone": row["p99"] / pooled[than]["p99"]}
            # A stall of the host affects one block only.
            row["median_p99_of_alone"] = median_p99(latencies[name]) / median_p99(latencies[than])
        if holds_of[name]:
            row["slowest"] = [block["slowest"] for block in holds_of[name]]
        if any(block["launched"] for block in holds_of[name]):
            row["holds"] = {what: [block[what] for block in holds_of[name]] for what in holds_of[name][0] if what != "slowest"}
        rate_alone = {program: light if program.endswith(".light") else alone.get(program.split(".")[0]) for program in median[name]}
        kept = {program: rate / rate_alone[program] for program, rate in median[name].items() if rate_alone[program]}
        if kept:
            total = sum(kept.values())
            row |= {"be_kept": kept, "be_sum": total, "be_share_of_sum": {program: value / total if total else 0.0 for program, value in kept.items()}}
        steps = {program: sum(window["steps"] for window in windows) for program, windows in windows_of[name].items()}
        if len(steps) > 1:
            row["of_sum"] = [made / max(1, sum(steps.values())) for made in steps.values()]
            row["asked_of_sum"] = [quota / sum(options.quota) for quota in options.quota]
            row["of_sum_over_s"] = sum(window["seconds"] for window in next(iter(windows_of[name].values())))
        rows[name] = row
    noise, random_noise = (abs(rows[name]["p99_of_alone"] - 1) if "p99_of_alone" in rows.get(name, {}) else None for name in ("alone2", "alone-random2"))
    return {
        "ok": not wrong, "goals": goals(rows, noise), "rows": rows, "aa_noise_p99": noise, "aa_noise_p99_random": random_noise, "alone_rates": alone, "requests": options.requests, "rounds": options.rounds,
        "period_us": options.period, "quota": options.quota, "batch": options.batch, "pinned": options.pin, "ready": stage.ready, "wrong_answers": wrong,
        "slowest_are": "number, latency us, held for ahead by the hook, due ms, us until it began, its copy, its launch and its wait had returned", "metrics": stage.manager.metrics(),
    }


def median_p99(blocks):
    return statistics.median(percentile(block, 0.99) for block in blocks)


def goals(rows, noise):
    """The bars of the measured arms: value, bar, whether it is met. Shares are the two trainings' requests."""
    told = {}

    def goal(name, key, limit, meets):
        value = rows.get(name, {}).get(key)
        if value is not None:
            told[f"{name} {key}"] = f"{value:.3f}, {limit:.3f}: {'met' if meets(value, limit) else 'NOT MET'}"

    at_most, at_least = (lambda value, limit: value <= limit), (lambda value, limit: value >= limit)
    for trainings, kept in (("1", 0.93), ("2", 0.92)):
        for arm, limit in (("plain", 1.05), ("auto", 1.0 + (noise or 0.0)), ("api", 0.95)):
            goal(arm + trainings, "p99_of_alone", limit, at_most)
            goal(arm + trainings, "be_sum", kept, at_least)
    goal("auto1-random", "median_p99_of_alone", 1.05, at_most)
    for arm in ("plain2", "auto2"):
        if "of_sum" in rows.get(arm, {}):
            rows[arm]["points_off"] = 100 * abs(rows[arm]["of_sum"][0] - rows[arm]["asked_of_sum"][0])
            goal(arm, "points_off", 1.0, at_most)
    return told


if __name__ == "__main__":
    raise SystemExit(main())
