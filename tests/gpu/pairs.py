#!/usr/bin/env python3
"""Two cooperating processes of one best-effort pod beside a latency-critical service: round trips a second, and the service's latency.

The pair takes turns by a pipe (`pipe`), or by a pipe with the product of the first process read by the second one by CUDA IPC (`ipc`):
workloads/torch_pair.py. The service is serve.py's. Interleaved blocks in an order that changes (order.py).

Phase `idle`: the service is attached, and has been idle for more than ten seconds.
  bare, bare2     the pair without the hook and without other programs, twice: their difference is the A/A noise
  sluice          the pair under Sluice
  bare+be, sluice+be   both beside a training of another client
Phase `working`: the service gets 50 requests a second, in blocks of 8 s, each 6 s after the programs began: after a
pause of the service the first requests are not predicted, and the pair has no second group until that is made up for.
  alone, alone2   the service without the hook and without other programs
  bare, sluice    the pair beside the service: without the hook, under Sluice
  bare+be, sluice+be   the same beside a training of another client
"""

import argparse
import statistics
import time

import rig
import rounds
import serve
from order import Order

# An idle latency-critical client counts as idle after ten seconds.
IDLE = 11
PAIRS = ("pipe", "ipc")
PHASES = ("idle", "working")


def arms_of(phase, by):
    """The programs of each arm: service, lead of the hint, other programs, as in serve.py."""
    bare, own = f"{by}.stock", by
    plain, hooked = (None, None) if phase == "idle" else ("lc0", "lc")
    arms = {
        f"bare {by}": (plain, 0, [bare]), f"bare2 {by}": (plain, 0, [bare]), f"sluice {by}": (hooked, 0, [own]),
        f"bare+be {by}": (plain, 0, [bare, "be1.stock"]), f"sluice+be {by}": (hooked, 0, [own, "be1"]),
    }
    return arms if phase == "idle" else {"alone": ("lc0", 0, []), "alone2": ("lc0", 0, []), **arms}


class Stage(serve.Stage):
    def programs(self, service, training, wanted):
        gpu = self.gpu
        pairs = {by: gpu.python("torch_pair.py", by, "--staged") for by in PAIRS}
        return {
            # Attached in both phases.
            **super().programs(service, training, wanted),
            **{by: (command, gpu.under(self.manager, "be0")) for by, command in pairs.items()},
            **{f"{by}.stock": (command, gpu.plain()) for by, command in pairs.items()},
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="pairs")
    parser.add_argument("--by", nargs="+", choices=PAIRS, default=PAIRS)
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--seconds", type=float, default=1.5, help="a block without requests")
    parser.add_argument("--settle", type=int, default=300, help="requests before a block that are not counted")
    serve.add_arguments(parser)
    parser.set_defaults(period=20_000, requests=400, rounds=2)
    options = parser.parse_args()
    rig.limit(options.limit)
    phases = {phase: {name: arm for by in options.by for name, arm in arms_of(phase, by).items()} for phase in options.phases}
    every = {f"{phase} {name}": arm for phase, arms in phases.items() for name, arm in arms.items()}
    # The service is attached in the idle phase, too.
    options.arms = list(every)
    every["attached"] = ("lc", 0, [])
    options.arms.append("attached")
    stage = Stage(options, every)
    result = {"ok": True, "phases": {}, "ready": stage.ready}
    for phase, arms in phases.items():
        if phase == "idle":
            time.sleep(IDLE)
        else:
            options.short_requests = options.requests
            serve.warm(options, {name: arm for name, arm in arms.items() if arm[2] or arm[0] == "lc0"}, stage)
        order, blocks = Order(arms, options.seed), {name: [] for name in arms}
        # Half of the time is each phase's.
        for _ in rounds.numbers(options) if phase == "working" else range(options.rounds):
            for name in order.round():
                blocks[name].append(block(options, stage, arms[name]))
                rig.say(f"{phase:8}{name:16}", blocks[name][-1]["rates"], round(blocks[name][-1].get("p99_us", 0)))
            result["phases"][phase] = {"rows": {name: row(made) for name, made in blocks.items() if made}, **order.result()}
            rig.write(options.name, {**result, "metrics": stage.manager.metrics()}, quiet=True)
    stage.stop()
    for phase, made in result["phases"].items():
        for name, told in made["rows"].items():
            rig.say(f"{phase:8}{name:16}", told["rates"], {key: round(value) for key, value in told.items() if key.endswith("_us")})
    rig.write(options.name, {**result, "rows": {phase: made["rows"] for phase, made in result["phases"].items()}})
    return 0


def block(options, stage, arm):
    """One block: the rates of the programs, and the service's latencies."""
    service, _, programs = arm
    if service is None:
        options = argparse.Namespace(**{**vars(options), "period": 1e6 * options.seconds})
        start = time.time() + 0.3
        for name in programs:
            stage.children[name].ask(f"run {start:.6f} {options.seconds:.3f}")
        return {"rates": {name: round(stage.children[name].answer(60)["rate"], 1) for name in programs}}
    if programs:
        stage.run(service, 0, programs, options.settle)
    told, windows = stage.run(service, 0, programs, options.requests)
    rates = {name: round(window["rate"], 1) for name, window in windows.items()}
    ahead = options.requests - len(told["not_ahead"])
    return {"rates": rates, "latencies": told["latencies_us"], "ahead": ahead, "p99_us": serve.percentile(told["latencies_us"], 0.99)}


def row(blocks):
    """Medians of the blocks' rates; quantiles of all requests, and the median of the blocks' p99."""
    rates = {name: statistics.median(block["rates"][name] for block in blocks) for name in blocks[0]["rates"]}
    told = {"rates": rates, "blocks": [block["rates"] for block in blocks]}
    if "latencies" in blocks[0]:
        pooled = [each for block in blocks for each in block["latencies"]]
        told |= {f"{name}_us": serve.percentile(pooled, share) for name, share in (("p50", 0.5), ("p99", 0.99))}
        told |= {"median_p99_us": statistics.median(block["p99_us"] for block in blocks), "n": len(pooled), "held_ahead": [block["ahead"] for block in blocks]}
    return told


if __name__ == "__main__":
    raise SystemExit(main())
