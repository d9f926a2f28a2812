#!/usr/bin/env python3
"""A latency-critical service beside programs that use no multiprocessor: copies between pinned memory and the GPU, and allocations and frees.

The service is serve.py's (ResNet-50 as a CUDA graph behind the copy of its input, each 10 ms), the neighbour workloads/neighbour.py.
Interleaved blocks in an order that changes (order.py). Arms:
  alone, alone2     the service without the hook and without other programs; their difference is the A/A noise
  copies            beside copies of 1 GiB in both directions, without the hook
  copies-in, -out   the same in one direction
  copies-4M         the same in both directions with copies of 4 MiB
  copies-sliced     beside copies of 1 GiB in both directions; the neighbour's channel groups of copy engines have slices of 1 us (slice.c)
  alone-sluice      the service under Sluice, while no neighbour works
  copies-sluice     beside copies of 1 GiB in both directions, both programs under Sluice
  allocations       beside a program that allocates 512 MiB and frees them without end, without the hook
  allocations-fill  the same, and fills them
  allocations-sluice   as `allocations`, both programs under Sluice
  uncopied-*        the service without the copy of its input, without the hook, alone and beside both neighbours: what does the copy cost?
Each arm under Sluice has a service of its own, which therefore knows one neighbour only, and serves --warm requests beside it before the first
round: in them the hook decides how it copies. They are reported apart (`first`). `by_kernel` is how many copies a request the hook's copy kernel
made, `not_by_kernel` how many it left to the driver although a kernel was to make them, by reason.
"""

import argparse
import collections
import os
import pathlib
import statistics
import tempfile
import time

import rig
import rounds
import serve
from order import Order

MIB = 1 << 20
BOTH, ALLOCATED = f"copies {1024 * MIB} both", f"allocations {512 * MIB} 0"

# The service, the neighbour and its command.
ARMS = {
    "alone": ("lc0", None, ""), "alone2": ("lc0", None, ""),
    "copies": ("lc0", "be0", BOTH), "copies-in": ("lc0", "be0", f"copies {1024 * MIB} in"), "copies-out": ("lc0", "be0", f"copies {1024 * MIB} out"),
    "copies-4M": ("lc0", "be0", f"copies {4 * MIB} both"), "copies-sliced": ("lc0", "be.sliced", BOTH), "copies-sluice": ("lc.copies", "be", BOTH), "alone-sluice": ("lc.alone", None, ""),
    "allocations": ("lc0", "be0", ALLOCATED), "allocations-fill": ("lc0", "be0", f"allocations {512 * MIB} 1"), "allocations-sluice": ("lc.allocations", "be", ALLOCATED),
    "uncopied-alone": ("lc.uncopied", None, ""), "uncopied-copies": ("lc.uncopied", "be0", BOTH), "uncopied-allocations": ("lc.uncopied", "be0", ALLOCATED),
}


