#!/usr/bin/env python3
"""Two PyTorch trainings share a GPU 0.3 / 0.7 under the hook.

Four processes run the same ResNet-50 training: a and b under the hook, c and d without it. Alone rates are measured in the
same run, before and after the pair, so that drift shows. A tenant's share is its rate in the pair's window over its rate
alone and unhooked; windows of a pair start together.
"""

import argparse
import time

import rig


def window(children, seconds, slack=60.0):
    """Runs one window on all children at the same time; returns their answers."""
    start = time.time() + 0.5
    for child in children:
        child.ask(f"run {start:.6f} {seconds}")
    return [child.answer(seconds + slack) for child in children]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quota", type=float, nargs=2, default=[0.3, 0.7])
    parser.add_argument("--seconds", type=float, default=60.0, help="the pair's window")
    parser.add_argument("--alone-seconds", type=float, default=12.0)
    parser.add_argument("--stock-seconds", type=float, default=15.0, help="the pair without the hook, 0 to leave it out")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int, default=420, help="seconds after which everything is ended")
    options = parser.parse_args()
    rig.limit(options.limit)
    quotas = options.quota
    manager = rig.Manager([{"name": n, "request": q, "limit": 1.0, "memory": "60Gi"} for n, q in zip("ab", quotas)])
    command = rig.python("torch_model.py", "resnet50", "--batch", options.batch)
    tenants = {n: rig.Child(n, command, manager.env(n)) for n in "ab"}
    tenants |= {n: rig.Child(n, command, rig.plain_env()) for n in "cd"}
    ready = {name: child.answer(180) for name, child in tenants.items()}
    rig.say("all four are ready:", ready["a"]["device"])

    alone = {name: [] for name in tenants}
    def measure_alone():
        for name, child in tenants.items():
            rate = window([child], options.alone_seconds)[0]["rate"]
            alone[name].append(rate)
            rig.say(f"{name} alone: {rate:.2f} steps/s, {rate * options.batch:.0f} img/s")

    measure_alone()
    pair = window([tenants["a"], tenants["b"]], options.seconds)
    rig.say("pair under the hook:", pair)
    stock = window([tenants["c"], tenants["d"]], options.stock_seconds) if options.stock_seconds else []
    measure_alone()
    grants, metrics = {name: manager.grants(name) for name in "ab"}, manager.metrics()

    def shares(rates, names):
        of_alone = [rate / (sum(alone[name]) / len(alone[name])) for rate, name in zip(rates, names)]
        return {"rates": rates, "of_alone": of_alone, "sum_of_alone": sum(of_alone), "of_sum": [s / sum(of_alone) for s in of_alone]}

    rates = [answer["rate"] for answer in pair]
    hooked = shares(rates, "cd")
    off = max(abs(share - quota) for share, quota in zip(hooked["of_alone"], quotas))
    result = {
        "quota": quotas, "alone_rates": alone, "pair_unhooked_alone_as_base": hooked, "pair_hooked_alone_as_base": shares(rates, "ab"),
        "pair_windows": pair, "stock_pair": shares([answer["rate"] for answer in stock], "cd") if stock else None,
        "farthest_from_quota": off, "batch": options.batch, "ready": ready, "grants": grants, "metrics": metrics,
        "ok": off <= 0.03 and hooked["sum_of_alone"] >= 0.93 and min(grants.values()) > 0,
    }
    rig.say(f"shares of alone {hooked['of_alone'][0]:.3f} / {hooked['of_alone'][1]:.3f}, sum {hooked['sum_of_alone']:.3f}, asked {quotas}")
    rig.write("share", result)
    for child in tenants.values():
        child.stop()
    manager.stop()
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
