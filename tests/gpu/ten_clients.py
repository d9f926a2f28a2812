#!/usr/bin/env python3
"""Ten PyTorch programs, each with a limit of a tenth of the usable memory, fill one GPU: is the device's memory ever exhausted?

NVML is the witness. Each program allocates until it is refused, waits for two readings of the manager, and allocates again. Then NVML
may show no program above its limit by more than a block of 2 MiB. Modules that a library loads afterwards are beyond that: a figure.
"""

import argparse
import subprocess
import time

import rig

MIB = 1 << 20
# A block of the driver.
BLOCK_MIB = 2
# Two readings of NVML by the manager, each every 0.4 s.
READINGS = 1.2


def smi(query):
    done = subprocess.run(["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=True)
    return [[int(word) for word in line.split(",")] for line in done.stdout.splitlines()]


def used_mib():
    """MiB by pid."""
    return dict(smi("compute-apps=pid,used_memory"))


def all_answer(children, line):
    for child in children:
        child.ask(line)
    return [child.answer(90) for child in children]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--limit", type=int, default=150)
    options = parser.parse_args()
    rig.limit(options.limit)
    total, reserved = smi("gpu=memory.total,memory.reserved")[0]
    share = (total - reserved) // options.clients
    names = [f"c{number}" for number in range(options.clients)]
    manager = rig.Manager([{"name": name, "request": 0.1, "limit": 1.0, "memory": f"{share}Mi"} for name in names])
    children = [rig.Child(name, rig.python("fill_beside.py"), manager.env(name)) for name in names]
    ready = [child.answer(120) for child in children]
    contexts = used_mib()
    rows = all_answer(children, "fill")
    for _ in range(2):
        time.sleep(READINGS)
        rows = all_answer(children, "fill")
    full = used_mib()
    gpu_full = smi("gpu=memory.used")[0][0]
    late = all_answer(children, "late")
    time.sleep(READINGS)
    after = used_mib()
    over = {child.name: full[child.process.pid] - share for child in children}
    checks = {
        "each program sees its limit as the GPU's size": all(row["total"] == share * MIB for row in ready),
        "each program is refused by its limit, not by the device": all(row["held"] >= (share - contexts[child.process.pid] - 256) * MIB for row, child in zip(rows, children)),
        "NVML shows no program above its limit and one block": max(over.values()) <= BLOCK_MIB,
        "the device has memory left": gpu_full < total,
    }
    for check, holds in checks.items():
        rig.say("ok  " if holds else "NOT so:", check)
    overshoot = {child.name: after[child.process.pid] - share for child in children}
    rig.say(f"limit {share} MiB; over it when full {over}; after late modules {overshoot}; GPU {gpu_full} of {total} MiB")
    rig.write("ten-clients", {
        "limit_mib": share, "total_mib": total, "reserved_mib": reserved, "context_mib": sorted(contexts.values()), "over_mib": over, "over_after_late_modules_mib": overshoot,
        "late": late, "rows": {child.name: row for child, row in zip(children, rows)}, "gpu_used_mib": gpu_full, "checks": checks, "ok": all(checks.values()),
    })
    for child in children:
        child.stop()
    manager.stop()
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
