#!/usr/bin/env python3
"""Best-effort trainings share a GPU: 30/70, 10/20/30/40, and the latter with the largest idle for half of the time.

Every tenant is the same ResNet-50 training. A share is its rate in a window over the rate of one alone without the hook, which is
measured before and after everything else in the same run; the windows of one arm start together.
"""

import argparse
import time

import rig


def window(children, seconds, slack=60.0):
    """Runs a window of this many seconds on all children at the same time; returns their rates."""
    start = time.time() + 0.5
    for child, length in zip(children, seconds):
        child.ask(f"run {start:.6f} {length}")
    return [child.answer(max(seconds) + slack)["rate"] for child in children]


def expected(quotas, active):
    """Shares of a window in which each client is active for its first `active` part: at each time in proportion among the active clients."""
    shares, begin = [0.0] * len(quotas), 0.0
    for end in sorted(set(active)):
        there = [index for index, part in enumerate(active) if part >= end]
        for index in there:
            shares[index] += (end - begin) * quotas[index] / sum(quotas[other] for other in there)
        begin = end
    return shares


class Group:
    """Tenants under a manager, idle until a window starts."""

    def __init__(self, gpu, quotas, command, arguments):
        names = [f"t{int(100 * quota)}" for quota in quotas]
        clients = [{"name": n, "request": q, "limit": 1.0, "memory": "20Gi"} for n, q in zip(names, quotas)]
        self.quotas, self.manager = quotas, rig.Manager(clients, [f"--controls={gpu.controls}", *arguments])
        self.named = {name: rig.Child(name, command, gpu.under(self.manager, name)) for name in names}
        self.children = list(self.named.values())

    def shares(self, seconds, alone, active=None):
        """What each tenant gets of `alone` over the whole window, and of the sum; `active` says for which part each is."""
        active = active or [1.0] * len(self.children)
        rates = window(self.children, [seconds * part for part in active])
        of_alone = [rate * part / alone for rate, part in zip(rates, active)]
        total = sum(of_alone)
        of_sum = [share / total for share in of_alone]
        asked = expected(self.quotas, active)
        return {
            "asked_of_sum": asked, "active": active, "rates": rates, "of_alone": of_alone, "sum_of_alone": total, "of_sum": of_sum,
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
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-managers")
    parser.add_argument("--name", default="tenants")
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu = rig.Gpu(options.gpu)
    command = gpu.python("torch_model.py", "resnet50", "--batch", options.batch, "--staged")
    # All programs load together before the measurement; a program without a window does nothing.
    lone = rig.Child("alone", command, gpu.plain())
    pair = Group(gpu, [0.3, 0.7], command, options.manager)
    four = Group(gpu, [0.1, 0.2, 0.3, 0.4], command, options.manager)
    ready = rig.one_by_one({"alone": lone, **{f"pair.{name}": child for name, child in pair.named.items()}, **{f"four.{name}": child for name, child in four.named.items()}})
    rows, alone, metrics = {}, [], {}

    def measure_alone():
        alone.append(window([lone], [options.alone_seconds])[0])
        rig.say(f"alone {alone[-1] * options.batch:.0f} img/s")

    def arm(name, group, seconds, active=None):
        rows[name] = group.shares(seconds, alone[0], active)
        rig.write(options.name, {"ok": None, "rows": rows, "alone_rates": alone, "batch": options.batch}, quiet=True)
        rig.say(name, {k: [round(v, 4) for v in rows[name][k]] for k in ("of_alone", "of_sum")}, "sum", round(rows[name]["sum_of_alone"], 4))

    def of_channel_groups(group):
        return {k: v for k, v in group.manager.metrics().items() if any(word in k for word in ("control", "turn", "level"))}

    measure_alone()
    arm("pair 30/70", pair, options.seconds)
    metrics["pair"] = of_channel_groups(pair)
    pair.stop()
    arm("four 10/20/30/40", four, options.seconds)
    arm("the fourth idle half of the time", four, options.idle_seconds, [1.0, 1.0, 1.0, 0.5])
    metrics["four"] = of_channel_groups(four)
    four.stop()
    measure_alone()
    lone.stop()
    base = sum(alone) / len(alone)
    for row in rows.values():
        row["sum_of_alone_both_bases"] = row["sum_of_alone"] * alone[0] / base
    ok = all(row["farthest_points"] <= 0.5 for row in rows.values()) and rows["pair 30/70"]["sum_of_alone"] >= 0.98 and rows["four 10/20/30/40"]["sum_of_alone"] >= 0.97
    rig.write(options.name, {"ok": ok, "rows": rows, "alone_rates": alone, "batch": options.batch, "ready": ready, "steering": metrics})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
