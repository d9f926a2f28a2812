#!/usr/bin/env python3
"""Arrivals in bursts, as in public traces of language models, answered by transformers' `generate` beside a training of adapters (LoRA).

Which part of the requests meets the latency goals, compared with the service alone? Are the tokens the same? What does the training keep?
The service is workloads/torch_generate.py, the arrivals and lengths are described in workloads/generating.py. Interleaved blocks in an order
that changes (order.py). All arms of a round have the same requests, each round has others. No program is restarted between blocks. Arms:
  alone, alone2   the service without the hook and without other programs; their difference is the A/A noise
  training        the training under Sluice, without requests, shorter
  stock           both without the hook: time slicing
  sluice          both under Sluice
  sluice-slo      the same with another process of the service, whose client has the latency goal --slo in the resource file

Before the first round the service serves a trace alone. From it come the rate (--load: the part of the time in which the service works) and
the goals, which stay: the first token within --scale times the p90 of first tokens alone, and a mean time of the further tokens within
--scale times its median alone. A request that meets both attains its SLO.
"""

import argparse
import os
import random
import statistics
import time

import rig
import rounds
from clocks import Clocks
from decode_report import percentile
from order import Order

SLACK = 60.0
# The service begins after the training, and it runs on for the requests that come last; seconds.
LEAD, TAIL = 0.15, 0.4
# Time of a block beside its requests, seconds.
AROUND = 0.3 + LEAD + TAIL
# The service and the training of each arm.
ARMS = {"alone": ("lc0", None), "alone2": ("lc0", None), "training": (None, "be"), "stock": ("lc0", "be0"), "sluice": ("lc", "be"), "sluice-slo": ("slo", "be")}
USUAL = [arm for arm in ARMS if arm != "sluice-slo"]
# For these factors the attainment is computed, too.
SCALES = (1.05, 1.1, 1.25, 1.5, 2.0, 4.0)
# The most that the attainment may be lower than alone, in points.
BAR_POINTS = 0.5
# Columns of a request, as generating.py names them.
BEGAN, FIRST, LAST = 3, 4, 5
SAMPLES = 2000


class Stage:
    """The programs of all arms, loaded and idle, and the manager of those under the hook."""

    def __init__(self, options):
        self.options, self.clocks = options, Clocks()
        gpu = rig.Gpu(options.gpu)
        # Within a burst the service always works. Beyond its request it would be delayed for the training. One of the services is
        # always idle, and what it requests is shared among the others.
        service = {"request": 0.45, "limit": 1.0, "memory": "20Gi", "class": "latency-critical"}
        clients = [{"name": "be", "request": 0.1, "limit": 1.0, "memory": "60Gi"}, {"name": "lc", **service}, {"name": "slo", **service, "slo": options.slo}]
        self.manager = rig.Manager(clients, [f"--controls={gpu.controls}", *options.manager])
        # The service has two cores of its own, as in serve.py.
        cores = sorted(os.sched_getaffinity(0))
        served, others = (cores[2:4], cores[:2] + cores[4:]) if options.pin and len(cores) >= 6 else (cores, cores)
        os.sched_setaffinity(0, others)
        service = ["taskset", "-c", ",".join(map(str, served)), *gpu.python("torch_generate.py", "--staged")]
        training = gpu.python("torch_model.py", "lora", "--batch", options.batch, "--staged")
        programs = {
            "lc0": (service, gpu.plain()), "lc": (service, gpu.under(self.manager, "lc")), "slo": (service, gpu.under(self.manager, "slo")),
            "be0": (training, gpu.plain()), "be": (training, gpu.under(self.manager, "be")),
        }
        wanted = {program for arm in options.arms for program in ARMS[arm] if program} | {"lc0"}
        self.children = {name: rig.Child(name, command, env) for name, (command, env) in programs.items() if name in wanted}
        self.ready = rig.one_by_one(self.children)

    def block(self, arm, seconds, rate, seed):
        """The service's answer, and the training's window."""
        lc, be = ARMS[arm]
        start = time.time() + 0.3
        if be:
            self.children[be].ask(f"run {start:.6f} {LEAD + seconds + TAIL if lc else seconds:.3f}")
        if lc:
            self.children[lc].ask(f"serve {start + LEAD:.6f} {max(1, round(rate * seconds))} {seconds} {seed}")
        served = self.children[lc].answer(seconds + SLACK) if lc else None
        return served, self.children[be].answer(seconds + SLACK) if be else None

    def stop(self):
        for child in self.children.values():
            child.stop()
        self.manager.stop()


def mean_token(row):
    """Mean time of a request's tokens after the first, us."""
    return (row[LAST] - row[FIRST]) / (row[2] - 1)


def attained(rows, goals, scale=1.0):
    """The part of the requests that meet both goals."""
    return sum(row[FIRST] <= scale * goals["first_us"] and mean_token(row) <= scale * goals["token_us"] for row in rows) / len(rows)


