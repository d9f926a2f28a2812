#!/usr/bin/env python3
"""Can programs without the hook be held from outside, and do two of them share the GPU by quanta? About 60 seconds.

Two best-effort generators run as they are: no LD_PRELOAD, no manager, nothing announced. `sluice hold` copies their descriptors
of the control device, asks the driver for their handles, and stops and starts them. Judged by what they complete.

  tests/gpu/outside.py [--gpu sim]       needs target/release/sluice; for `sim` a simulator that SLUICE_SIM_SOCKET and LD_LIBRARY_PATH name, or none
"""

import argparse
import os
import subprocess
import time

import rig


def load(name, kernel_us):
    """A generator without the hook."""
    return rig.Load(name, rig.simulated_env(SLUICE_SIM_LABEL=name), kernel_us, depth=16)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--kernel-us", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=4.0, help="each window")
    parser.add_argument("--limit", type=int, default=88)
    options = parser.parse_args()
    rig.limit(options.limit)
    if options.gpu == "sim" and "SLUICE_SIM_SOCKET" not in os.environ:
        os.environ.update(rig.Gpu("sim").env)
    simulated = ["--simulated"] if options.gpu == "sim" else []
    result, checks, holds = {"kernel_us": options.kernel_us, "rates": {}}, {}, []
    loads = []

    def hold(name, *arguments):
        child = rig.Child(name, [rig.SLUICE, "hold", *simulated, *arguments], rig.simulated_env())
        holds.append(child)
        since = time.monotonic()
        said = child.answer(30)
        result.setdefault("held_after_s", {})[name] = time.monotonic() - since
        result.setdefault("said", {})[name] = said
        rig.say(f"{name}: {said}")
        return child

    def let_go(child):
        child.process.stdin.close()
        said = child.answer(15)
        code = child.process.wait(15)
        result["said"][child.name + " end"] = said
        rig.say(f"{child.name}: {said}, status {code}")
        return code == 0

    def window(name):
        time.sleep(0.7)
        result["rates"][name] = found = rig.load_rates(loads, options.seconds)
        rig.say(f"{name}: {', '.join(f'{rate:.0f}/s' for rate in found)}")
        return found

    try:
        a = load("a", options.kernel_us)
        loads.append(a)
        [alone] = window("a alone")
        b = load("b", options.kernel_us)
        loads.append(b)
        result["device"] = a.started["device"]
        window("both, untouched")

        for by in ("groups", "lock"):
            child = hold(f"hold {by}", "--pid", a.pid, "--by", by)
            checks[f"by {by}: it is held"] = result["said"][child.name].get("by") == by
            rate_a, rate_b = window(f"a held by {by}")
            checks[f"by {by}: the held program stops, the other has all"] = rate_a <= 0.01 * alone and rate_b >= 0.9 * alone
            checks[f"by {by}: it is let go"] = let_go(child)
            rate_a, _ = window(f"a let go by {by}")
            checks[f"by {by}: it goes on"] = rate_a >= 0.2 * alone

        # Longer, because progress is reported every half second.
        options.seconds = max(options.seconds, 10.0)
        child = hold("turns", "--pid", a.pid, "--pid", b.pid, "--shares", "30,70")
        rate_a, rate_b = window("turns 30/70")
        checks["turns: let go"] = let_go(child)
        share = rate_a / max(1e-9, rate_a + rate_b)
        result["share_of_a_by_turns"], result["sum_by_turns"] = share, (rate_a + rate_b) / alone
        checks["turns: 0.27 to 0.33 of what was done"] = 0.27 <= share <= 0.33
        checks["turns: the sum is at least 0.9 of one alone"] = rate_a + rate_b >= 0.9 * alone

        # The command is killed: the held program runs again.
        child = hold("killed", "--pid", a.pid, "--by", "groups")
        child.process.kill()
        child.process.wait(10)
        options.seconds = 4.0
        rate_a, _ = window("after the command was killed")
        checks["a killed command leaves no program held"] = rate_a >= 0.2 * alone

        result["endings"] = []
        for each in loads:
            each.process.stdin.close()
            final = each.answer(20)
            while final["record"] != "be_final":
                final = each.answer(20)
            each.process.wait(20)
            result["endings"].append({"errors": final["errors"], "completed": final["completed"], "launches": final["launches"]})
        checks["nothing was lost"] = all(not end["errors"] and end["completed"] == end["launches"] for end in result["endings"])
    finally:
        for child in holds:
            child.stop()
        alive = [each for each in loads if each.process.poll() is None]
        if alive:
            release = [str(rig.SLUICE), "hold", *simulated, "--release", *[w for each in alive for w in ("--pid", str(each.pid))]]
            subprocess.run(release, timeout=15, check=False, env=rig.simulated_env())
        result["checks"], result["ok"] = checks, bool(checks) and all(checks.values())
        for name, good in checks.items():
            rig.say("ok  " if good else "FAIL", name)
        rig.write("outside", result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
