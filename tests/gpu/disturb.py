#!/usr/bin/env python3
"""Shares of best-effort clients over every window of a second, in the steady state and after the pod-manager was stopped for 4 s.

Clients of 30/70 and of 10/20/30/40 launch kernels of 2 ms back to back and record when each kernel ends. A client's share of a window
is its part of the kernels that ended in it. Bars: over a whole span the shares are within 0.3 points of the requests, and over windows
of a second, a tenth of a second apart, within a quantum (50 ms: 5 points) at the 99th percentile. Both hold again from 2 s after the
stop (SIGSTOP) on.
"""

import argparse
import bisect
import os
import signal
import time

import rig

KERNEL_US = 2000
# The pod-manager's quantum, and the bar of a whole span where a quantum is less.
QUANTUM_S, SPAN_POINTS = 0.05, 0.3
# Time before the first span, and from the end of the stop to the second.
SETTLE_S = 3.0
SETTLED_S = 2.0
STOP_S = 4.0
WINDOW_S, STEP_S = 1.0, 0.1
GROUPS = {"pair 30/70": [0.3, 0.7], "four 10/20/30/40": [0.1, 0.2, 0.3, 0.4]}


def shares(ends, begin, end):
    """Each client's part of the kernels that ended between two times; `ends` has the sorted times of each client."""
    counts = [bisect.bisect_left(times, end) - bisect.bisect_left(times, begin) for times in ends]
    return [count / max(1, sum(counts)) for count in counts]


def farthest(found, asked):
    return 100 * max(abs(share - want) for share, want in zip(found, asked))


def judge(ends, asked, begin, seconds):
    """The shares of a span, and how far those of its windows are from the requests, in points."""
    count = int((seconds - WINDOW_S) / STEP_S + 1e-9) + 1
    windows = [shares(ends, begin + n * STEP_S, begin + n * STEP_S + WINDOW_S) for n in range(max(1, count))]
    off = sorted(farthest(found, asked) for found in windows)
    whole = shares(ends, begin, begin + seconds)
    result = {
        "shares": whole, "span_points": farthest(whole, asked), "span_bar": max(SPAN_POINTS, 100 * QUANTUM_S / seconds),
        "window_points_p99": off[min(len(off) - 1, int(0.99 * len(off)))], "window_points_max": off[-1], "window_bar": 100 * QUANTUM_S,
        "windows": len(off), "kernels": sum(bisect.bisect_left(t, begin + seconds) - bisect.bisect_left(t, begin) for t in ends),
    }
    result["ok"] = result["span_points"] <= result["span_bar"] and result["window_points_p99"] <= result["window_bar"]
    return result


class Tenant(rig.Child):
    """Kernels back to back; idle until told to go."""

    def __init__(self, name, env):
        super().__init__(name, [rig.SLUICE_DEV, "bench", "disturb-process", "--kernel-us", KERNEL_US, "--completions"], env)
        self.answer(60)

    def ends(self):
        """Times at which kernels ended, seconds of CLOCK_MONOTONIC."""
        self.ask('"completions"')
        return [ns / 1e9 for ns in self.answer(60)["completions"]]


def measure(gpu, quotas, seconds, arguments):
    """Both spans of one group."""
    names = [f"t{round(100 * quota)}" for quota in quotas]
    clients = [{"name": n, "request": q, "limit": 1.0, "memory": "8Gi"} for n, q in zip(names, quotas)]
    manager = rig.Manager(clients, [f"--controls={gpu.controls}", "--on-manager-loss=open", *arguments])
    tenants = [Tenant(name, gpu.under(manager, name)) for name in names]
    for tenant in tenants:
        tenant.ask('"go"')
    time.sleep(SETTLE_S)
    steady = time.monotonic()
    time.sleep(seconds)
    os.kill(manager.child.process.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    time.sleep(STOP_S)
    os.kill(manager.child.process.pid, signal.SIGCONT)
    continued = time.monotonic()
    time.sleep(SETTLED_S + seconds)
    metrics = {k: v for k, v in manager.metrics().items() if any(word in k for word in ("control", "turn", "level"))}
    ends = [tenant.ends() for tenant in tenants]
    for tenant in tenants:
        tenant.stop()
    manager.stop()
    return {
        "asked": quotas,
        "steady": judge(ends, quotas, steady, seconds),
        # Not judged: with the manager stopped, clients run by the driver's time slices.
        "while_stopped": shares(ends, stopped, continued),
        "after_stop": judge(ends, quotas, continued + SETTLED_S, seconds),
        "metrics": metrics,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0, help="each span; there are two of each group")
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--limit", type=int, default=295)
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-managers")
    parser.add_argument("--name", default="disturb")
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu, rows = rig.Gpu(options.gpu), {}
    for name, quotas in GROUPS.items():
        rows[name] = measure(gpu, quotas, options.seconds, options.manager)
        for span in ("steady", "after_stop"):
            rig.say(name, span, {k: v if isinstance(v, (bool, list)) else round(v, 3) for k, v in rows[name][span].items()})
        done = len(rows) == len(GROUPS)
        ok = all(row[span]["ok"] for row in rows.values() for span in ("steady", "after_stop")) if done else None
        rig.write(options.name, {"ok": ok, "rows": rows, "kernel_us": KERNEL_US, "seconds": options.seconds, "stop_s": STOP_S}, quiet=not done)
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
