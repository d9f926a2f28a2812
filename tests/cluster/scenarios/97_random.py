"""Random pods of all shapes and PriorityClasses on fifty nodes, while the schedulers restart: an oracle checks every assignment and eviction."""

import json
import random
import time
from collections import defaultdict

from lib import api, fleet, scale
from lib.namespaces import until

SECONDS = 900
NODES, GPUS, PODS, BATCH = 50, 2, 200, 20
# Values of the PriorityClasses; None: pods without a class.
CLASSES = {None: 0, "test-random-high": 100, "test-random-highest": 200}


def test_nothing_is_overcommitted_and_evictions_serve_higher_classes(cluster):
    seed = time.time_ns() % 1_000_000
    cluster.record("seed", seed)
    chance = random.Random(seed)
    scale.remove_releases()
    scale.write_configuration()
    classes = {name: value for name, value in CLASSES.items() if name}
    for name, value in classes.items():
        cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    fleet.start(NODES, scale.RESOURCE, gpus=GPUS)
    try:
        with cluster.namespace() as ns:
            start()
            shapes = {}
            for first in range(0, PODS, BATCH):
                for number in range(first, first + BATCH):
                    created = api.request("POST", f"/api/v1/namespaces/{ns}/pods", pod(chance, ns, f"p{number}"))
                    shapes[created["metadata"]["uid"]] = created
                for program in (scale.EXTENDER, scale.WITH_EXTENDER):
                    if chance.random() < 0.3:
                        program.stop()
                start()
            until("no pod that waits fits on a GPU", 300, lambda: is_settled(ns), every=1)
            check_evictions(cluster, ns, shapes)
            scale.clear(ns)
    finally:
        scale.WITH_EXTENDER.stop()
        scale.EXTENDER.stop()
        fleet.stop()
        for name in classes:
            cluster.delete("priorityclass", name)


def start() -> None:
    scale.EXTENDER.start()
    until("extender", 60, lambda: scale.EXTENDER.check() or scale.answers("http://127.0.0.1:9401/readyz"))
    scale.WITH_EXTENDER.start()


def pod(chance: random.Random, ns: str, name: str) -> dict:
    """A pod with the annotations of a user and the requests that the webhook adds, which is not installed here."""
    (one,) = scale.pods(ns, 1, plain=False)
    gpus = chance.choice([1, 1, 1, 1, 1, 2])
    milli = 1000 * gpus if gpus > 1 else 100 * chance.randint(0, 10)
    memory = chance.choice([None, 8, 40, 100]) if gpus == 1 else None
    annotations = {"sluice.dev/quota": str(gpus) if gpus > 1 else f"{milli / 1000:.1f}"} if milli else {}
    requests = {scale.RESOURCE: str(gpus), "cpu": chance.choice(["1", "8", "64"])}
    if milli:
        requests["sluice.dev/milli"] = str(milli)
    if memory or not milli:
        memory = memory or 8
        annotations["sluice.dev/memory"] = f"{memory}Gi"
        requests["sluice.dev/memory-mib"] = str(memory << 10)
    if gpus == 1 and chance.random() < 0.2:
        annotations["sluice.dev/priority"] = "latency-critical"
    one["metadata"] |= {"name": name, "annotations": annotations}
    limits = {key: value for key, value in requests.items() if key != "cpu"}
    one["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": requests}
    if of_class := chance.choice(list(CLASSES)):
        one["spec"]["priorityClassName"] = of_class
    return one


def found(ns: str) -> list[dict]:
    return api.request("GET", f"/api/v1/namespaces/{ns}/pods")["items"]


def amounts(pod: dict) -> tuple[bool, int, int]:
    """Whether it takes whole GPUs, thousandths and bytes on each of its GPUs."""
    annotations = pod["metadata"]["annotations"]
    quota = float(annotations.get("sluice.dev/quota", 0))
    milli = round(1000 * min(quota, 1))
    memory = annotations.get("sluice.dev/memory")
    bytes_ = int(memory.removesuffix("Gi")) << 30 if memory else fleet.MEMORY_BYTES * milli // 1000
    return quota > 1, milli, bytes_


