"""Memory beyond the GPU's: pods whose memory leaves the GPU by their annotation, what is refused beside them, and suspended pods."""

import contextlib
import time

from lib import api, compiled_program, product
from lib.devices import GPUS, MEMORY_BYTES
from lib.product import GI

SECONDS = 900
GPU = GPUS[0]
MI = 1 << 20
# What a pod without overcommitment leaves of the GPU. The simulator keeps the memory of the others in the machine's, and copies it slowly. With
# less, two pods of 0.7 would not fit beside the 0.5 GiB that the scheduler takes each of them to keep.
LEFT = 1792 * MI
LIMIT = LEFT * 7 // 10


@contextlib.contextmanager
def host_memory(cluster):
    """Each GPU has memory of the host, and one pod leaves a small part of a GPU to the others."""
    product.need()
    try:
        product.install(nodeAgent={"hostMemory": "3Gi"})
        with cluster.namespace() as ns:
            product.create(ns, product.idle("rest", memory=MEMORY_BYTES - LEFT, gpu_uuid=GPU))
            product.all_running(ns)
            yield ns
    finally:
        product.install()


def movable(name: str, blocks: int = 4, block: int = 240 * MI) -> dict:
    """A pod with these blocks of memory that compares a part of them in each step, and all of them after some: it prints `right` or `wrong`."""
    takes = f"for n in $(seq {blocks}); do echo take {block}; done"
    works = "while :; do for n in $(seq 5); do echo run 500; sleep 2; done; echo verify; done"
    source, script = "tests/preload/programs/movable.c", f"({takes}; {works}) | /programs/movable"
    return compiled_program.pod(name, source, script, memory=LIMIT, memory_overcommit="true", gpu_uuid=GPU)


def series(ns: str, name: str) -> dict[str, float]:
    """A metric of the namespace's pods; none while the agent does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return {one.labels["pod"]: one.value for one in product.metrics() if one.name == name and one.labels["namespace"] == ns}
    return {}


def verified(cluster, ns: str, pod: str) -> int:
    """How often the pod has compared all of its memory. Each time it was right."""
    lines = cluster.logs(ns, pod).splitlines()
    bad = [line for line in lines if line.startswith(("wrong", "refused"))]
    assert not bad, f"{pod}: {bad} among {lines[-10:]}"
    return lines.count("right")


def reasons(cluster, ns: str, pod: str) -> list[str]:
    return [event["reason"] for event in cluster.events(ns, pod) if event["reason"] in ("Suspended", "Resumed")]


def test_two_pods_of_seven_tenths_take_turns_on_a_gpu_and_lose_no_byte(cluster):
    with host_memory(cluster) as ns:
        product.create(ns, movable("first"), movable("second"))
        product.all_running(ns)
        assert {pod: gpu for pod, gpu in product.assigned(ns).items() if pod != "rest"} == {"first": GPU, "second": GPU}
        # Both have left and returned.
        moved = lambda: series(ns, "sluice_client_memory_moved_bytes_total")
        has = 4 * 240 * MI
        cluster.until("both have moved", 500, lambda: all(moved().get(pod, 0) >= 2 * has for pod in ("first", "second")), every=1)
        began = {pod: verified(cluster, ns, pod) for pod in ("first", "second")}
        cluster.until("both go on", 300, lambda: all(verified(cluster, ns, pod) > began[pod] for pod in began), every=1)
        cluster.record("moved_bytes", moved())
        refused(cluster, ns)


def refused(cluster, ns: str) -> None:
    """Each of the two has room alone, which a pod whose memory stays would take. The host has no place for a third one."""
    product.create(ns, product.idle("stays", memory=LIMIT, gpu_uuid=GPU), movable("third"))

    def messages(pod: str) -> list[str]:
        return [event["message"] for event in cluster.events(ns, pod) if event["reason"] == "FailedScheduling"]

    cluster.until("the first waits", 60, lambda: any("memory free, 1.3 GiB asked" in text for text in messages("stays")))
    cluster.until("the second waits", 60, lambda: any("of the host's memory free" in text for text in messages("third")))
    assert [product.phases(ns)[pod] for pod in ("stays", "third")] == ["Pending", "Pending"]


def test_suspended_pod_leaves_the_gpu_and_returns_over_a_restart_of_the_agent(cluster):
    with host_memory(cluster) as ns:
        has = 2 * 64 * MI
        product.create(ns, movable("first", blocks=2, block=64 * MI))
        product.all_running(ns)
        cluster.until("its memory is on the GPU", 60, lambda: resident(ns) == has and verified(cluster, ns, "first") > 0)
        api.kubectl("annotate", "pod", "first", "sluice.dev/suspend=true", "-n", ns)
        cluster.until("its memory has left", 60, lambda: resident(ns) == 0)
        cluster.until("its event", 30, lambda: reasons(cluster, ns, "first") == ["Suspended"])
        # As a user waits for it. Kubelet and the agent both write the pod's status.
        cluster.wait("pod/first", "condition=sluice.dev/Suspended", ns)
        stands_still(cluster, ns)
        assert condition(cluster, ns)["reason"] == "Suspended" and condition(cluster, ns, "Ready")["status"] == "True"
        old = product.agent()
        api.request("DELETE", f"/api/v1/namespaces/{product.NAMESPACE}/pods/{old['metadata']['name']}")
        cluster.until("another agent", 60, lambda: product.agent_is_another(old))
        # Without a manager its memory returns. The new one has it leave again, because the annotation says so.
        # Before its process is attached to the new manager, nothing is on the GPU either.
        is_away = lambda: series(ns, "sluice_client_memory_swapped_bytes").get("first") == has
        cluster.until("its memory has left again", 90, lambda: is_suspended(ns) and resident(ns) == 0 and is_away())
        stands_still(cluster, ns)
        cluster.until("its condition", 30, lambda: condition(cluster, ns)["status"] == "True")
        api.kubectl("annotate", "pod", "first", "sluice.dev/suspend-", "-n", ns)
        began = verified(cluster, ns, "first")
        cluster.until("its memory is back", 60, lambda: resident(ns) == has)
        cluster.until("it works", 60, lambda: verified(cluster, ns, "first") > began)
        cluster.until("its event", 30, lambda: reasons(cluster, ns, "first")[-1:] == ["Resumed"])
        cluster.wait("pod/first", "condition=sluice.dev/Suspended=False", ns)


def resident(ns: str) -> float | None:
    return series(ns, "sluice_client_memory_resident_bytes").get("first")


def is_suspended(ns: str) -> bool:
    return product.clients_of(ns).get("first", {}).get("suspended", False)


def condition(cluster, ns: str, kind: str = "sluice.dev/Suspended") -> dict:
    (found,) = [one for one in cluster.get("pod", "first", ns)["status"]["conditions"] if one["type"] == kind]
    return found


def stands_still(cluster, ns: str) -> None:
    """The pod launches nothing, by the simulator's own count. Work that it had begun ends first."""

    def kernels() -> int:
        return product.counted(GPU)[1][f"{ns}/first"].kernels

    def has_stopped() -> bool:
        before = kernels()
        # Longer than its pauses.
        time.sleep(6)
        return kernels() == before

    cluster.until("no more kernels", 60, has_stopped)
