"""Random pods of all shapes and PriorityClasses on fifty nodes, while schedulers and agents restart.

An oracle checks each state of the pods that the API server had, and each eviction."""

import json
import random
import time
from collections import defaultdict

from lib import api, fleet, scale
from lib.history import History
from lib.namespaces import until

SECONDS = 900
NODES, GPUS, PODS, BATCH = 50, 2, 200, 20
# Values of the PriorityClasses; None: pods without a class.
CLASSES = {None: 0, "test-random-high": 100, "test-random-highest": 200}


def test_nothing_is_overcommitted_and_no_eviction_is_in_vain(cluster):
    seed = time.time_ns() % 1_000_000
    cluster.record("seed", seed)
    chance = random.Random(seed)
    scale.remove_releases()
    scale.write_configuration()
    classes = {name: value for name, value in CLASSES.items() if name}
    for name, value in classes.items():
        cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    nodes = fleet.start(NODES, scale.RESOURCE, gpus=GPUS)
    try:
        with cluster.namespace() as ns, History(ns) as history:
            start()
            for first in range(0, PODS, BATCH):
                for number in range(first, first + BATCH):
                    api.request("POST", f"/api/v1/namespaces/{ns}/pods", pod(chance, ns, f"p{number}"))
                restart_some(chance, nodes)
            until("no pod that waits fits on a GPU", 300, lambda: is_settled(ns), every=1)
            events = history.until_now()
            check_gpus(events)
            check_evictions(cluster, ns, events)
            scale.clear(ns)
    finally:
        scale.WITH_EXTENDER.stop()
        scale.EXTENDER.stop()
        fleet.stop()
        for name in classes:
            cluster.delete("priorityclass", name)


def restart_some(chance: random.Random, nodes: list[str]) -> None:
    """Restarts each program with a probability of 0.3, and the agents of five nodes while kube-scheduler goes on."""
    agents = chance.sample(nodes, 5)
    for node in agents:
        fleet.stop_agent(node, scale.RESOURCE)
    for program in (scale.EXTENDER, scale.WITH_EXTENDER):
        if chance.random() < 0.3:
            program.stop()
    start()
    for node in agents:
        fleet.start_agent(node, scale.RESOURCE, GPUS)


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


def check_gpus(events: list[tuple[str, dict]]) -> None:
    """No GPU had more than it holds at any time."""
    bound = {}
    for kind, one in events:
        if kind == "DELETED":
            bound.pop(one["metadata"]["uid"], None)
        elif one["spec"].get("nodeName"):
            if one["metadata"]["uid"] not in bound:
                on_gpus([*bound.values(), one])
            bound[one["metadata"]["uid"]] = one


def is_settled(ns: str) -> bool:
    """Nothing ends, and no pod that waits fits on a node."""
    pods = found(ns)
    if any("deletionTimestamp" in one["metadata"] for one in pods):
        return False
    holds = on_gpus(pods)
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


def check_evictions(cluster, ns: str, events: list[tuple[str, dict]]) -> None:
    """Each victim had a lower class than the pod for which it was evicted. That pod, or later one of a still higher class, got the room."""
    pods = {one["metadata"]["uid"]: one for _, one in events}
    begun, gone, bound = {}, {}, {}
    for at, (kind, one) in enumerate(events):
        uid = one["metadata"]["uid"]
        if "deletionTimestamp" in one["metadata"]:
            begun.setdefault(uid, at)
        if one["spec"].get("nodeName"):
            bound.setdefault(uid, at)
        if kind == "DELETED":
            gone[uid] = at
    evicted = preempted(cluster, ns)
    cluster.record("evicted", len(evicted))
    assert evicted, "no pod was evicted: the pods did not fill the GPUs"
    superseded, vain = 0, []
    for victim, (preemptor, node) in evicted.items():
        title = f"{name(pods[victim])} on {node} for {name(pods[preemptor])}"
        assert priority(pods[victim]) < priority(pods[preemptor]), f"{title}: of the same class or a higher one"
        assert victim in gone, f"{title}: still there"
        if preemptor in bound and pods[preemptor]["spec"]["nodeName"] == node:
            continue
        freed = {gpu for other, why in evicted.items() if why == (preemptor, node) for gpu in gpus_of(pods[other])}
        takers = [uid for uid, at in bound.items() if at > begun[victim] and priority(pods[uid]) > priority(pods[preemptor]) and freed & gpus_of(pods[uid])]
        superseded += bool(takers)
        if not takers:
            where = pods[preemptor]["spec"].get("nodeName", "no node")
            vain.append(f"{title}, which is on {where}")
    cluster.record("evicted_for_pods_of_which_a_higher_one_took_the_room", superseded)
    assert not vain, f"{len(vain)} of {len(evicted)} evictions were in vain: {vain}"


def preempted(cluster, ns: str) -> dict[str, tuple[str, str]]:
    """UIDs of the victims; for each the preemptor's UID and the node."""
    found = {}
    for event in cluster.events(ns):
        if event["reason"] == "Preempted":
            # "Preempted by pod UID on node NAME"
            words = event["message"].split()
            found[event["involvedObject"]["uid"]] = (words[3], words[-1])
    return found


def name(pod: dict) -> str:
    return pod["metadata"]["name"]


def priority(pod: dict) -> int:
    return pod["spec"]["priority"]


def gpus_of(pod: dict) -> set[str]:
    return set(pod["metadata"]["annotations"]["sluice.dev/assigned-gpu"].split(","))