def calibrate(options, stage):
    """The rate of the requests, and the p90 of the first token and the median of the further ones, alone. Half of this time shows the rate."""
    served, _ = stage.block("alone", options.calibrate / 2, options.first_rate, 0)
    first, token = (1e-6 * statistics.fmean(values) for values in ([row[FIRST] - row[BEGAN] for row in served["requests"]], served["tokens_us"]))
    # Of all lengths, because the few requests of a short trace have others on average.
    rate = options.load / (first + token * (stage.ready["lc0"]["mean_tokens"] - 1))
    served, _ = stage.block("alone", options.calibrate, rate, 0)
    first, token = percentile([row[FIRST] for row in served["requests"]], 0.9), statistics.median(map(mean_token, served["requests"]))
    busy = sum(row[LAST] - row[BEGAN] for row in served["requests"]) / (1e6 * options.calibrate)
    rig.say(f"{rate:.2f} requests a second, busy for {busy:.2f} of the time; alone: p90 of the first token {first} us, median of the further ones {token:.0f} us")
    return rate, {"first_us": options.scale * first, "token_us": options.scale * token}, {"first_p90_us": first, "token_p50_us": token, "busy": busy, "n": len(served["requests"])}


def interval(first, second, value):
    """95 % interval of the difference of a value of two arms' blocks: bootstrap samples of whole rounds."""
    chance, found = random.Random(1), []
    for _ in range(SAMPLES):
        numbers = [chance.randrange(len(first)) for _ in first]
        found.append(value([second[n] for n in numbers]) - value([first[n] for n in numbers]))
    return [percentile(found, 0.025), percentile(found, 0.975)]


def rows_of(options, blocks, goals, calibrated):
    told, alone_rate = {}, None
    if blocks.get("training"):
        alone_rate = statistics.median(be["rate"] for _, be in blocks["training"])

    def points(of):
        return 100 * attained([row for served, _ in of for row in served["requests"]], goals)

    for arm, of in blocks.items():
        if not of:
            continue
        told[arm] = row = {}
        if of[0][0]:
            requests = [request for served, _ in of for request in served["requests"]]
            tokens = [token for served, _ in of for token in served["tokens_us"]]
            series = {"first": [r[FIRST] for r in requests], "token": tokens, "request": [r[LAST] for r in requests], "mean_token": [mean_token(r) for r in requests]}
            for name, values in series.items():
                row[name] = {"p50": percentile(values, 0.5), "p90": percentile(values, 0.9), "p99": percentile(values, 0.99)}
            # A stall of the host affects one block only.
            row["first"]["blocks_p99"] = [percentile([r[FIRST] for r in served["requests"]], 0.99) for served, _ in of]
            row["token"]["blocks_p99"] = [percentile(served["tokens_us"], 0.99) for served, _ in of]
            row |= {
                "n": len(requests), "tokens": len(tokens), "attained": 100 * attained(requests, goals), "blocks_attained": [points([block]) for block in of],
                "first_within": 100 * sum(r[FIRST] <= goals["first_us"] for r in requests) / len(requests),
                "mean_token_within": 100 * sum(mean_token(r) <= goals["token_us"] for r in requests) / len(requests),
                "tokens_within": 100 * sum(token <= goals["token_us"] for token in tokens) / len(tokens),
                "attained_by_scale": {scale: round(100 * attained(requests, goals, scale / options.scale), 2) for scale in SCALES},
                "behind_s": max(served["behind_s"] for served, _ in of), "holds": [served["holds"] for served, _ in of],
            }
        if of[0][1]:
            rates = [be["rate"] for _, be in of]
            row |= {"rate": statistics.median(rates), "rates": rates}
            if alone_rate:
                row |= {"kept": row["rate"] / alone_rate, "kept_of_left": row["rate"] / alone_rate / (1 - calibrated["busy"]) if of[0][0] else None}
        if "attained" in row and arm != "alone" and told.get("alone"):
            than = told["alone"]
            row |= {"points_below_alone": than["attained"] - row["attained"], "points_interval": interval(blocks["alone"][:len(of)], of[:len(blocks["alone"])], points)}
            row["p99_of_alone"] = {name: row[name]["p99"] / than[name]["p99"] for name in ("first", "token", "request")}
            row["p50_of_alone"] = {name: row[name]["p50"] / than[name]["p50"] for name in ("first", "token", "request")}
    return told


def different(blocks):
    """Rounds in which an arm's tokens differ from those of another arm."""
    wrong = []
    for number in range(max(map(len, blocks.values()))):
        found = {arm: of[number][0]["digest"] for arm, of in blocks.items() if number < len(of) and of[number][0]}
        if len(set(found.values())) > 1:
            wrong.append([number, found])
    return wrong


