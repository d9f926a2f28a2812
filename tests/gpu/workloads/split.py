"""Where the time of a service's requests goes on the host: what the workloads of lc_overhead.py share."""

import resource
import time

import holds


def switches():
    """How often this process gave a processor up, by itself and not; pages that it had to ask for."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return [used.ru_nvcsw, used.ru_nivcsw, used.ru_minflt]


def run(steps, spin_until, start, requests, period, timed):
    """Serves requests at a steady pace; `steps(is_timed)` makes one and says when its steps had returned, by perf_counter, and its GPU time in us."""
    begin = time.perf_counter() + (start - time.time())
    split, gpu, before, held = {name: [] for name in ("late", "copy", "launch", "wait", "latency")}, [], None, holds.counts()
    for index in range(requests):
        due = begin + index * period
        spin_until(due)
        is_timed = index >= requests - timed
        began = time.perf_counter()
        before = before or switches()
        (copied, launched, waited), gpu_us = steps(is_timed)
        if is_timed:
            gpu.append(round(gpu_us, 1))
            continue
        parts = {"late": began - due, "copy": copied - began, "launch": launched - copied, "wait": waited - launched, "latency": waited - due}
        for name, seconds in parts.items():
            split[name].append(round(1e6 * seconds, 1))
    spent = [now - then for now, then in zip(switches(), before)]
    return {"split_us": split, "gpu_us": gpu, "per_request": dict(zip(("gave_up", "taken_off", "faults"), (round(n / requests, 2) for n in spent))), "holds": holds.since(held)}
