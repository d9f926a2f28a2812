"""Random pods of all shapes and PriorityClasses on a hundred GPUs, while schedulers and agents restart.

The agents of three nodes are processes, which end and start. Of the other agents only what they publish goes and returns. An oracle checks each state of the pods that the API server had, and each eviction."""

import random
import signal
import time
from collections import defaultdict
from typing import NamedTuple

from lib import api, fleet, scale
from lib.agents import Agent
from lib.history import History
from lib.namespaces import until
from lib.oracle import check_gpus, fits, gangs_of, memories, on_gpus

SECONDS = 900
NODES, GPUS, PODS, BATCH = 25, 4, 200, 20
PROCESSES = 3
# Values of the PriorityClasses; None: pods without a class.
CLASSES = {None: 0, "test-random-high": 100, "test-random-highest": 200}
SCHEDULERS = "the schedulers"


class Absence(NamedTuple):
    """Restarts of the agent of a node, or of scheduler programs, between two revisions of the API server."""

    of: str
    begin: int
    end: int


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
    agents = [Agent(node, GPUS, number) for number, node in enumerate(nodes[:PROCESSES])]
    try:
        for agent in agents:
            agent.start()
        sizes = memories()
        with cluster.namespace() as ns, History(ns) as history:
            start()
            absences: list[Absence] = []
            for first in range(0, PODS, BATCH):
                for number in range(first, first + BATCH):
                    api.request("POST", f"/api/v1/namespaces/{ns}/pods", pod(chance, ns, f"p{number}"))
                absences += restart_some(chance, nodes, agents)
            until("no pod that waits fits on a GPU", 300, lambda: is_settled(ns, sizes), every=1)
            events = history.until_now()
            check_gpus(events, sizes)
            check_evictions(cluster, ns, events, absences)
            for agent in agents:
                until(f"the agent of {agent.node} serves its pods", 30, lambda: agent.clients() == bound_to(ns, agent.node))
            sets = {one["metadata"]["uid"] for _, one in events if "sluice.dev/gpus" in one["metadata"]["annotations"] and one["spec"].get("nodeName")}
            cluster.record("bound_pods_with_shares_of_several_gpus", len(sets))
            cluster.record("pods_of_agents_that_are_processes", sum(len(agent.clients()) for agent in agents))
            scale.clear(ns)
    finally:
        for agent in agents:
            agent.stop()
        scale.WITH_EXTENDER.stop()
        scale.EXTENDER.stop()
        fleet.stop()
        for name in classes:
            cluster.delete("priorityclass", name)


def restart_some(chance: random.Random, nodes: list[str], agents: list[Agent]) -> list[Absence]:
    """Restarts each scheduler program with a probability of 0.3, and the agents of some nodes while kube-scheduler goes on. An agent that
    is a process ends as in an update or as in a crash."""
    published = chance.sample(nodes[len(agents) :], 5)
    ended = [agent for agent in agents if chance.random() < 0.5]
    absent = [(node, fleet.stop_agent(node, scale.RESOURCE)) for node in [*published, *(agent.node for agent in ended)]]
    for agent in ended:
        agent.program.stop(chance.choice([signal.SIGTERM, signal.SIGKILL]))
    before, stopped = revision(), False
    for program in (scale.EXTENDER, scale.WITH_EXTENDER):
        if chance.random() < 0.3:
            program.stop()
            stopped = True
    start()
    for node in published:
        fleet.start_agent(node, scale.RESOURCE, GPUS)
    for agent in ended:
        agent.start()
        fleet.start_agent(agent.node, scale.RESOURCE, GPUS, is_process=True)
    after = revision()
    return [Absence(node, begin, after) for node, begin in absent] + [Absence(SCHEDULERS, before, after)] * stopped


def revision() -> int:
    """The API server numbers the changes of all objects together."""
    return int(api.request("GET", "/api/v1/nodes?limit=1")["metadata"]["resourceVersion"])


def start() -> None:
    scale.start_extender()
    scale.WITH_EXTENDER.start()