def bars(rows):
    told = {}
    for arm in ("sluice", "sluice-slo"):
        sluice = rows.get(arm, {})
        if "points_below_alone" not in sluice:
            continue
        met = "met" if sluice["points_below_alone"] <= BAR_POINTS else "NOT MET"
        told[f"{arm}: points of SLO attainment below alone"] = f"{sluice['points_below_alone']:.2f}, at most {BAR_POINTS}: {met}; 95 % of the differences to alone from {sluice['points_interval'][0]:+.2f} to {sluice['points_interval'][1]:+.2f}"
    return told


def fit(options):
    """Shortens the blocks if the rounds do not fit."""
    arms = [arm for arm in options.arms if ARMS[arm][0]]
    short = len(options.arms) - len(arms)
    part = rounds.fitting(options, len(arms) * options.seconds, len(arms) * AROUND + short * (options.short + 0.35))
    if part < 1.0:
        options.seconds = max(1.0, round(options.seconds * part, 3))
        rig.say(f"too little: blocks of {options.seconds:.2f} s")


def brief(served, be):
    told = {}
    if served:
        told = {"first ms": [round(percentile([r[FIRST] for r in served["requests"]], q) / 1000, 1) for q in (0.5, 0.99)], "token ms": [round(percentile(served["tokens_us"], q) / 1000, 2) for q in (0.5, 0.99)], "n": len(served["requests"])}
    return told | ({"training": round(be["rate"], 2)} if be else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=USUAL)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.4, help="of an arm's requests in a round")
    parser.add_argument("--short", type=float, default=1.2, help="seconds of the training alone in a round")
    parser.add_argument("--calibrate", type=float, default=6.0, help="seconds of the trace before the first round from which the goals come")
    parser.add_argument("--first-rate", type=float, default=3.0, help="requests a second until the service's rate is known")
    parser.add_argument("--warm", type=float, default=6.0, help="seconds of the arm sluice before the first round, not counted")
    parser.add_argument("--load", type=float, default=0.4, help="part of the time in which the service works, alone")
    parser.add_argument("--scale", type=float, default=1.25, help="of the latency goals, over what the service needs alone")
    parser.add_argument("--slo", default="300ms", help="latency goal of the service's client in the arm sluice-slo")
    parser.add_argument("--batch", type=int, default=8, help="texts of 512 tokens in a step of the training")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True, help="give the service two cores of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order and of the traces")
    parser.add_argument("--limit", type=int, default=240)
    parser.add_argument("--name", default="replay")
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-manager")
    options = parser.parse_args()
    rig.limit(options.limit)
    stage = Stage(options)
    rate, goals, calibrated = calibrate(options, stage)
    for arm, seconds in (("sluice", options.warm), ("sluice-slo", 2.0), ("stock", 1.0)):
        if arm in options.arms:
            rig.say(f"warm {arm:9}", brief(*stage.block(arm, seconds, rate, 0)))
    fit(options)
    order, blocks, clocks = Order(options.arms, options.seed), {arm: [] for arm in options.arms}, {arm: [] for arm in options.arms}
    for number in rounds.numbers(options):
        for arm in order.round():
            begin = time.time() + 0.3
            blocks[arm].append(stage.block(arm, options.seconds if ARMS[arm][0] else options.short, rate, 1000 * options.seed + number))
            clocks[arm].append(stage.clocks.between(begin, time.time()))
            rig.say(f"round {number} {arm:9}", brief(*blocks[arm][-1]))
        rows, wrong = rows_of(options, blocks, goals, calibrated), different(blocks)
        grants = {name: stage.manager.grants(name) for name in ("lc", "slo", "be") if name in stage.children}
        # Written after each round, because the run may be interrupted. Without grants the hook was not active.
        rig.write(options.name, {
            "ok": not wrong and all(grants.values()), "bars": bars(rows), "rows": rows, "different_tokens": wrong, "goals": goals, "calibrated": calibrated, "rate": rate,
            "scale": options.scale, "load": options.load, "seconds": options.seconds, "rounds": number + 1, "slo": options.slo, "clocks": clocks, "grants": grants,
            "ready": stage.ready, **order.result(), "requests_are": blocks["alone"][0][0]["requests_are"] if blocks.get("alone") else None,
            "requests": {arm: [served["requests"] for served, _ in of if served] for arm, of in blocks.items()}, "metrics": stage.manager.metrics(),
        }, quiet=True)
    for arm, row in rows.items():
        rig.say(f"{arm:9}", {key: round(row[key], 3) for key in ("attained", "first_within", "mean_token_within", "tokens_within", "points_below_alone", "rate", "kept") if row.get(key) is not None},
                *(f"{name} p50 {row[name]['p50'] / 1000:.2f} p99 {row[name]['p99'] / 1000:.2f} ms" for name in ("first", "token") if name in row), row.get("attained_by_scale", ""))
    rig.say("tokens differ in rounds:", [number for number, _ in wrong] or "none")
    for bar, how in bars(rows).items():
        rig.say(f"{bar}: {how}")
    stage.stop()
    rig.say("written:", rig.OUT / f"{options.name}.json")
    return 0 if not wrong and all(grants.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
