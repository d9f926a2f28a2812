"""A GPU fails: the node offers fewer device slots and the pods get events. It recovers: all slots return."""

from lib import product
from lib.devices import GPUS, socket

SECONDS = 240


def test_xid_removes_device_slots_and_recovery_returns_them(cluster):
    product.need()
    whole = 100 * len(GPUS)
    cluster.until("all device slots", 60, lambda: product.allocatable() == whole)
    with cluster.namespace() as ns:
        product.create(ns, product.tenant("on-bad", "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.3, memory="64Mi", gpu_uuid=GPUS[0]))
        product.create(ns, product.tenant("on-good", "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.3, memory="64Mi", gpu_uuid=GPUS[1]))
        product.all_running(ns)
        # A fault of the application's own changes nothing; 48 is a double-bit ECC error.
        cluster.sim("xid", socket(GPUS[1]), "13")
        cluster.sim("xid", socket(GPUS[0]), "48")
        try:
            # The slots of the healthy GPU, and the one that `on-bad` holds.
            cluster.until("fewer device slots", 60, lambda: product.allocatable() == whole // 2 + 1)
            cluster.until("an event on the pod", 30, lambda: has_event(cluster, ns, "on-bad", "GpuUnhealthy", "48"))
            assert not has_event(cluster, ns, "on-good", "GpuUnhealthy", "")
            # The other GPU had its Xid before this one: had it counted, its slots would have gone too.
            unhealthy = {s.labels["gpu"]: s.value for s in product.metrics() if s.name == "sluice_gpu_healthy"}
            assert unhealthy == {GPUS[0]: 0, GPUS[1]: 1}, unhealthy
            # New pods go to the other GPU.
            product.create(ns, product.tenant("new", "load", "be", "--count", "3", quota=0.3, memory="64Mi"))
            cluster.wait("pod/new", "jsonpath={.status.phase}=Succeeded", ns)
            assert product.assigned(ns)["new"] == GPUS[1]
        finally:
            cluster.sim("heal", socket(GPUS[0]))
        cluster.until("all device slots again", 90, lambda: product.allocatable() == whole)
        cluster.until("an event on the pod", 30, lambda: has_event(cluster, ns, "on-bad", "GpuRecovered", ""))
        product.create(ns, product.tenant("again", "load", "be", "--count", "3", quota=0.3, memory="64Mi", gpu_uuid=GPUS[0]))
        cluster.wait("pod/again", "jsonpath={.status.phase}=Succeeded", ns)


def has_event(cluster, ns: str, pod: str, reason: str, word: str) -> bool:
    return any(event["reason"] == reason and word in event["message"] for event in cluster.events(ns, pod))
