"""With `violationPolicy: evict`, a pod of which a process enables its disabled channels is evicted; its neighbour goes on."""

from lib import product, violator
from lib.devices import GPUS

SECONDS = 240
VIOLATORS = {"violator"}


def has_been_evicted(ns: str) -> bool:
    """Whether only the neighbour is left. A program that ends by itself, for it could not begin, fails the test at once."""
    found = {pod["metadata"]["name"]: pod for pod in product.pods(ns)}
    ended = [name for name, pod in found.items() if pod["status"]["phase"] in ("Failed", "Succeeded") and "deletionTimestamp" not in pod["metadata"]]
    assert not ended, f"ended by itself: {product.last_words(ns, dict.fromkeys(ended, 'ended'))}"
    return set(found) == {"neighbour"}


def test_pod_of_a_violating_process_is_evicted_and_its_neighbour_goes_on(cluster):
    product.need()
    gpu = GPUS[0]
    product.install(nodeAgent={"violationPolicy": "evict"})
    try:
        with cluster.namespace() as ns:
            words = ["load", "be", "--duration-us", "1000", "--depth", "50", "--seconds", "100000"]
            product.create(ns, product.tenant("neighbour", *words, quota=0.7, memory="256Mi", gpu_uuid=gpu), violator.pod(gpu))
            cluster.until("the eviction", 120, lambda: has_been_evicted(ns))
            cluster.until("its event", 30, lambda: [e for e in cluster.events(ns, "violator") if e["reason"] == "EvictedForViolation"])
            notes = [e["message"] for e in cluster.events(ns, "violator") if e["reason"] == "EvictedForViolation"]
            assert any("stopped_group_ran" in note for note in notes), notes

            def kernels() -> int:
                rows = product.counted(gpu)[1]
                return rows[f"{ns}/neighbour"].kernels if f"{ns}/neighbour" in rows else 0

            began = kernels()
            cluster.until("work of the neighbour", 60, lambda: kernels() > began + 1000)
            assert product.phases(ns) == {"neighbour": "Running"}
    finally:
        product.install()
