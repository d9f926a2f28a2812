#!/usr/bin/env python3
"""Short requests at random times beside a training: does the service meet its latency goal, and what does the training keep?

The service is driver_serve.py's: requests of one kernel (--us) at random times (--rate), served by one thread one after another; latency counts
from the time a request was due. The training is torch_model.py's ResNet-50. Interleaved blocks in an order that changes (order.py). Arms:
  alone, alone2     the service without the hook and without other programs; their difference is the A/A noise
  training          the training under Sluice, while the service has no requests
  stock             both without the hook
  sluice, slo       both under Sluice; the service's client has no latency goal, and has --slo
  uncopied-*        the same with requests that begin with their launch: no hold kernel can begin before it
Each arm under Sluice has a service of its own and serves --warm requests beside the training before the first round, which are not counted.
"""

import argparse
import os
import statistics
import time

import rig
import rounds
import serve
from order import Order

# The service and the training of each arm.
ARMS = {
    "alone": ("lc0", None), "alone2": ("lc0", None), "training": (None, "be"), "stock": ("lc0", "be0"), "sluice": ("lc", "be"), "slo": ("lc.slo", "be"),
    "uncopied-alone": ("lc0.uncopied", None), "uncopied-stock": ("lc0.uncopied", "be0"), "uncopied-sluice": ("lc.uncopied", "be"), "uncopied-slo": ("lc.uncopied-slo", "be"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="short-requests")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--rate", type=float, default=300, help="requests a second")
    parser.add_argument("--us", type=int, default=200, help="time of the kernel on the GPU")
    parser.add_argument("--slo", type=float, default=600, help="latency goal, us")
    serve.add_arguments(parser)
    parser.set_defaults(requests=900, rounds=10, warm=1200)
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu = rig.Gpu(options.gpu)
    critical = {"limit": 1.0, "memory": "20Gi", "class": "latency-critical"}
    names = ("lc", "lc.slo", "lc.uncopied", "lc.uncopied-slo")
    # One service works at a time, so each may have what it uses with its switches and hold kernels.
    clients = [{"name": name.replace(".", "-"), "request": 0.2, **critical, **({"slo": f"{options.slo:.0f}us"} if name.endswith("slo") else {})} for name in names]
    clients.append({"name": "be", "request": 0.2, "limit": 1.0, "memory": "40Gi"})
    manager = rig.Manager(clients, [f"--controls={gpu.controls}", *options.manager])
    cores = sorted(os.sched_getaffinity(0))
    served, others = (cores[2:4], cores[:2] + cores[4:]) if len(cores) >= 6 else (cores, cores)
    os.sched_setaffinity(0, others)
    service = ["taskset", "-c", ",".join(map(str, served)), *rig.python("driver_serve.py", "--staged", "--us", options.us)]
    training = gpu.python("torch_model.py", "resnet50", "--batch", options.batch, "--staged")
    programs = {"lc0": (service, gpu.plain), "lc0.uncopied": ([*service, "--uncopied"], gpu.plain), "be0": (training, gpu.plain), "be": (training, lambda: gpu.under(manager, "be"))}
    for name in names:
        programs[name] = ([*service, *(["--uncopied"] if "uncopied" in name else [])], lambda name=name: gpu.under(manager, name.replace(".", "-")))
    wanted = {program for name in options.arms for program in ARMS[name] if program}
    children = {name: rig.Child(name, command, env()) for name, (command, env) in programs.items() if name in wanted}
    rig.one_by_one(children)
    order, latencies, rates = Order(options.arms, options.seed), {name: [] for name in options.arms}, {name: [] for name in options.arms}

    def block(name, requests, seed):
        """The latencies of the service's requests, and the training's rate."""
        lc, be = ARMS[name]
        start, seconds = time.time() + 0.2, requests / options.rate
        if be:
            children[be].ask(f"run {start:.6f} {seconds + 0.3:.3f}")
        told = {"latencies_us": []}
        if lc:
            children[lc].ask(f"poisson {start + 0.15:.6f} {requests} {1e6 / options.rate:.1f} {seed}")
            told = children[lc].answer(seconds + serve.SLACK)
            if not told["answer_unchanged"]:
                rig.fail(f"{name}: the answer has changed")
        return told["latencies_us"], children[be].answer(seconds + serve.SLACK)["rate"] if be else None

    for name in options.arms:
        if ARMS[name][0]:
            block(name, options.warm, 0)
    for number in rounds.numbers(options):
        for name in order.round():
            # Every arm of a round has the same arrivals.
            served, rate = block(name, options.requests, number + 1)
            latencies[name].append(served)
            if rate is not None:
                rates[name].append(rate)
        rows = {name: row(options, latencies, rates, name) for name in options.arms}
        rig.write(options.name, {"ok": True, "rows": rows, **order.result(), "metrics": manager.metrics()}, quiet=True)
    for name, told in rows.items():
        rig.say(f"{name:16}", {key: round(value, 4) for key, value in told.items() if isinstance(value, float)})
    for child in children.values():
        child.stop()
    manager.stop()
    rig.say("written:", rig.OUT / f"{options.name}.json")
    return 0


def row(options, latencies, rates, name):
    """Quantiles, the part of the requests within the goal, and the training's rate, also over that alone."""
    pooled = [each for block in latencies[name] for each in block]
    told = {}
    if pooled:
        told = {quantile: serve.percentile(pooled, share) for quantile, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
        told |= {"n": len(pooled), "within_slo": sum(each <= options.slo for each in pooled) / len(pooled), "blocks_p99": [serve.percentile(block, 0.99) for block in latencies[name]]}
        than = latencies.get("uncopied-alone" if name.startswith("uncopied") else "alone")
        if than:
            told["p99_of_alone"] = serve.median_p99(latencies[name]) / serve.median_p99(than)
    if rates[name]:
        told |= {"rate": statistics.median(rates[name]), "rates": rates[name]}
        if rates.get("training"):
            told["kept"] = told["rate"] / statistics.median(rates["training"])
    return told


if __name__ == "__main__":
    raise SystemExit(main())
