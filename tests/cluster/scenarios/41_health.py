"""A GPU fails: the node offers fewer device slots and the pods get events. It recovers: all slots return. While no program can work on it,
its pods are evicted, or the node is tainted."""

import contextlib

from lib import api, product
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


@contextlib.contextmanager
def without(cluster, gpu: str):
    """A GPU on which no program can work until it is reset."""
    cluster.sim("xid", socket(gpu), "48")
    try:
        yield
    finally:
        cluster.sim("heal", socket(gpu))


@contextlib.contextmanager
def policy(**values):
    product.install(nodeAgent={"lostGpuGraceSeconds": 5, **values})
    try:
        yield
    finally:
        product.install()


def deployment(name: str, ns: str) -> dict:
    """Two pods that may have any GPU."""
    pod = product.tenant(name, "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.2, memory="64Mi")
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"] | {"restartPolicy": "Always"}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": ns}, "spec": spec}


def uids(ns: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in product.pods(ns)}


def test_pods_of_a_lost_gpu_are_evicted_and_run_again_on_another_one(cluster):
    product.need()
    with policy(lostGpuPolicy="evict"), cluster.namespace() as ns:
        api.apply(deployment("moved", ns))
        cluster.until("both pods", 60, lambda: list(product.phases(ns).values()) == ["Running"] * 2)
        lost = set(product.assigned(ns).values())
        assert len(lost) == 1, f"binpack puts both on one GPU: {lost}"
        (lost,) = lost
        (other,) = [gpu for gpu in GPUS if gpu != lost]
        product.create(ns, product.tenant("kept", "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.2, memory="64Mi", gpu_uuid=other))
        product.all_running(ns)
        before = uids(ns)
        with without(cluster, lost):

            def moved() -> bool:
                assigned = product.assigned(ns)
                phases = product.phases(ns)
                return len(assigned) == 3 and set(assigned.values()) == {other} and set(phases.values()) == {"Running"}

            cluster.until("pods on the other GPU", 120, moved)
            after = uids(ns)
            assert after["kept"] == before["kept"] and len(after.keys() & before.keys()) == 1, (before, after)
            former = [name for name in before if name != "kept"]
            cluster.until("events of the evictions", 30, lambda: all(has_event(cluster, ns, name, "EvictedForLostGpu", lost) for name in former))


def test_lost_gpu_taints_the_node_until_it_is_back(cluster):
    product.need()
    taints = lambda: [taint for taint in api.request("GET", f"/api/v1/nodes/{cluster.node}")["spec"].get("taints", []) if taint["key"] == "sluice.dev/gpu-lost"]
    with policy(lostGpuPolicy="taint"):
        with without(cluster, GPUS[0]):
            cluster.until("the taint", 60, lambda: [taint["effect"] for taint in taints()] == ["PreferNoSchedule"])
        cluster.until("no taint", 60, lambda: not taints())


def has_event(cluster, ns: str, pod: str, reason: str, word: str) -> bool:
    return any(event["reason"] == reason and word in event["message"] for event in cluster.events(ns, pod))
