#!/usr/bin/env python3
"""Latency-critical tasks of the Python package beside best-effort kernels of 1 ms in the same process: what is added to their latency?

Arms, in an order that changes from round to round:
  alone, alone2   without best-effort tasks; their difference is the A/A noise
  none            stream priorities alone
  host, device    the best-effort stream is preempted at this level
  be-alone        the best-effort tasks without latency-critical ones

Then tasks of PyTorch, CuPy and numba, where they are installed, and examples/cpp compiled by c++ and nvcc.

Goal: at `device`, p99 is at most one kernel (1 ms) more than alone. The package is searched in .gpu/python and where Python finds it.
Before packing:

    .ci/run python && pip install --no-deps --upgrade --target .gpu/python target/python/wheels/sluice-*.whl
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import rig
import rounds
from order import Order

PACKAGES = [rig.REPO / ".gpu" / "python", rig.BUILD.parent / "python"]
ARMS = {"alone": "none", "alone2": "none", "none": "none", "host": "host", "device": "device", "be-alone": "none"}
KERNEL_US = 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="of one arm in one round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=240)
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu, order = rig.Gpu(options.gpu), Order(ARMS, options.seed)
    path = os.pathsep.join(filter(None, [*map(str, PACKAGES), os.environ.get("PYTHONPATH")]))
    environment = gpu.plain(LD_PRELOAD=str(rig.HOOK), PYTHONPATH=path)
    children = {level: rig.Child(level, rig.python("tasks.py", "--preemption", level), environment) for level in ("none", "host", "device")}
    for child in children.values():
        child.answer(60)
    seen = {arm: [] for arm in ARMS}
    for _ in rounds.numbers(options):
        for arm in order.round():
            requests = 0 if arm == "be-alone" else options.requests
            children[ARMS[arm]].ask(json.dumps({"requests": requests, "seconds": options.requests * 0.01, "beside": not arm.startswith("alone")}))
            seen[arm].append(children[ARMS[arm]].answer(120))
        rig.write("task-api", {"ok": False, **result(seen, order)}, quiet=True)
    frameworks = rig.Child("frameworks", rig.python("task_frameworks.py"), environment).answer(120)
    found = {**result(seen, order), "frameworks": frameworks, "cpp": cpp_example(environment, gpu)}
    rig.say(found["frameworks"], found["cpp"])
    rig.say(found["numbers"])
    rig.say(found["goals"])
    # On the simulator the host's load decides about latencies; there it is checked that streams were preempted.
    ok = found["preempted"] and all(row.get("ok", True) for row in (*frameworks["seen"].values(), *found["cpp"].values())) and (options.gpu == "sim" or all(goal["met"] for goal in found["goals"].values()))
    rig.write("task-api", {"ok": ok, **found})
    return 0 if ok else 1


def cpp_example(environment, gpu):
    """The C++ example, compiled as a user does, by each compiler that this machine has."""
    seen, driver = {}, rig.found_driver() if not gpu.simulated else [rig.BUILD / "libcuda.so"]
    nvcc = shutil.which("nvcc") or next((str(path) for path in sorted(pathlib.Path("/usr/local").glob("cuda*/bin/nvcc"))), None)
    for name, compiler in (("c++", ["c++", "-pthread"]), ("nvcc", nvcc and [nvcc, "-x", "cu", "-Xlinker", "--unresolved-symbols=ignore-all"])):
        if compiler is None or (name == "nvcc" and gpu.simulated):
            seen[name] = {"cannot": "there is no nvcc, or no GPU"}
            continue
        with tempfile.TemporaryDirectory(prefix="sluice-task-api-") as folder:
            program = pathlib.Path(folder) / "tasks"
            command = [*compiler, "-std=c++17", "-I", rig.REPO / "hook" / "include", rig.REPO / "examples" / "cpp" / "tasks.cpp", "-o", program, "-ldl"]
            command += [word for path in driver for word in ("-Xlinker", path)] if name == "nvcc" else driver
            built = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
            if built.returncode:
                seen[name] = {"ok": False, "why": built.stderr[-600:]}
                continue
            ran = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=False)
            printed = json.loads(ran.stdout) if ran.stdout.startswith("{") else {"why": ran.stderr[-600:]}
            seen[name] = {"ok": ran.returncode == 0 and printed["preemptions"] > 0, **printed}
    return seen


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def result(seen, order):
    rows, numbers = {}, {}
    for arm, blocks in seen.items():
        latencies = [latency for block in blocks for latency in block["latencies_us"]]
        row = {"requests": len(latencies), "kernels_per_s": statistics.median(block["kernels_per_s"] for block in blocks)}
        if latencies:
            row |= {f"p{percent}_us": percentile(latencies, percent) for percent in (50, 99)}
            row["p99_of_rounds_us"] = [percentile(block["latencies_us"], 99) for block in blocks]
        row["preemptions"] = sum(block["preemptions"] for block in blocks)
        rows[arm] = {**row, "levels": sorted({str(block["preemption_level"]) for block in blocks}), "modes": sorted({block["mode"] for block in blocks})}
    for arm, row in rows.items():
        added = {f"added_{name}": round(row[name] - rows["alone"][name], 1) for name in ("p50_us", "p99_us") if name in row}
        numbers[arm] = {**added, "of_be_alone": round(row["kernels_per_s"] / max(rows["be-alone"]["kernels_per_s"], 1e-9), 3)}
    added = numbers["device"]["added_p99_us"]
    return {
        "numbers": numbers, "rows": rows, "aa_noise_p99_us": numbers["alone2"]["added_p99_us"],
        "preempted": all(rows[level]["preemptions"] > 0 and rows[level]["levels"] == [level] for level in ("host", "device")),
        "goals": {"device: added p99": {"us": added, "at_most_us": KERNEL_US, "met": added <= KERNEL_US}}, **order.result(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