def sliced(gpu, folder):
    """The environment of a program whose channel groups of copy engines get slices of 1 us. On the simulator such groups have no slices."""
    if gpu.simulated:
        return gpu.plain()
    library = pathlib.Path(folder) / "slice.so"
    rig.compile_library(rig.HERE / "slice.c", library)
    return gpu.plain(LD_PRELOAD=str(library), SLICE_US="1", SLICE_ENGINES="copy", SLICE_AFTER_MS="1000")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="neighbours")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    serve.add_arguments(parser)
    parser.set_defaults(requests=150, rounds=4, warm=300)
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu, folder = rig.Gpu(options.gpu), tempfile.TemporaryDirectory(prefix="sluice-gpu-")
    clients = [{"name": "be", "request": 0.5, "limit": 1.0, "memory": "20Gi"}, {"name": "lc", "request": 0.2, "limit": 1.0, "memory": "20Gi", "class": "latency-critical"}]
    manager = rig.Manager(clients, [f"--controls={gpu.controls}", *options.manager])
    cores = sorted(os.sched_getaffinity(0))
    served, others = (cores[2:4], cores[:2] + cores[4:]) if len(cores) >= 6 else (cores, cores)
    os.sched_setaffinity(0, others)
    service, neighbour = ["taskset", "-c", ",".join(map(str, served)), *gpu.python("torch_serve.py", "--staged")], rig.python("neighbour.py")
    wanted = {program for name in options.arms for program in ARMS[name][:2] if program}
    programs = {
        "lc0": (service, gpu.plain), "lc.uncopied": ([*service, "--uncopied"], gpu.plain), **{f"lc.{arm}": (service, lambda: gpu.under(manager, "lc")) for arm in ("alone", "copies", "allocations")},
        "be0": (neighbour, gpu.plain), "be.sliced": (neighbour, lambda: sliced(gpu, folder.name)), "be": (neighbour, lambda: gpu.under(manager, "be")),
    }
    children = {name: rig.Child(name, command, env()) for name, (command, env) in programs.items() if name in wanted}
    rig.one_by_one({name: child for name, child in children.items() if name.startswith("lc")})
    for name in wanted & {"be0", "be.sliced", "be"}:
        children[name].answer(60)
    # The slices are set a second after the context was made.
    time.sleep(1.5)
    order, latencies, rates = Order(options.arms, options.seed), {name: [] for name in options.arms}, {name: [] for name in options.arms}
    copies = {name: collections.Counter() for name in options.arms}

    def block(name, requests):
        """The service's answer, and the neighbour's rate."""
        lc, be, command = ARMS[name]
        start, seconds = time.time() + 0.2, requests * options.period / 1e6
        if be:
            children[be].ask(f"run {start:.6f} {seconds + 0.3:.3f} {command}")
        children[lc].ask(f"serve {start + 0.15:.6f} {requests} {options.period} 0 0")
        served = children[lc].answer(seconds + serve.SLACK)
        if not served.get("answer_unchanged", True):
            rig.fail(f"{name}: the model's answer has changed")
        return served, children[be].answer(seconds + serve.SLACK)["rate"] if be else None

    first = {name: block(name, options.warm)[0]["latencies_us"] for name in options.arms if name.endswith("-sluice")}
    for _ in rounds.numbers(options):
        for name in order.round():
            served, rate = block(name, options.requests)
            latencies[name].append(served["latencies_us"])
            copies[name].update(served["copies"])
            if rate is not None:
                rates[name].append(rate)
        rows = {name: row(latencies, rates, name) | copied(copies[name], latencies[name]) for name in options.arms}
        for name, values in first.items():
            rows[name]["first"] = {"p50": serve.percentile(values, 0.5), "p99": serve.percentile(values, 0.99)}
        rig.write(options.name, {"ok": True, "rows": rows, **order.result(), "metrics": manager.metrics()}, quiet=True)
    for name, told in rows.items():
        rig.say(f"{name:22}", {key: round(value, 3) for key, value in told.items() if isinstance(value, float)}, *[told[key] for key in ("first", "not_by_kernel") if told.get(key)])
    for child in children.values():
        child.stop()
    manager.stop()
    rig.say("written:", rig.OUT / f"{options.name}.json")
    return 0


def copied(counts, blocks):
    """Copies of a request that the hook's kernel made, and those left to the driver, by reason."""
    requests = sum(map(len, blocks))
    return {"by_kernel": counts["made"] / requests, "not_by_kernel": {name: count for name, count in counts.items() if name != "made" and count}}


def row(latencies, rates, name):
    """Quantiles of all requests, the p99 of each block, their median over that of the blocks alone, and the neighbour's rate."""
    pooled = [each for block in latencies[name] for each in block]
    than = latencies["uncopied-alone" if name.startswith("uncopied") else "alone"]
    told = {quantile: serve.percentile(pooled, share) for quantile, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    told |= {"n": len(pooled), "blocks_p99": [serve.percentile(block, 0.99) for block in latencies[name]]}
    if than:
        told["p99_of_alone"] = serve.median_p99(latencies[name]) / serve.median_p99(than)
        told["p50_of_alone"] = told["p50"] / serve.percentile([each for block in than for each in block], 0.5)
    if rates[name]:
        told["rate"] = statistics.median(rates[name])
    return told


if __name__ == "__main__":
    raise SystemExit(main())
