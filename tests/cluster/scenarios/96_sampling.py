"""The scheduler misses no free GPU of a large cluster: kube-scheduler asks the extender about every node."""

from lib import api, fleet, scale

SECONDS = 300
NODES = 300


def test_the_only_free_gpu_of_three_hundred_nodes_is_found_at_the_first_attempt(cluster):
    scale.remove_releases()
    scale.write_configuration()
    # Every node has free slots, but only the last one has healthy GPUs. kube-scheduler's own default is to stop its search at 144 of
    # 300 nodes and to begin the next one behind them: of two pods it would miss the GPUs for one.
    *_, last = fleet.start(NODES, scale.RESOURCE, healthy=range(NODES - 1, NODES))
    try:
        with cluster.namespace() as ns:
            scale.start_extender()
            scale.WITH_EXTENDER.start()
            for pod in scale.pods(ns, 2, plain=False):
                name = pod["metadata"]["name"]
                api.request("POST", f"/api/v1/namespaces/{ns}/pods", pod)
                node = cluster.until(f"{name} bound", 60, lambda: cluster.get("pod", name, ns)["spec"].get("nodeName"))
                assert node == last
                assert not [one["message"] for one in cluster.events(ns, name) if one["reason"] == "FailedScheduling"]
            scale.clear(ns)
    finally:
        scale.WITH_EXTENDER.stop()
        scale.EXTENDER.stop()
        fleet.stop()
