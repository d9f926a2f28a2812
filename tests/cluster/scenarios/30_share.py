"""Pods get the time of their annotations within two points and never more than the memory, and Prometheus shows both."""

import json
import urllib.parse
import urllib.request

from lib import product
from lib.devices import CONTEXT_BYTES, GPUS, MODEL
from lib.product import GI

SECONDS = 300
CORE = {
    "eight_pods_share_two_gpus",
    "memory_limits_cover_the_context",
}
QUOTAS = [0.1, 0.2, 0.3, 0.4]


def eight() -> list[dict]:
    """Four quotas that fill a GPU, twice."""
    return [
        product.tenant(f"q{round(quota * 10)}-{copy}", quota=quota, memory="2Gi")
        for copy in range(len(GPUS))
        for quota in QUOTAS
    ]


def test_eight_pods_share_two_gpus(cluster):
    product.need()
    with cluster.namespace() as ns:
        # One after the other: in another order four of them might not fill a GPU, and the last would wait.
        for pod in eight():
            product.create(ns, pod)
        product.all_running(ns)
        where = product.assigned(ns)
        filled = {gpu: sum(int(name[1]) for name, at in where.items() if at == gpu) for gpu in GPUS}
        assert set(filled.values()) == {10}, where
        seen = product.shares(15)
        wrong = []
        for name, gpu in sorted(where.items()):
            asked = int(name[1]) / 10
            busy = sum(seen[gpu].values())
            got = seen[gpu].get(f"{ns}/{name}", 0.0) / busy
            cluster.record(name, f"asked {asked:.2f}, got {got:.4f}")
            if abs(got - asked) > 0.02:
                wrong.append(f"{name} asked {asked}, got {got:.4f}")
        cluster.record("busy", {gpu[-1]: round(sum(seen[gpu].values()), 4) for gpu in GPUS})
        assert not wrong, wrong
        # The manager's state shows the same: quota and class as annotated, one client per pod.
        for name, gpu in where.items():
            client = clients(cluster)[(ns, name)]
            assert client["quota_ppm"] == int(name[1]) * 100_000, client
            assert client["memory_bytes"] == 2 * GI and client["gpu"] == gpu, client
        prometheus_has(cluster, ns, where)
    gone(cluster, ns)


def clients(cluster) -> dict[tuple[str, str], dict]:
    """What the pod-managers have in force, as the agent's /state tells it."""
    return product.clients()


def prometheus_has(cluster, ns: str, where: dict[str, str]) -> None:
    """The real Prometheus found agent and scheduler by the pods' annotations, and each pod's series carry its labels."""

    def found() -> bool:
        series = cluster.prometheus(f'sluice_client_gpu_seconds_total{{namespace="{ns}"}}')
        rows = {(row["metric"]["pod"], row["metric"]["gpu"]) for row in series if float(row["value"][1]) > 0}
        labels = all({"namespace", "pod", "container", "gpu", "node"} <= set(row["metric"]) for row in series)
        return rows == set(where.items()) and labels

    cluster.until("series in Prometheus", 60, found)
    assert {row["metric"]["container"] for row in cluster.prometheus(f'sluice_client_gpu_seconds_total{{namespace="{ns}"}}')} == {"main"}


def gone(cluster, ns: str) -> None:
    """Ended pods leave the agent's metrics at its next scrape."""
    cluster.until("series gone", 60, lambda: not [s for s in product.metrics() if s.labels.get("namespace") == ns])


def test_memory_limits_cover_the_context(cluster):
    product.need()
    with cluster.namespace() as ns:
        sizes = {"one": GI, "two": 2 * GI, "odd": 1_234_567_168}
        product.create(ns, *(product.tenant(name, "load", "be", "--grow", "--seconds", "100000", quota=0.1, memory=size) for name, size in sizes.items()))
        product.all_running(ns)
        where = product.assigned(ns)

        def full(name: str) -> bool:
            rows = product.counted(where[name])[1]
            row = rows.get(f"{ns}/{name}")
            # NVML counts blocks of 2 MiB: the small allocations at the end may be refused.
            return row is not None and sizes[name] - CONTEXT_BYTES - (4 << 20) <= row.memory_peak_bytes <= sizes[name]

        for name in sizes:
            cluster.until(f"{name} has all it was promised", 60, lambda name=name: full(name))
            cluster.until(f"{name} was refused more", 60, lambda name=name: denied(ns, name) > 0)
            assert full(name)


def denied(ns: str, pod: str) -> float:
    return sum(s.value for s in product.metrics() if s.name == "sluice_client_memory_denied_total" and s.labels.get("namespace") == ns and s.labels["pod"] == pod)
