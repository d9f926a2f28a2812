#!/usr/bin/env python3
"""Throughput of one program alone under the hook against the same program without it.

Four processes of the workload are kept: two without the hook (u1, u2), two under it (h1, h2). They run in blocks, one
at a time, so that drift of the GPU hits all alike; the order rotates by one each round. u2/u1 and h2/h1 are the A/A noise that
(h1+h2)/(u1+u2) has to be read against.
"""

import argparse
import statistics
import time

import rig

NAMES = ["u1", "h1", "u2", "h2"]


def ratio(rounds, over, under):
    """Per round: rate of the processes `over` by that of `under`; median and spread."""
    values = [sum(block[n] for n in over) / len(over) / (sum(block[n] for n in under) / len(under)) for block in rounds]
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {**rig.spread(values), "mean": statistics.fmean(values), "standard_error": deviation / len(values) ** 0.5}


def measure(workload, options):
    manager = rig.Manager([{"name": n, "request": 0.5, "limit": 1.0, "memory": "60Gi"} for n in ("h1", "h2")])
    command = rig.python("torch_model.py", workload, *(["--batch", options.batch] if options.batch else []))
    # One start after the other: a program that chooses its kernels by timing them must be alone while it does.
    children, ready = {}, {}
    for name in NAMES:
        children[name] = rig.Child(name, command, manager.env(name) if name[0] == "h" else rig.plain_env())
        ready[name] = children[name].answer(options.start_seconds)
    rig.say(f"{workload}: all four are ready")
    rounds = []
    for number in range(options.rounds):
        block = {}
        for name in NAMES[number % 4:] + NAMES[:number % 4]:
            children[name].ask(f"run {time.time() + 0.1:.6f} {options.block}")
            block[name] = children[name].answer(options.block + 60)["rate"]
        rounds.append(block)
        rig.say(f"{workload} round {number + 1}:", " ".join(f"{n} {block[n]:.2f}/s" for n in NAMES))
    grants, metrics = {n: manager.grants(n) for n in ("h1", "h2")}, manager.metrics()
    for child in children.values():
        child.stop()
    manager.stop()
    result = {
        "grants": grants, "metrics": metrics,
        "hooked_by_unhooked": ratio(rounds, ["h1", "h2"], ["u1", "u2"]), "noise_unhooked": ratio(rounds, ["u2"], ["u1"]),
        "noise_hooked": ratio(rounds, ["h2"], ["h1"]), "rounds": rounds, "ready": ready,
    }
    # Without grants the hook was not active, and the measurement is void.
    result["ok"] = result["hooked_by_unhooked"]["median"] >= 0.998 and min(grants.values()) > 0
    rig.say(f"{workload}: hooked/unhooked {result['hooked_by_unhooked']['median']:.4f}, noise {result['noise_unhooked']['median']:.4f}, grants {grants}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["resnet50", "compiled", "graph"], metavar="resnet50|compiled|graph")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--block", type=float, default=3.0, help="seconds of one block")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--start-seconds", type=float, default=150.0, help="patience for the four starts of a workload")
    parser.add_argument("--limit", type=int, default=560, help="seconds after which everything is ended")
    parser.add_argument("--name", default="overhead", help="the result is $OUT/NAME.json")
    options = parser.parse_args()
    if unknown := set(options.workloads) - {"resnet50", "compiled", "graph"}:
        parser.error(f"unknown workloads: {sorted(unknown)}")
    rig.limit(options.limit)
    found = {}
    for workload in options.workloads:
        found[workload] = measure(workload, options)
        # Written after each workload, so that a later failure keeps the results.
        rig.write(options.name, {"goal": 0.998, "block_seconds": options.block, "workloads": found, "ok": all(f["ok"] for f in found.values())})
    return 0 if all(one["ok"] for one in found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
