#!/usr/bin/env python3
"""How soon does a preempted stream stand still, and after how many more kernels? Kernels of 10 us to 10 ms, levels host, device, full.

The program preempts its own stream (sluice_preempt with sync) and reads a counter that the kernels write; see workloads/stop.py.
Nothing may end while the stream stands, every kernel has to have run exactly once, and at level device (`gate`) only the kernel that runs
may end between call and return. Everything known is written after each row.
"""

import argparse

import rig


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--kernel-us", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--levels", nargs="+", default=["host", "device", "full"])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0, help="at most, for one length and level")
    parser.add_argument("--limit", type=int, default=240)
    parser.add_argument("--name", default="stop")
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu, rows = rig.Gpu(options.gpu), []
    for level in options.levels:
        # A process for each level, so that one failure does not end the others.
        command = rig.python("stop.py", "--samples", options.samples, "--seconds", options.seconds, "--kernel-us", *options.kernel_us, "--levels", level)
        child = rig.Child(f"stop-{level}", command, gpu.plain(LD_PRELOAD=str(rig.HOOK)))
        if not child.answer(60)["has_api"]:
            rig.fail("this hook has no sluice_preempt")
        for kernel_us in options.kernel_us:
            try:
                row = child.answer(options.seconds + 30)
            except SystemExit:
                rows.append({"kernel_us": kernel_us, "level": level, "ok": False, "why": child.errors()[-500:]})
                break
            # Gates are at least 50 us of work apart. One more kernel may end between the reading and the call, and the interpreter may
            # switch threads there.
            by_gate = row["achieved"] == {"device": row["samples"]} and row["kernel_us"] >= 100
            still = row["standing_max"] == 0 and (not by_gate or row["after_p99"] <= 2)
            # On the simulator a kernel's stores become visible late and in groups.
            row["ok"] = bool(row["samples"]) and not row["failed"] and row["exact"] and (still or options.gpu == "sim")
            rows.append(row)
            rig.say(row)
            rig.write(options.name, {"ok": False, "rows": rows}, quiet=True)
        child.stop(10)
    rig.write(options.name, {"ok": all(row["ok"] for row in rows), "rows": rows})
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
