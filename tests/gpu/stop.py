#!/usr/bin/env python3
"""How soon does a preempted stream stand still, and after how many more kernels? Kernels of 10 us to 10 ms, levels host, device, full.

The program preempts its own stream (sluice_preempt with sync) and reads a counter that the kernels write; see workloads/stop.py.
Nothing may end while the stream stands, every kernel has to have run exactly once, and at level device (`gate`) only the kernel that runs
may end between call and return. Everything known is written after each row.
"""

import argparse
import pathlib
import tempfile

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
    gpu = {}
    with tempfile.TemporaryDirectory(prefix="sluice-stop-") as folder:
        if options.gpu == "sim":
            socket = pathlib.Path(folder) / "gpu.sock"
            (pathlib.Path(folder) / "libcuda.so.1").symlink_to(rig.BUILD / "libcuda.so")
            simulator = rig.Child("simulator", [rig.SLUICE, "sim", "--socket", socket], rig.plain_env())
            rig.wait_for_socket(socket, simulator)
            gpu = {"LD_LIBRARY_PATH": folder, "SLUICE_SIM_SOCKET": str(socket)}
        lengths = [str(us) for us in options.kernel_us]
        command = rig.python("stop.py", "--samples", str(options.samples), "--seconds", str(options.seconds), "--kernel-us", *lengths, "--levels", *options.levels)
        child = rig.Child("stop", command, rig.plain_env(LD_PRELOAD=str(rig.HOOK), **gpu))
        ready = child.answer(60)
        if not ready["has_api"]:
            rig.fail("this hook has no sluice_preempt")
        rows = []
        while len(rows) < len(options.kernel_us) * len(options.levels):
            row = child.answer(options.seconds + 60)
            # Gates are at least 50 us of work apart. One more kernel may end between the look and the call, and the interpreter may
            # let another thread run there.
            by_gate = row["achieved"] == {"device": row["samples"]} and row["kernel_us"] >= 100
            still = row["standing_max"] == 0 and (not by_gate or row["after_p99"] <= 2)
            # What a kernel does to memory comes late on the simulator, in bunches.
            row["ok"] = bool(row["samples"]) and not row["failed"] and row["exact"] and (still or options.gpu == "sim")
            rows.append(row)
            rig.say(row)
            rig.write(options.name, {"ok": all(each["ok"] for each in rows), "rows": rows})
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
