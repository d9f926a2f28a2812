"""No pod is evicted for a pod that Sluice's scheduler then refuses."""

from lib import api, images, product
from lib.settings import NODE

SECONDS = 120
CORE = {"no_pod_is_evicted_for_one_that_the_extender_refuses"}
CLASS = "test-sluice-urgent"


def test_no_pod_is_evicted_for_one_that_the_extender_refuses(cluster):
    product.need()
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}, "value": 1_000_000}
    cluster.apply(urgent)
    try:
        with cluster.namespace() as ns:
            # All GPUs are taken as a whole, by a pod that needs no processor.
            product.create(ns, product.idle("both", quota="2"))
            # This pod has no GPU. Half of the node's processors are its own, so its eviction would make room for `wants`.
            half = f"{milli_cores() // 2}m"
            victim = cluster.pod("victim", "/usr/bin/sleep", "1000", image=images.TOOLS, resources={"requests": {"cpu": half}})
            api.request("POST", f"/api/v1/namespaces/{ns}/pods", victim)
            product.all_running(ns)
            before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in product.pods(ns)}

            wants = product.idle("wants", quota="0.5", memory="64Mi")
            wants["spec"]["priorityClassName"] = CLASS
            wants["spec"]["containers"][0]["resources"] = {"requests": {"cpu": half}}
            product.create(ns, wants)
            refused = lambda: [one["message"] for one in cluster.events(ns, "wants") if one["reason"] == "FailedScheduling"]
            cluster.until("the scheduler reports why it waits", 30, lambda: any("Insufficient cpu" in text for text in refused()))
            # The scheduler appends what its preemption found to the same message.
            assert not [text for text in refused() if "preemption" in text], refused()
            now = {pod["metadata"]["name"]: pod for pod in product.pods(ns)}
            assert "nominatedNodeName" not in now["wants"]["status"], now["wants"]["status"]
            assert {name: now[name]["metadata"]["uid"] for name in before} == before
            assert not [name for name in before if "deletionTimestamp" in now[name]["metadata"]]
    finally:
        cluster.delete("priorityclass", CLASS)


def milli_cores() -> int:
    """The processors that the node gives to pods."""
    cpu = api.request("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["cpu"]
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu)