def pod(chance: random.Random, ns: str, name: str) -> dict:
    """A pod with the annotations of a user and the requests that the webhook adds, which is not installed here."""
    (one,) = scale.pods(ns, 1, plain=False)
    gpus = chance.choice([1, 1, 1, 1, 2, 2, 3])
    # Whole GPUs, or a share and a memory of each of several.
    is_whole = gpus > 1 and chance.random() < 0.4
    milli = 1000 if is_whole else 100 * chance.randint(0, 10)
    memory = None if is_whole else chance.choice([None, 8, 40, 100])
    annotations = {} if is_whole or gpus == 1 else {"sluice.dev/gpus": str(gpus)}
    if milli:
        annotations["sluice.dev/quota"] = str(gpus) if is_whole else f"{milli / 1000:.1f}"
    # Kubernetes counts the sums over the GPUs.
    requests = {scale.RESOURCE: str(gpus), "cpu": chance.choice(["1", "8", "64"])}
    if milli:
        requests["sluice.dev/milli"] = str(milli * gpus)
    if memory or not milli:
        memory = memory or 8
        annotations["sluice.dev/memory"] = f"{memory}Gi"
        requests["sluice.dev/memory-mib"] = str((memory << 10) * gpus)
    if not is_whole and chance.random() < 0.2:
        annotations["sluice.dev/priority"] = "latency-critical"
    one["metadata"] |= {"name": name, "annotations": annotations}
    limits = {key: value for key, value in requests.items() if key != "cpu"}
    one["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": requests}
    if of_class := chance.choice(list(CLASSES)):
        one["spec"]["priorityClassName"] = of_class
    return one


def found(ns: str) -> list[dict]:
    return api.request("GET", f"/api/v1/namespaces/{ns}/pods")["items"]


def bound_to(ns: str, node: str) -> set[str]:
    return {name(one) for one in found(ns) if one["spec"].get("nodeName") == node}


def is_settled(ns: str, sizes: dict) -> bool:
    """Nothing ends, and no pod that waits fits on a node."""
    pods = found(ns)
    if any("deletionTimestamp" in one["metadata"] for one in pods):
        return False
    holds, gangs = on_gpus(pods, sizes), gangs_of(pods)
    cpus = defaultdict(int)
    for one in pods:
        cpus[one["spec"].get("nodeName")] += cpu(one)
    waiting = [one for one in pods if not one["spec"].get("nodeName")]
    return not any(
        cpus[node] + cpu(one) <= 256 and fits(one, {gpu: (size, holds[gpu]) for gpu, size in of_node.items()}, gangs[node])
        for one in waiting
        for node, of_node in sizes.items()
    )


def cpu(pod: dict) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def check_evictions(cluster, ns: str, events: list[tuple[str, dict]], absences: list[Absence]) -> None:
    """Each victim had a lower class than the pod for which it was evicted. That pod, or later one of a still higher class, got the room, unless
    the node's agent or a scheduler was away before the pod was bound."""
    pods = {one["metadata"]["uid"]: one for _, one in events}
    begun, gone, bound = {}, {}, {}
    for kind, one in events:
        uid, at = one["metadata"]["uid"], int(one["metadata"]["resourceVersion"])
        if "deletionTimestamp" in one["metadata"]:
            begun.setdefault(uid, at)
        if one["spec"].get("nodeName"):
            bound.setdefault(uid, at)
        if kind == "DELETED":
            gone[uid] = at
    evicted = preempted(cluster, ns)
    cluster.record("evicted", len(evicted))
    assert evicted, "no pod was evicted: the pods did not fill the GPUs"
    superseded, disturbed, vain = 0, 0, []
    for victim, (preemptor, node) in evicted.items():
        title = f"{name(pods[victim])} on {node} for {name(pods[preemptor])}"
        assert priority(pods[victim]) < priority(pods[preemptor]), f"{title}: of the same class or a higher one"
        assert victim in gone, f"{title}: still there"
        if preemptor in bound and pods[preemptor]["spec"]["nodeName"] == node:
            continue
        freed = {gpu for other, why in evicted.items() if why == (preemptor, node) for gpu in gpus_of(pods[other])}
        takers = [uid for uid, at in bound.items() if at > begun[victim] and priority(pods[uid]) > priority(pods[preemptor]) and freed & gpus_of(pods[uid])]
        superseded += bool(takers)
        end = bound.get(preemptor, 1 << 63)
        was_away = any(one.of in (node, SCHEDULERS) and one.begin < end and begun[victim] < one.end for one in absences)
        disturbed += not takers and was_away
        if not takers and not was_away:
            where = pods[preemptor]["spec"].get("nodeName", "no node")
            vain.append(f"{title}, which is on {where}")
    cluster.record("evicted_for_pods_of_which_a_higher_one_took_the_room", superseded)
    cluster.record("evicted_before_the_node_or_a_scheduler_was_away", disturbed)
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
