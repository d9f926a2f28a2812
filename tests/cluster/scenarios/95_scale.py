"""A thousand nodes of eight GPUs: what the extender costs the stock scheduler."""

import json
from collections import Counter
from statistics import median

from lib import api, controlplane, fleet, scale

SECONDS = 900
NODES = 1000
PODS = 1000
ROUNDS = 3


def test_thousand_nodes_with_and_without_the_extender(cluster):
    scale.remove_releases()
    scale.write_configuration()
    fleet.start(NODES, scale.RESOURCE)
    rates = {True: [], False: []}
    try:
        with cluster.namespace() as ns:
            for _ in range(ROUNDS):
                for plain in (True, False):
                    rates[plain].append(scale.rate(ns, PODS, plain))
                    if not plain:
                        check_assignments(ns)
                        record_costs(cluster)
                    scale.clear(ns)
    finally:
        scale.WITH_EXTENDER.stop()
        scale.EXTENDER.stop()
        fleet.stop()
    with_extender, without = median(rates[False]), median(rates[True])
    cluster.record("plain_pods_per_s", [round(rate) for rate in rates[True]])
    cluster.record("extender_pods_per_s", [round(rate) for rate in rates[False]])
    cluster.record("ratio", round(with_extender / without, 3))


def check_assignments(ns: str) -> None:
    """Every pod has one GPU of the node that it is bound to, and no GPU holds more than it has."""
    of_node = {}
    for node in api.request("GET", "/api/v1/nodes?labelSelector=type%3Dkwok")["items"]:
        gpus = json.loads(node["metadata"]["annotations"]["sluice.dev/gpus"])["gpus"]
        of_node[node["metadata"]["name"]] = {gpu["uuid"] for gpu in gpus}
    given = Counter()
    pods = api.request("GET", f"/api/v1/namespaces/{ns}/pods")["items"]
    assert len(pods) == PODS
    for pod in pods:
        gpu = pod["metadata"]["annotations"]["sluice.dev/assigned-gpu"]
        assert gpu in of_node[pod["spec"]["nodeName"]], pod["metadata"]
        given[gpu] += 200
    assert max(given.values()) <= 1000, given.most_common(3)


def record_costs(cluster) -> None:
    samples = cluster.metrics("http://127.0.0.1:9401/metrics")
    for name in ("filter", "bind"):
        for percent in (50, 99):
            seconds = cluster.quantile(samples, f"sluice_scheduler_{name}_seconds", percent / 100)
            cluster.record(f"{name}_p{percent}_ms", round(seconds * 1000, 3))
    for name, program in (("extender", scale.EXTENDER), ("its_kube_scheduler", scale.WITH_EXTENDER), ("kube_scheduler", controlplane.SCHEDULER)):
        cluster.record(f"{name}_peak_mib", round(scale.peak_memory(program) / 2**20))
