"""A thousand nodes of eight GPUs: what the extender costs the stock scheduler."""

import json
from collections import Counter, defaultdict
from statistics import median

from lib import api, controlplane, fleet, scale

SECONDS = 1500
NODES = 1000
PODS = 1000
ROUNDS = 5


def test_thousand_nodes_with_and_without_the_extender(cluster):
    scale.remove_releases()
    scale.write_configuration()
    fleet.start(NODES, scale.RESOURCE)
    rates, costs = {True: [], False: []}, defaultdict(list)
    try:
        with cluster.namespace() as ns:
            for number in range(ROUNDS):
                # Each of the two is first in every other round: what else the machine does falls upon both.
                for plain in (True, False) if number % 2 == 0 else (False, True):
                    rates[plain].append(scale.rate(ns, PODS, plain))
                    if not plain:
                        check_assignments(ns)
                        measure_costs(cluster, costs)
                    scale.clear(ns)
    finally:
        scale.WITH_EXTENDER.stop()
        scale.EXTENDER.stop()
        fleet.stop()
    ratios = [with_it / without for with_it, without in zip(rates[False], rates[True])]
    cluster.record("plain_pods_per_s", [round(rate) for rate in rates[True]])
    cluster.record("extender_pods_per_s", [round(rate) for rate in rates[False]])
    cluster.record("ratios", [round(ratio, 3) for ratio in ratios])
    cluster.record("ratio", round(median(ratios), 3))
    for name, values in costs.items():
        cluster.record(name, values)


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


def measure_costs(cluster, costs: dict[str, list]) -> None:
    samples = cluster.metrics("http://127.0.0.1:9401/metrics")
    for name in ("filter", "bind"):
        for percent in (50, 99):
            seconds = cluster.quantile(samples, f"sluice_scheduler_{name}_seconds", percent / 100)
            costs[f"{name}_p{percent}_ms"].append(round(seconds * 1000, 3))
    for name, program in (("extender", scale.EXTENDER), ("its_kube_scheduler", scale.WITH_EXTENDER), ("kube_scheduler", controlplane.SCHEDULER)):
        costs[f"{name}_peak_mib"].append(round(scale.peak_memory(program) / 2**20))
