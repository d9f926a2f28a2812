#!/usr/bin/env python3
"""Best-effort trainings share a GPU: 30/70, 10/20/30/40, and the latter with the largest idle for a while.

Every tenant is the same ResNet-50 training. A share is its rate in a window over the rate of one alone without the hook, which is
measured before and after everything else in the same run; the windows of one arm start together.
"""

import argparse
import time

import rig


def window(children, seconds, slack=60.0):
    """Runs one window on each child at the same time; their rates."""
    start = time.time() + 0.5
    for child in children:
        child.ask(f"run {start:.6f} {seconds}")
    return [child.answer(seconds + slack)["rate"] for child in children]


class Group:
    """Tenants under a manager of their own, idle until a window asks them."""

    def __init__(self, quotas, command, arguments):
        names = [f"t{int(100 * quota)}" for quota in quotas]
        clients = [{"name": n, "request": q, "limit": 1.0, "memory": "20Gi"} for n, q in zip(names, quotas)]
        self.quotas, self.manager = quotas, rig.Manager(clients, arguments)
        self.children, self.ready = [], []
        for name in names:
            child = rig.Child(name, command, self.manager.env(name))
            self.ready.append(child.answer(120))
            self.children.append(child)
            rig.say(name, "is ready")

    def shares(self, seconds, alone, active=None):
        """What each active tenant gets of `alone`, and of the sum."""
        active = active or list(range(len(self.children)))
        rates = window([self.children[index] for index in active], seconds)
        of_alone = [rate / alone for rate in rates]
        total = sum(of_alone)
        of_sum = [share / total for share in of_alone]
        asked = [self.quotas[index] / sum(self.quotas[index] for index in active) for index in active]
        return {
            "asked_of_sum": asked, "rates": rates, "of_alone": of_alone, "sum_of_alone": total, "of_sum": of_sum,
            "farthest_points": 100 * max(abs(got - want) for got, want in zip(of_sum, asked)), "seconds": seconds,
        }

    def stop(self):
        for child in self.children:
            child.stop()
        self.manager.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--alone-seconds", type=float, default=10.0)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int, default=330)
    parser.add_argument("--manager", nargs="*", default=["--controls=auto"], help="more arguments of the pod-managers")
    parser.add_argument("--name", default="tenants")
    options = parser.parse_args()
    rig.limit(options.limit)
    command = rig.python("torch_model.py", "resnet50", "--batch", options.batch)
    lone = rig.Child("alone", command, rig.plain_env())
    lone.answer(120)
    rows, alone, metrics = {}, [], {}

    def measure_alone():
        alone.append(window([lone], options.alone_seconds)[0])
        rig.say(f"alone {alone[-1] * options.batch:.0f} img/s")

    def arm(name, group, seconds, active=None):
        rows[name] = group.shares(seconds, alone[0], active)
        rig.say(name, {k: [round(v, 4) for v in rows[name][k]] for k in ("of_alone", "of_sum")}, "sum", round(rows[name]["sum_of_alone"], 4))

    def of_steering(group):
        return {k: v for k, v in group.manager.metrics().items() if any(word in k for word in ("control", "turn", "level"))}

    measure_alone()
    pair = Group([0.3, 0.7], command, options.manager)
    arm("pair 30/70", pair, options.seconds)
    metrics["pair"] = of_steering(pair)
    pair.stop()
    four = Group([0.1, 0.2, 0.3, 0.4], command, options.manager)
    arm("four 10/20/30/40", four, options.seconds)
    arm("three, the fourth idle", four, options.idle_seconds, [0, 1, 2])
    metrics["four"] = of_steering(four)
    four.stop()
    measure_alone()
    lone.stop()
    base = sum(alone) / len(alone)
    for row in rows.values():
        row["sum_of_alone_both_bases"] = row["sum_of_alone"] * alone[0] / base
    ok = all(row["farthest_points"] <= 0.5 for row in rows.values()) and rows["pair 30/70"]["sum_of_alone"] >= 0.98 and rows["four 10/20/30/40"]["sum_of_alone"] >= 0.97
    rig.write(options.name, {"ok": ok, "rows": rows, "alone_rates": alone, "batch": options.batch, "steering": metrics})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
