"""A thousand nodes of eight GPUs: what the extender costs kube-scheduler, if it examines all nodes and if it examines a sample."""

import json
from collections import Counter, defaultdict
from statistics import median

from lib import api, controlplane, costs, fleet, scale

SECONDS = 1500
NODES = 1000
PODS = 1000
ROUNDS = 5


def test_thousand_nodes_with_and_without_the_extender(cluster):
    scale.remove_releases()
    scale.write_configuration()
    fleet.start(NODES, scale.RESOURCE)
    rounds, figures = defaultdict(list), defaultdict(list)
    try:
        with cluster.namespace() as ns:
            for number in range(ROUNDS):
                # The order changes from round to round: what else the machine does falls upon all of them.
                for which in list(scale.SCHEDULERS)[:: 1 if number % 2 else -1]:
                    rounds[which].append(scale.burst(ns, PODS, which))
                    if which.startswith("extender"):
                        check_assignments(ns)
                    if which == "extender":
                        measure_extender(cluster, figures)
                    figures[f"{which}_kube_scheduler_peak_mib"].append(round(costs.peak_memory(scale.SCHEDULERS[which]) / 2**20))
                    scale.clear(ns)
    finally:
        scale.stop()
        fleet.stop()
        controlplane.SCHEDULER.start()
    for which, done in rounds.items():
        cluster.record(f"{which}_pods_per_s", [round(one.rate) for one in done])
        cluster.record(f"{which}_cpu_ms_per_pod", medians([one.cpu_ms for one in done]))
        cluster.record(f"{which}_requests_per_pod", medians([one.requests for one in done]))
    for ours, theirs in (("extender", "plain"), ("extender_sampled", "plain_sampled"), ("plain", "plain_sampled")):
        ratios = [one.rate / other.rate for one, other in zip(rounds[ours], rounds[theirs])]
        cluster.record(f"{ours}_to_{theirs}_ratios", [round(ratio, 3) for ratio in ratios])
        cluster.record(f"{ours}_to_{theirs}", round(median(ratios), 3))
    for name, values in figures.items():
        cluster.record(name, values)


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds; a round without it counts as 0."""
    return {name: median(one.get(name, 0) for one in rounds) for name in sorted(set().union(*rounds))}


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


def measure_extender(cluster, figures: dict[str, list]) -> None:
    samples = cluster.metrics("http://127.0.0.1:9401/metrics")
    for name in ("filter", "bind"):
        for percent in (50, 99):
            seconds = cluster.quantile(samples, f"sluice_scheduler_{name}_seconds", percent / 100)
            figures[f"{name}_p{percent}_ms"].append(round(seconds * 1000, 3))
    figures["extender_peak_mib"].append(round(costs.peak_memory(scale.EXTENDER) / 2**20))
