"""Autoscaling with several GPUs in a node, as docs/operators/autoscaling.md states it: the scale-up pod of a pod for which no GPU has room."""

from lib import api, autoscaler, documentation, fleet, product

SECONDS = 300
LABEL = "scale-up.sluice.dev/pod-uid"


def scale_up_pods() -> list[dict]:
    return api.request("GET", f"/api/v1/namespaces/{product.NAMESPACE}/pods?labelSelector={LABEL.replace('/', '%2F')}")["items"]


def on_the_fleet(pod: dict) -> dict:
    pod["spec"] |= {"nodeSelector": fleet.SELECTOR, "tolerations": [fleet.TOLERATION]}
    return pod


def test_pod_that_fits_on_no_gpu_gets_a_node_although_the_sums_have_room(cluster):
    """Eight GPUs have 0.2 free each, which is 1.6 together, and a pod asks for 0.5."""
    product.install(scheduler={"scaleUpPods": True})
    try:
        (full,) = fleet.start(1, product.RESOURCE)
        with cluster.namespace() as ns:
            product.create(ns, *(on_the_fleet(product.idle(f"full-{number}", quota="0.8", memory="8Gi")) for number in range(fleet.GPUS)))
            cluster.until("a pod on each GPU", 90, lambda: set(product.assigned(ns).values()) == set(fleet.uuids(full, fleet.GPUS)))
            product.create(ns, on_the_fleet(product.idle("waits", quota="0.5", memory="8Gi")))
            (pod,) = cluster.until("a scale-up pod", 90, scale_up_pods)
            waits = cluster.get("pod", "waits", ns)
            assert pod["metadata"]["labels"][LABEL] == waits["metadata"]["uid"], pod
            name = pod["metadata"]["name"]
            (shown,) = documentation.run("Nodes with several GPUs")
            assert name in shown, shown
            cluster.until("its condition", 30, lambda: scale_up_pods()[0]["status"].get("conditions"))

            # The reason for the scale-up pod: the autoscaler finds room for the waiting pod in the node's sums.
            decision = autoscaler.decide(ns, "waits")
            assert decision.existing == [full] and not decision.adds_a_node, decision
            decision = autoscaler.decide(product.NAMESPACE, name)
            assert decision.adds_a_node and full in decision.new, decision

            (added,) = fleet.start(1, product.RESOURCE, first=1)
            cluster.until("the pod on the new node", 90, lambda: product.assigned(ns).get("waits") in fleet.uuids(added, fleet.GPUS))
            cluster.wait("pod/waits", "condition=Ready", ns)
            assert cluster.get("pod", "waits", ns)["spec"]["nodeName"] == added
            cluster.until("the end of the scale-up pod", 60, lambda: not scale_up_pods())
    finally:
        # Pods of a failed test would wait for a kubelet that does not exist.
        cluster.tidy()
        fleet.stop()
        product.install()
