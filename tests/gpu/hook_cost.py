#!/usr/bin/env python3
"""What the hook costs a launch-bound program that has the GPU to itself: a language model's tokens back to back, some 300 launches and one wait each.

Fresh processes in each round, one of each arm and pair. They load together; then each in turn, in an order that changes (order.py), generates
tokens on the same two cores, while the others wait. Arms:
  plain, plain2   without the hook; their difference is the A/A noise
  inert           the hook preloaded, no manager: every call passes
  lc, be          under a pod-manager of its own, as its only client, latency-critical or best-effort
  be:NAME=VALUE   `--variant NAME=VALUE[,NAME=VALUE]`: as be, with these environment variables (LD_PRELOAD names another build of the hook)
Reported: the median time per token of each process, and its ratio to that of the `plain` process of the same round and pair.
"""

import argparse
import os
import re
import statistics
import time

import rig
import rounds
from order import Order

SLACK = 60.0
# The goal where the A/A noise is smaller.
GOAL = 0.005
MEASURED = ("median_us", "mean_us", "launch_us", "wait_us")


class Round:
    """One fresh process of each arm and pair, loaded and idle, and the managers of those that have one."""

    def __init__(self, options, gpu, arms, cores):
        self.options, self.cores, self.managers = options, cores, {}
        environments = {f"{arm}.{pair}": self.environment(gpu, arm, f"{arm}.{pair}") for pair in range(options.pairs) for arm in arms}
        command = gpu.python("torch_decode.py", "eager", "--staged")
        self.children = {name: rig.Child(re.sub(r"[^\w.]", "-", name), command, env) for name, env in environments.items()}
        for child in self.children.values():
            child.answer(120)
        for child in self.children.values():
            child.ask("build")
        self.ready = {name: child.answer(120) for name, child in self.children.items()}

    def environment(self, gpu, arm, name):
        kind, _, variant = arm.partition(":")
        more = dict(pair.split("=", 1) for pair in variant.split(",") if pair)
        if kind.startswith("plain"):
            return gpu.plain()
        if kind == "inert":
            return gpu.plain(LD_PRELOAD=str(rig.HOOK))
        level = {"lc": "latency-critical", "be": "best-effort"}[kind]
        client = {"name": kind, "request": 0.5, "limit": 1.0, "memory": "20Gi", "class": level}
        self.managers[name] = rig.Manager([client], [f"--controls={gpu.controls}", *self.options.manager])
        return {**gpu.under(self.managers[name], kind), **more}

    def turn(self, name):
        """Tokens of one process, on the cores of the measured one."""
        child = self.children[name]
        self.move(child, self.cores[0])
        start = time.time() + 0.1
        child.ask(f"tokens {start:.6f} {self.options.seconds}")
        told = child.answer(self.options.seconds + SLACK)
        self.move(child, self.cores[1])
        return told

    @staticmethod
    def move(child, cores):
        for task in os.listdir(f"/proc/{child.process.pid}/task"):
            try:
                os.sched_setaffinity(int(task), cores)
            except ProcessLookupError:
                continue

    def stop(self):
        """Ends its processes. Returns the grants of those under a manager: none means that the hook was not active."""
        grants = {name: manager.grants(name.partition(".")[0].partition(":")[0]) for name, manager in self.managers.items()}
        for child in self.children.values():
            child.ask("quit")
        for child in self.children.values():
            child.stop()
        for manager in self.managers.values():
            manager.stop()
        return grants


def process_of(turns):
    """What a process measured: medians over its turns."""
    row = {what: statistics.median(turn[what] for turn in turns) for what in MEASURED}
    return {**row, "tokens": sum(turn["tokens"] for turn in turns), "turns_us": [round(turn["median_us"], 1) for turn in turns], "per_token": turns[-1]["per_token"]}


def result(options, processes, order, grants):
    """Each arm's processes, and their ratios to the `plain` ones of the same round and pair."""
    rows = {}
    for arm, of in processes.items():
        rows[arm] = row = {what: rig.spread([process[what] for process in of]) for what in MEASURED}
        for what in MEASURED:
            ratios = [process[what] / plain[what] for process, plain in zip(of, processes["plain"])]
            error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
            row[what] |= {"of_plain": row[what]["median"] / statistics.median(plain[what] for plain in processes["plain"])}
            row[what] |= {"paired_of_plain": {**rig.spread(ratios), "standard_error": error}}
        row["processes"] = of
    noise = abs(rows["plain2"]["median_us"]["of_plain"] - 1) if "plain2" in rows else 0.0
    goals = {}
    for arm in ("lc", "be"):
        if arm in rows:
            more = rows[arm]["median_us"]["of_plain"] - 1
            goals[arm] = f"{more:+.4f}, at most {max(noise, GOAL):.4f}: {'met' if more <= max(noise, GOAL) else 'NOT MET'}"
    numbers = {arm: {what: [round(row[what]["median"], 1), round(row[what]["of_plain"], 4)] for what in MEASURED} for arm, row in rows.items()}
    return {
        "ok": all(grants.values()), "goals": goals, "numbers": numbers, "aa_noise": noise, "rows": rows, "grants": grants, **order.result(),
        "rounds": options.rounds, "pairs": options.pairs, "turns": options.turns, "seconds": options.seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--arms", nargs="+", default=["plain", "lc", "be", "plain2"], help="plain among them")
    parser.add_argument("--variant", action="append", default=[], help="NAME=VALUE[,NAME=VALUE]: a further arm, best-effort with these environment variables")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=2, help="processes of each arm in a round")
    parser.add_argument("--turns", type=int, default=2, help="of each process in a round")
    parser.add_argument("--seconds", type=float, default=0.7, help="of a turn")
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order")
    parser.add_argument("--limit", type=int, default=240)
    parser.add_argument("--name", default="hook-cost")
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-managers")
    options = parser.parse_args()
    rig.limit(options.limit)
    arms = options.arms + [f"be:{variant}" for variant in options.variant]
    gpu, every = rig.Gpu(options.gpu), sorted(os.sched_getaffinity(0))
    measured, others = (every[2:4], every[:2] + every[4:]) if len(every) >= 6 else (every, every)
    os.sched_setaffinity(0, others)
    processes, grants = {arm: [] for arm in arms}, {}
    order = Order([f"{arm}.{pair}" for pair in range(options.pairs) for arm in arms], options.seed)
    for number in rounds.numbers(options):
        round_ = Round(options, gpu, arms, (measured, others))
        told = {name: [] for name in round_.children}
        names = order.round()
        for turn in range(options.turns):
            # The second turns come in the reverse order, so that a drift falls on all alike.
            for name in names if turn % 2 == 0 else reversed(names):
                told[name].append(round_.turn(name))
        for name, turns in told.items():
            processes[name.rpartition(".")[0]].append(process_of(turns))
        grants |= {f"{name} round {number}": count for name, count in round_.stop().items()}
        found = {**result(options, processes, order, grants), "ready": round_.ready}
        rig.write(options.name, found, quiet=True)
        rig.say(f"round {number}:", ", ".join(f"{arm} {row['median_us']['median']:.0f} ({row['median_us']['of_plain']:.4f})" for arm, row in found["rows"].items()), "us per token so far")
    for arm, told in found["goals"].items():
        rig.say(f"{arm}: {told}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
