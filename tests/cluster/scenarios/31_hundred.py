"""A hundred pods at once on one node."""

import random
import time

from lib import product
from lib.devices import GPUS

SECONDS = 400
PODS = 100


def test_hundred_pods_get_exactly_their_limits(cluster):
    product.need()
    with cluster.namespace() as ns:
        chance = random.Random(4)
        asked = {}
        # Quotas of 0.010 to 0.024: a hundred of them fit on two GPUs whatever the mixture, and no two orders give the same sums.
        for number in range(PODS):
            quota, limit, memory = chance.randint(10, 19), chance.randint(200, 1000), chance.randint(64, 120) << 20
            asked[f"p{number}"] = (quota, limit, memory)
        began = time.monotonic()
        product.create(
            ns,
            *(
                product.tenant(name, "load", "be", "--idle-after", "0", "--seconds", "100000", quota=f"0.{quota:03}", limit=f"{limit / 1000:.3f}", memory=memory)
                for name, (quota, limit, memory) in asked.items()
            ),
        )
        cluster.record("created_s", round(time.monotonic() - began, 2))
        cluster.until("all bound", 120, lambda: len(product.assigned(ns)) == PODS)
        cluster.record("all_bound_s", round(time.monotonic() - began, 2))
        product.all_running(ns, 240)
        cluster.record("all_running_s", round(time.monotonic() - began, 2))
        where = product.assigned(ns)
        cluster.until("all clients at the managers", 60, lambda: sum(key[0] == ns for key in product.clients()) == PODS)
        mismatches = []
        known = product.clients()
        for name, (quota, limit, memory) in asked.items():
            client = known[(ns, name)]
            got = (client["quota_ppm"], client["limit_ppm"], client["memory_bytes"], client["gpu"])
            if got != (quota * 1000, limit * 1000, memory, where[name]):
                mismatches.append(f"{name}: asked {asked[name]} on {where[name]}, the manager has {got}")
        assert not mismatches, mismatches
        cluster.record("mismatches", len(mismatches))
        for gpu in GPUS:
            total = sum(asked[name][0] for name, at in where.items() if at == gpu)
            assert total <= 1000, (gpu, total)
        # Every pod's own process is on the GPU that its annotation names, by the simulators' count.
        cluster.until("all on their GPU", 60, lambda: all(f"{ns}/{name}" in product.counted(gpu)[1] for name, gpu in where.items()))
        other = {a: b for a, b in zip(GPUS, reversed(GPUS))}
        assert not [name for name, gpu in where.items() if f"{ns}/{name}" in product.counted(other[gpu])[1]]
        quantiles = histogram(product.metrics(), "sluice_device_plugin_allocate_seconds")
        cluster.record("allocate_p50_ms", quantiles[0])
        cluster.record("allocate_p99_ms", quantiles[1])


def histogram(samples, name: str) -> tuple[float, float]:
    """Upper bounds of the buckets with the median and the 99th percentile, in milliseconds."""
    buckets = sorted((float(s.labels["le"]), s.value) for s in samples if s.name == f"{name}_bucket")
    assert buckets and buckets[-1][1] >= PODS, "Allocate was not counted"
    at = [next(bound for bound, count in buckets if count >= part * buckets[-1][1]) for part in (0.5, 0.99)]
    return at[0] * 1e3, at[1] * 1e3
