#!/usr/bin/env python3
"""What the hook costs a latency-critical service that has the GPU to itself, and in which call.

The service is serve.py's (ResNet-50 graph each 10 ms: input copy, graph, wait), on two cores of its own. Arms, interleaved in blocks whose
order changes (order.py); no other program uses the GPU, so the differences are the host's:
  bare, bare2   without the hook; their difference is the noise
  inert         the hook preloaded, no manager: every call passes
  managed       under a pod-manager of its own that controls its channel groups, hints off
  auto          the same under another, automatic hints (without hold kernels while the manager has no other client: `holds`)
For each arm: latency from when a request was due, and how long the host took until the copy, the graph's launch and the wait had returned;
the GPU's time of the graph from events, in requests of their own; how often the process was switched. `more_us` is the difference to bare.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import rig
from order import Order
from serve import percentile

ARMS = ["bare", "inert", "managed", "auto", "bare2"]
MANAGED = ["managed", "auto"]
PARTS = ["latency", "late", "copy", "launch", "wait"]
SLACK = 60.0


class Stage:
    """A service for each arm, all loaded, one at work."""

    def __init__(self, options):
        gpu = rig.Gpu(options.gpu)
        cores = sorted(os.sched_getaffinity(0))
        served, others = (cores[2:4], cores[:2] + cores[4:]) if options.pin and len(cores) >= 6 else (cores, cores)
        os.sched_setaffinity(0, others)
        service = ["taskset", "-c", ",".join(map(str, served)), *gpu.python("torch_serve.py", "--staged")]
        self.managers = {name: rig.Manager([{"name": name, "request": 0.05, "limit": 1.0, "memory": "20Gi", "class": "latency-critical"}], [f"--controls={gpu.controls}"]) for name in MANAGED}
        environments = {
            "bare": gpu.plain(), "inert": gpu.plain(LD_PRELOAD=str(rig.HOOK)),
            "managed": gpu.under(self.managers["managed"], "managed", SLUICE_HINTS="off"), "auto": gpu.under(self.managers["auto"], "auto"),
        }
        self.children = {name: rig.Child(name, service, env) for name, env in environments.items()}
        self.children["bare2"] = self.children["bare"]
        rig.one_by_one({name: self.children[name] for name in environments})

    def block(self, arm, options):
        """One block of an arm's requests."""
        start = time.time() + 0.2
        self.children[arm].ask(f"split {start:.6f} {options.requests + options.timed} {options.period} {options.timed}")
        return self.children[arm].answer((options.requests + options.timed) * options.period / 1e6 + SLACK)


def summary(blocks):
    """Statistics of an arm's pooled blocks."""
    def pooled(part):
        return [value for block in blocks for value in block["split_us"][part]]
    row = {part: {"p50": percentile(pooled(part), 0.5), "p99": percentile(pooled(part), 0.99)} for part in PARTS}
    gpu = [value for block in blocks for value in block["gpu_us"]]
    row |= {"gpu": {"p50": percentile(gpu, 0.5), "p99": percentile(gpu, 0.99)}, "requests": len(pooled("latency")), "blocks_p99": [percentile(block["split_us"]["latency"], 0.99) for block in blocks]}
    row["per_request"] = {what: statistics.median(block["per_request"][what] for block in blocks) for what in blocks[0]["per_request"]}
    return row


def result(options, blocks, order, managers):
    rows = {arm: summary(of) for arm, of in blocks.items() if of}
    for arm, row in rows.items():
        if "bare" in rows:
            row["more_us"] = {part: {q: round(row[part][q] - rows["bare"][part][q], 1) for q in ("p50", "p99")} for part in [*PARTS, "gpu"]}
            row["of_bare"] = {q: round(row["latency"][q] / rows["bare"]["latency"][q], 4) for q in ("p50", "p99")}
    wrong = sorted({arm for arm, of in blocks.items() for block in of if not block["answer_unchanged"]})
    whole = all(len(of) >= options.rounds for of in blocks.values())
    told = {
        "ok": whole and not wrong, "arms": rows,
        "numbers": {f"{arm}: us more than bare at p50, p99": {part: list(more.values()) for part, more in row.get("more_us", {}).items()} for arm, row in rows.items() if arm != "bare"}, "aa_noise": rows["bare2"]["of_bare"] if "bare2" in rows else None, "wrong_answers": wrong,
        "period_us": options.period, "requests": options.requests, "rounds": options.rounds, "timed": options.timed, "pinned": options.pin, **order.result(),
        "grants": {name: manager.grants(name) for name, manager in managers.items()}, "metrics": {name: manager.metrics() for name, manager in managers.items()},
        "holds": {arm: sum(block["holds"]["launched"] for block in of) for arm, of in blocks.items()},
    }
    # Results of an interrupted run, for the run that resumes it.
    return told if whole else {**told, "blocks": blocks}


def earlier(options):
    """Blocks of an interrupted run with the same settings."""
    blocks = {arm: [] for arm in ARMS}
    if options.resume:
        before = json.loads(pathlib.Path(options.resume).read_text())
        same = all(before.get(what) == getattr(options, what) for what in ("requests", "timed", "seed"))
        same = same and before.get("period_us") == options.period and before.get("commit") == rig.machine()["commit"]
        if same and set(before.get("blocks", {})) == set(ARMS):
            done = min(map(len, before["blocks"].values()))
            blocks = {arm: of[:done] for arm, of in before["blocks"].items()}
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=180, help="of an arm in a round")
    parser.add_argument("--timed", type=int, default=20, help="further ones in a round, with events around the graph")
    parser.add_argument("--period", type=float, default=10_000, help="us between arrivals")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True, help="give the service two cores of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order")
    parser.add_argument("--resume", help="go on with the rounds of this result")
    parser.add_argument("--limit", type=int, default=175)
    parser.add_argument("--name", default="lc-overhead")
    options = parser.parse_args()
    rig.limit(options.limit)
    blocks, order = earlier(options), Order(ARMS, options.seed)
    stage = Stage(options)
    for number in range(options.rounds):
        arms = order.round()
        if number < len(blocks["bare"]):
            continue
        made = {arm: stage.block(arm, options) for arm in arms}
        for arm, block in made.items():
            blocks[arm].append(block)
        # Written after each round, because the run may be interrupted.
        told = result(options, blocks, order, stage.managers)
        rig.write(options.name, told, quiet=True)
        rig.say(f"round {number}:", " ".join(f"{arm} {told['arms'][arm]['latency']['p50']:.0f}/{told['arms'][arm]['latency']['p99']:.0f}" for arm in ARMS), "us p50/p99 so far")
    for arm in ARMS[1:]:
        rig.say(arm, {part: tuple(more.values()) for part, more in told["arms"][arm]["more_us"].items()}, "us more than bare at p50 and p99")
    for child in stage.children.values():
        child.stop()
    for manager in stage.managers.values():
        manager.stop()
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