def on_gpus(pods: list[dict]) -> dict[str, list[tuple[bool, int, int]]]:
    """The amounts of the bound pods on each GPU. No GPU has more than it holds."""
    holds = defaultdict(list)
    for one in pods:
        if one["spec"].get("nodeName"):
            for gpu in one["metadata"]["annotations"]["sluice.dev/assigned-gpu"].split(","):
                holds[gpu].append(amounts(one))
    for gpu, held in holds.items():
        assert sum(milli for _, milli, _ in held) <= 1000, (gpu, held)
        assert sum(memory for _, _, memory in held) <= fleet.MEMORY_BYTES, (gpu, held)
        assert len(held) == 1 or not any(whole for whole, _, _ in held), (gpu, held)
    return holds


def is_settled(ns: str) -> bool:
    """Nothing ends, and no pod that waits fits on a node. Asserts that no GPU is overcommitted at any time."""
    pods = found(ns)
    holds = on_gpus(pods)
    if any("deletionTimestamp" in one["metadata"] for one in pods):
        return False
    nodes = {}
    for node in api.request("GET", "/api/v1/nodes?labelSelector=type%3Dkwok")["items"]:
        gpus = json.loads(node["metadata"]["annotations"]["sluice.dev/gpus"])["gpus"]
        nodes[node["metadata"]["name"]] = [holds[gpu["uuid"]] for gpu in gpus]
    cpus = defaultdict(int)
    for one in pods:
        cpus[one["spec"].get("nodeName")] += cpu(one)
    waiting = [one for one in pods if not one["spec"].get("nodeName")]
    return not any(fits(one, gpus) and cpus[node] + cpu(one) <= 256 for one in waiting for node, gpus in nodes.items())


def cpu(pod: dict) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def fits(pod: dict, gpus: list[list[tuple[bool, int, int]]]) -> bool:
    whole, milli, memory = amounts(pod)
    if whole:
        return sum(not held for held in gpus) >= int(pod["metadata"]["annotations"]["sluice.dev/quota"])
    return any(
        not any(other for other, _, _ in held)
        and sum(one for _, one, _ in held) + milli <= 1000
        and sum(one for _, _, one in held) + memory <= fleet.MEMORY_BYTES
        for held in gpus
    )


def check_evictions(cluster, ns: str, shapes: dict[str, dict]) -> None:
    """Each victim had a lower class than the pod that evicted it, and each such pod of the highest class is bound.

    A pod of a lower class may lose the room of its victims to a later pod of a higher class, as with any kube-scheduler.
    """
    now = {one["metadata"]["uid"]: one for one in found(ns)}
    evicted = {}
    for event in cluster.events(ns):
        if event["reason"] == "Preempted":
            # "Preempted by pod UID on node NAME"
            words = event["message"].split()
            evicted[event["involvedObject"]["uid"]] = (words[3], words[-1])
    elsewhere = 0
    for victim, (preemptor, node) in evicted.items():
        priority = shapes[preemptor]["spec"]["priority"]
        name = shapes[preemptor]["metadata"]["name"]
        assert shapes[victim]["spec"]["priority"] < priority, f"{name} evicted a pod of its own class or a higher one"
        assert victim not in now, f"{victim} was evicted for {name} and is still there"
        bound_to = now[preemptor]["spec"].get("nodeName") if preemptor in now else node
        elsewhere += bound_to != node
        assert bound_to or priority < max(CLASSES.values()), f"{name} has the highest class, evicted a pod and still waits"
    cluster.record("evicted", len(evicted))
    cluster.record("evicted_for_pods_that_are_not_on_the_node", elsewhere)
    assert evicted, "no pod was evicted: the pods did not fill the GPUs"
