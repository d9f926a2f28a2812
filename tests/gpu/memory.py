#!/usr/bin/env python3
"""A 10 GiB limit holds for PyTorch, whichever way it allocates, and the process recovers from running into it.

The same program runs with each of PyTorch's three allocators: cudaMalloc, expandable segments (cuMemCreate) and
cudaMallocAsync. What the GPU itself says is used (NVML) is read beside it, for it does not pass the hook.
"""

import argparse
import subprocess

import rig

GIB = 1 << 30
ALLOCATORS = {"native": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def used_on_gpu():
    """MiB in use on the whole GPU, as NVML counts it; None where nvidia-smi does not report it."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def judge(full, last, limit, chunk):
    """The checks by name."""
    return {
        "mem_get_info says the limit": full["total"] == limit,
        "properties say the limit": full["properties_total"] == limit,
        "free starts at most at the limit": full["free_at_start"] <= limit,
        "torch.cuda.OutOfMemoryError": (full["out_of_memory"] or "").startswith("torch"),
        "never more than the limit": full["held"] <= limit,
        # PyTorch rounds to 2 MiB or 20 MiB segments, and the context's memory counts.
        "at the limit, not before": full["held"] >= limit - GIB - chunk,
        "contents": full["contents_ok"],
        "free comes back": last["free_after"] >= limit - GIB,
        "works after": last["works_after"],
        "can fill again": last["refilled"] == 8 * GIB,
    }


def one(manager, name, setting, limit, patience):
    chunk = 256 << 20
    before = used_on_gpu()
    env = manager.env("m", **({"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting} if setting else {}))
    child = rig.Child(name, rig.python("fill_memory.py", "--chunk", chunk), env)
    full = child.answer(patience)
    on_gpu = used_on_gpu()
    child.ask("go on")
    last = child.answer(patience)
    child.process.wait(30)
    checks = judge(full, last, limit, chunk)
    over = None if on_gpu is None else on_gpu - before - (limit >> 20)
    # The program has freed one chunk by then, and its context counts towards the limit. 2 MiB: a block of the driver.
    checks["NVML shows no more than the limit"] = over is None or over <= 2
    rig.say(f"{name}: held {full['held'] / GIB:.2f} GiB, {full['out_of_memory'] and full['out_of_memory'][:90]}")
    for check, held in checks.items():
        if not held:
            rig.say(f"{name}: NOT so: {check}")
    return {"at_limit": full, "after": last, "gpu_used_mib_before": before, "gpu_used_mib_at_limit": on_gpu, "over_limit_mib": over, "checks": checks, "ok": all(checks.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=10)
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=list(ALLOCATORS))
    parser.add_argument("--limit", type=int, default=300, help="seconds after which everything is ended")
    options = parser.parse_args()
    rig.limit(options.limit)
    manager = rig.Manager([{"name": "m", "request": 1.0, "limit": 1.0, "memory": f"{options.gib}Gi"}])
    found = {name: one(manager, name, ALLOCATORS[name], options.gib * GIB, 90) for name in options.allocators}
    manager.stop()
    ok = all(one["ok"] for one in found.values())
    rig.write("memory", {"limit_bytes": options.gib * GIB, "allocators": found, "ok": ok})
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
