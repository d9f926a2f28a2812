#!/usr/bin/env python3
"""What the hook adds to 300 launches and one wait, in a program that does nothing else (tests/preload/programs/launch_bound.c).

A token of hook_cost.py has milliseconds of Python, which differ between two processes by more than the hook costs. Here a token is 300 launches of
an empty kernel, 30 copies on the GPU, one copy to the host and one wait. Processes of all arms are loaded and take turns on the same two cores:
  plain, plain2   without the hook; their difference is the A/A noise
  lc, be          under a pod-manager of its own, as its only client, latency-critical or best-effort
  be-beside-lc    best-effort, with an idle latency-critical process attached to the same manager
Reported: the median time of a token of each turn, in us, and what it is more than `plain` of the same round and pair. `ratio` compares processes: for
each pair the median of its turns over that of `plain`, and of these the median and the middle half. `plain2` is the noise of that.
"""

import argparse
import os
import statistics
import tempfile

import rig
from order import Order

PROGRAM = rig.REPO / "tests" / "preload" / "programs" / "launch_bound.c"
LAUNCHES = 300


class Program(rig.Child):
    """The program: a block of tokens for each line."""

    def line(self, word, timeout=60):
        while True:
            _, line = self.lines.get(timeout=timeout)
            if line is None:
                rig.fail(f"{self.name} ended with status {self.process.wait()}\n{self.errors()}")
            if line.startswith(word):
                return line.split()

    def block(self):
        self.ask("")
        words = self.line("token")
        return {name: int(value) / 1000 for name, value in zip(words[::2], words[1::2])}


def usual(turns, name):
    """The median of a process's turns, us."""
    return statistics.median(turn["token"] for turn in turns[name])


def middle(values):
    """The median of some values, and the quarters around it."""
    if len(values) < 2:
        return {"median": values[0]}
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower_quartile": low, "upper_quartile": high}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--pairs", type=int, default=10, help="processes of each arm")
    parser.add_argument("--tokens", type=int, default=40, help="of a turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=240)
    parser.add_argument("--name", default="launch-bound")
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu, folder = rig.Gpu(options.gpu), tempfile.TemporaryDirectory()
    program, managers, children = f"{folder.name}/launch_bound", [], {}
    rig.compile(PROGRAM, program, ["-L", gpu.env["LD_LIBRARY_PATH"]] if gpu.simulated else [])

    def start(name, env):
        children[name] = Program(name, [program, options.tokens, LAUNCHES, 0, options.rounds], env)
        children[name].line("ready")

    for pair in range(options.pairs):
        for arm in ("plain", "plain2"):
            start(f"{arm}.{pair}", gpu.plain())
        for arm in ("lc", "be", "be-beside-lc"):
            kinds = {"lc": "latency-critical", "be": "best-effort"}
            clients = [{"name": n, "request": 0.4, "limit": 1.0, "memory": "8Gi", "class": c} for n, c in kinds.items()]
            managers.append(rig.Manager(clients, [f"--controls={gpu.controls}"]))
            if arm == "be-beside-lc":
                start(f"idle.{pair}", gpu.under(managers[-1], "lc"))
            start(f"{arm}.{pair}", gpu.under(managers[-1], arm.partition("-")[0]))
    cores = sorted(os.sched_getaffinity(0))
    names = [name for name in children if not name.startswith("idle")]
    for name in names:
        for task in os.listdir(f"/proc/{children[name].process.pid}/task"):
            os.sched_setaffinity(int(task), set(cores[-2:]))
    order, turns = Order(names, options.seed), {name: [] for name in names}
    for _ in range(options.rounds):
        for name in order.round():
            turns[name].append(children[name].block())
    rows = {}
    for arm in dict.fromkeys(name.partition(".")[0] for name in names):
        pairs = range(options.pairs)
        more = [one["token"] - plain["token"] for pair in pairs for one, plain in zip(turns[f"{arm}.{pair}"], turns[f"plain.{pair}"])]
        tokens = [one["token"] for pair in pairs for one in turns[f"{arm}.{pair}"]]
        firsts = [one["first"] for pair in pairs for one in turns[f"{arm}.{pair}"]]
        ratios = [usual(turns, f"{arm}.{pair}") / usual(turns, f"plain.{pair}") for pair in pairs]
        rows[arm] = {"token_us": rig.spread(tokens), "more_us": rig.spread(more), "first_us": statistics.median(firsts), "ratio": middle(ratios), "ratios": ratios}
        rig.say(arm, {k: round(rows[arm][k]["median"], 1) for k in ("token_us", "more_us")}, "ratio", {k: round(v, 4) for k, v in rows[arm]["ratio"].items()})
    rig.write(options.name, {"ok": True, "rows": rows, "turns": turns, "launches": LAUNCHES, **order.result()})
    for child in children.values():
        child.stop()
    for manager in managers:
        manager.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
