"""Nodes of both paths in one cluster: one gives its GPUs by claims, the other to annotated pods. Each placement is compared by the same pods.

The second node is kwok's: nothing runs on it, and its agent is a process."""

import contextlib
import json
from dataclasses import dataclass

from lib import api, claims, devices, fleet, images, product
from lib.agents import Agent
from lib.claims import LABEL, claim, pod
from lib.devices import GPUS
from lib.settings import BUILT, NODE, REPOSITORY

SECONDS = 900
# Longer than kube-scheduler's backoff after a first failed attempt, 1 s.
SETTLED = 4
OTHER = "kwok-0000"
IDLE = ["load", "be", "--idle-after", "0", "--seconds", "100000"]
HIGH = "test-paths-high"
DRA = {"dra": {"enabled": True}}


@contextlib.contextmanager
def both(cluster):
    """The node gives claims, and the one of kwok device slots. Yields the agent of the latter."""
    claims.need_consumable_capacity()
    with claims.installed():
        fleet.start(1, product.RESOURCE, gpus=len(GPUS))
        agent = Agent(OTHER, len(GPUS), 0)
        try:
            agent.start()
            yield agent
        finally:
            try:
                cluster.tidy()
            finally:
                agent.stop()
                fleet.stop()


def anywhere(one: dict) -> dict:
    """The pod, which may run on both nodes."""
    one["spec"]["tolerations"] = [fleet.TOLERATION]
    return one


def annotated(name: str, *argv: str, of_class: str | None = None, **keys: object) -> dict:
    one = anywhere(product.tenant(name, *(argv or IDLE), **keys))
    return one | {"spec": one["spec"] | ({"priorityClassName": of_class} if of_class else {})}


def claiming(ns: str, name: str, *argv: str, of_class: str | None = None) -> dict:
    one = anywhere(pod(ns, name, *(argv or IDLE)))
    return one | {"spec": one["spec"] | ({"priorityClassName": of_class} if of_class else {})}


def nodes_of(ns: str) -> dict[str, str | None]:
    return {one["metadata"]["name"]: one["spec"].get("nodeName") for one in product.pods(ns)}


def placed(ns: str, prefix: str) -> dict[str, str]:
    """The nodes of the pods that have one and whose name begins so."""
    return {name: node for name, node in nodes_of(ns).items() if node and name.startswith(prefix)}


def test_no_path_places_a_pod_on_a_node_of_the_other_also_if_its_own_are_full(cluster):
    with both(cluster), cluster.namespace() as ns:
        fill_both(cluster, ns, NODE, OTHER)
        # `kubectl sluice nodes` has both nodes: 0.8 of each GPU.
        shown = {one["node"]: one for one in json.loads(api.command(BUILT / "sluice", "nodes", "-o", "json"))["nodes"]}
        for node in (NODE, OTHER):
            assert [(gpu["promised_share"], gpu["pods"]) for gpu in shown[node]["gpus"]] == [(0.8, 2)] * len(GPUS), shown
        # A pod with both waits for a node that does not exist.
        mixed = claiming(ns, "mixed")
        mixed["metadata"]["annotations"] = product.annotations(quota=0.1, memory="64Mi")
        cluster.create(ns, claim("mixed", 0, "64Mi"), mixed)
        cluster.until("it waits", 60, lambda: [event for event in cluster.events(ns, "mixed") if event["reason"] == "FailedScheduling"])
        assert nodes_of(ns)["mixed"] is None


def fill_both(cluster, ns: str, of_claims: str, of_slots: str) -> None:
    """Ten shares of 0.4 on each path, of which four fit: two on each GPU."""
    names = range(10)
    product.create(ns, *(annotated(f"a{number}", quota=0.4, memory="1Gi") for number in names))
    cluster.create(ns, *(claim(f"c{number}", 400, "1Gi") for number in names), *(claiming(ns, f"c{number}") for number in names))
    for prefix, node in (("a", of_slots), ("c", of_claims)):
        cluster.until(f"four on {node}", 120, lambda prefix=prefix: len(placed(ns, prefix)) >= 4)
    waiting = lambda: {name for name, node in nodes_of(ns).items() if not node}
    refused = lambda: {event["involvedObject"]["name"] for event in cluster.events(ns) if event["reason"] == "FailedScheduling"}
    cluster.until("all others have been refused", 120, lambda: waiting() <= refused())
    for prefix, node in (("a", of_slots), ("c", of_claims)):
        found = placed(ns, prefix)
        assert len(found) == 4 and set(found.values()) == {node}, (prefix, found)


def test_node_changes_its_path_when_no_pod_has_a_claim(cluster):
    with both(cluster) as agent:
        with cluster.namespace() as ns:
            cluster.create(ns, claim("before", 400, "1Gi"), claiming(ns, "before"))
            cluster.wait("pod/before", "condition=Ready", ns, seconds=90)
            kept = lambda: {event["metadata"]["uid"] for event in cluster.events("default", NODE) if event["reason"] == "ClaimsKept"}
            known = kept()
            # The extender would promise the claim's part of the GPU again.
            api.kubectl("label", "node", NODE, f"{LABEL}-")
            restart_agent(cluster)
            cluster.until("the event", 60, lambda: kept() - known)
            cluster.until("its client", 60, lambda: set(product.clients_of(ns)) == {"before"})
            product.create(ns, *(annotated(f"a{number}", quota=1) for number in range(3)))
            cluster.until("two whole GPUs", 60, lambda: len(placed(ns, "a")) == 2)
            cluster.until("the third is refused", 60, lambda: {event["involvedObject"]["name"] for event in cluster.events(ns) if event["reason"] == "FailedScheduling"} & {"a0", "a1", "a2"})
            assert set(placed(ns, "a").values()) == {OTHER} and product.allocatable() == 0, nodes_of(ns)
        agent.stop()
        restart_agent(cluster)
        cluster.until("device slots on the node", 90, lambda: product.allocatable() > 0)
        assert not claims.published(), "devices beside device slots"
        # Kubelet's part, which kwok does not play: no plugin, no slots.
        fleet.stop_agent(OTHER, product.RESOURCE)
        given = Agent(OTHER, len(GPUS), 0, dra=True)
        given.start()
        try:
            with cluster.namespace() as ns:
                fill_both(cluster, ns, OTHER, NODE)
                cluster.until("the pods run", 90, lambda: all(product.phases(ns)[name] == "Running" for name in placed(ns, "a")))
                assert set(product.clients_of(ns)) == set(placed(ns, "a"))
        finally:
            given.stop()
            api.kubectl("delete", "resourceslices", "--all")


def restart_agent(cluster) -> None:
    old = product.agent()
    cluster.delete("pod", old["metadata"]["name"], product.NAMESPACE)
    cluster.until("another agent", 90, lambda: [one for one in product.pods_of("node-agent") if one["metadata"]["uid"] != old["metadata"]["uid"] and ready(one)])


@dataclass(frozen=True)
class Placed:
    """On which GPU of its node a pod is, on each path; None: it waits."""

    extender: int | None
    claims: int | None


def test_the_same_pods_on_both_paths(cluster):
    """The table of docs/design/dra.md."""
    with both(cluster):
        cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": HIGH}, "value": 1000})
        try:
            for compare in (fullest_or_first, eviction_or_wait, critical_pods, share_without_memory, two_gpus, pods_of_a_gang):
                with cluster.namespace() as ns:
                    cluster.record(compare.__name__, {name: vars(at) for name, at in compare(cluster, ns).items()})
        finally:
            cluster.delete("priorityclass", HIGH)


def index(uuid: str) -> int:
    return [*GPUS, *fleet.uuids(OTHER, len(GPUS))].index(uuid) % len(GPUS)


def placement(cluster, ns: str, name: str) -> Placed:
    """Of the pods a-NAME and c-NAME."""
    ours = product.assigned(ns).get(f"a-{name}")
    status = api.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims/c-{name}").get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", [])
    (device,) = [result["device"] for result in results] or [None]
    return Placed(index(ours) if ours else None, [gpu.lower() for gpu in GPUS].index(device) if device else None)


def pair(cluster, ns: str, name: str, milli: int, memory: str, gpu: int | None = None, of_class: str | None = None, critical: bool = False, **keys: str) -> Placed:
    """Creates the same pod for both paths, and waits until each is placed or refused."""
    pinned = {} if gpu is None else {"gpu_uuid": fleet.uuids(OTHER, len(GPUS))[gpu]}
    product.create(ns, annotated(f"a-{name}", of_class=of_class, quota=milli / 1000, memory=memory, **pinned, **keys))
    cluster.create(ns, claim(f"c-{name}", milli, memory, None if gpu is None else GPUS[gpu], critical, **keys), claiming(ns, f"c-{name}", of_class=of_class))
    decided(cluster, ns, name)
    return placement(cluster, ns, name)


def decided(cluster, ns: str, name: str) -> None:
    """Waits until both pods are placed, or have been refused and not tried again with success for SETTLED seconds: a first attempt may fail
    because the scheduler does not know yet that a claim was allocated or deleted."""
    for pod_name in (f"a-{name}", f"c-{name}"):
        refused = lambda pod_name=pod_name: [event for event in cluster.events(ns, pod_name) if event["reason"] == "FailedScheduling"]
        cluster.until(f"{pod_name} is placed or refused", 60, lambda pod_name=pod_name, refused=refused: nodes_of(ns)[pod_name] or refused())
    with contextlib.suppress(TimeoutError):
        cluster.until("both are placed", SETTLED, lambda: all(nodes_of(ns)[f"{path}-{name}"] for path in "ac"))


def fullest_or_first(cluster, ns: str) -> dict[str, Placed]:
    found = {"half of the second GPU": pair(cluster, ns, "half", 500, "8Gi", gpu=1), "0.3 of any GPU": pair(cluster, ns, "three", 300, "8Gi")}
    assert found == {"half of the second GPU": Placed(1, 1), "0.3 of any GPU": Placed(1, 0)}, found
    return found


def eviction_or_wait(cluster, ns: str) -> dict[str, Placed]:
    for gpu in (0, 1):
        assert pair(cluster, ns, f"low-{gpu}", 800, "8Gi", gpu=gpu) == Placed(gpu, gpu)
    pair(cluster, ns, "high", 300, "8Gi", of_class=HIGH)
    cluster.until("one victim, and its place", 90, lambda: placement(cluster, ns, "high").extender is not None)
    found = placement(cluster, ns, "high")
    left = set(nodes_of(ns))
    assert found.claims is None and len(left & {"a-low-0", "a-low-1"}) == 1 and {"c-low-0", "c-low-1"} <= left, (found, left)
    return {"a higher PriorityClass where 0.2 is free": found}


def critical_pods(cluster, ns: str) -> dict[str, Placed]:
    keys = {"priority": "latency-critical"}
    plain = [pair(cluster, ns, f"plain-{number}", 100, "1Gi", **keys) for number in range(2)]
    # Both GPUs of the extender have one; the claims went to the first GPU together.
    assert {one.extender for one in plain} == {0, 1} and [one.claims for one in plain] == [0, 0], plain
    for number in range(2):
        for path in "ac":
            cluster.delete("pod", f"{path}-plain-{number}", ns)
        cluster.delete("resourceclaim", f"c-plain-{number}", ns)
    marked = [pair(cluster, ns, f"marked-{number}", 100, "1Gi", critical=True, **keys) for number in range(3)]
    assert {one.extender for one in marked[:2]} == {0, 1} and {one.claims for one in marked[:2]} == {0, 1}, marked
    assert marked[2].extender is not None and marked[2].claims is None, marked
    return {f"plain-{number}": one for number, one in enumerate(plain)} | {f"marked-{number}": one for number, one in enumerate(marked)}


def share_without_memory(cluster, ns: str) -> dict[str, Placed]:
    """0.3 four times: each pod gets the same part of a GPU's memory, or all of it."""
    found = {}
    for number in range(4):
        name = f"m{number}"
        product.create(ns, annotated(f"a-{name}", quota=0.3))
        one = claim(f"c-{name}", 300, "1Gi")
        del one["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["memory"]
        cluster.create(ns, one, claiming(ns, f"c-{name}"))
        decided(cluster, ns, name)
        found[name] = placement(cluster, ns, name)
    assert [one.extender for one in found.values()] == [0, 0, 0, 1], found
    assert [one.claims for one in found.values()] == [0, 1, None, None], found
    return found


def two_gpus(cluster, ns: str) -> dict[str, Placed]:
    """Two GPUs of a pod are different ones for the extender, and of a count. Two requests of a claim may get one GPU."""
    product.create(ns, annotated("a-two", quota=0.25, gpus=2, memory="1Gi"))
    shapes = {"count": [], "count, distinct": [{"distinctAttribute": f"{claims.DRIVER}/uuid"}], "requests": []}
    found = {}
    for number, (shape, constraints) in enumerate(shapes.items()):
        name = f"c-{number}"
        one = claim(name, 250, "1Gi")
        (request,) = one["spec"]["devices"]["requests"]
        if shape == "requests":
            one["spec"]["devices"]["requests"] = [request, request | {"name": "other"}]
        else:
            request["exactly"]["count"] = 2
        one["spec"]["devices"] |= {"constraints": constraints} if constraints else {}
        cluster.create(ns, one, claiming(ns, name))
        cluster.until(f"{shape} is placed", 60, lambda name=name: nodes_of(ns)[name])
        found[shape] = len({at["device"] for at in allocation(ns, name)})
    cluster.until("two GPUs", 60, lambda: product.assigned(ns).get("a-two"))
    assert len(set(product.assigned(ns)["a-two"].split(","))) == 2
    cluster.record("gpus_of_a_claim_for_two", found)
    assert found == {"count": 2, "count, distinct": 2, "requests": 1}, found
    return {}


def allocation(ns: str, name: str) -> list[dict]:
    found = api.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims/{name}")
    return found["status"]["allocation"]["devices"]["results"]


def pods_of_a_gang(cluster, ns: str) -> dict[str, Placed]:
    found = {f"rank-{number}": pair(cluster, ns, f"rank-{number}", 300, "8Gi", gang="ring") for number in range(2)}
    assert {one.extender for one in found.values()} == {0, 1} and [one.claims for one in found.values()] == [0, 0], found
    return found


def test_upgrade_and_rollback_with_pods_of_both_paths(cluster):
    asked = {"three": 300, "seven": 700}
    with both(cluster) as agent, cluster.namespace() as ns:
        load = ["load", "be", "--duration-us", "5000", "--seconds", "100000"]
        cluster.create(ns, *(claim(name, milli, "1Gi", GPUS[1]) for name, milli in asked.items()), *(claiming(ns, name, *load) for name in asked))
        other = fleet.uuids(OTHER, len(GPUS))[1]
        product.create(ns, annotated("a-six", quota=0.6, memory="8Gi", gpu_uuid=other), annotated("a-three", quota=0.3, memory="8Gi", gpu_uuid=other))
        product.all_running(ns, 120)
        keeps(cluster, ns, asked, agent, {"a-six", "a-three"}, "installed")
        before = identities(ns)
        for when, tag in (("upgraded", images.PRODUCT_NEXT.rpartition(":")[2]), ("rolled_back", None)):
            old = product.agent()["metadata"]["uid"]
            if tag:
                product.upgrade(REPOSITORY / "charts/sluice", product.merged(product.VALUES, DRA | {"image": {"tag": tag}}))
            else:
                api.helm("rollback", product.RELEASE, "-n", product.NAMESPACE, "--wait", "--timeout", "120s")
            agent.program.stop()
            agent.program.start()
            cluster.until("another agent", 90, lambda old=old: [one for one in product.pods_of("node-agent") if one["metadata"]["uid"] != old and ready(one)])
            cluster.until("the devices", 60, lambda: len(claims.published()) == len(GPUS))
            keeps(cluster, ns, asked, agent, {"a-six", "a-three"}, when)
            assert identities(ns) == before
            # What is left of each GPU is as before: one thousandth more is refused, on both paths.
            name = when.replace("_", "-")
            product.create(ns, annotated("a-more", quota=0.101, memory="1Gi", gpu_uuid=other), annotated(f"a-{name}", quota=0.05, memory="1Gi", gpu_uuid=other))
            cluster.create(ns, claim("c-more", 1, "1Gi", GPUS[1]), claiming(ns, "c-more"), claim(f"c-{name}", 0, "64Mi", GPUS[1]), claiming(ns, f"c-{name}"))
            for fits in (f"a-{name}", f"c-{name}"):
                cluster.wait(f"pod/{fits}", "condition=Ready", ns, seconds=90)
            for refused in ("a-more", "c-more"):
                cluster.until(f"{refused} is refused", 60, lambda refused=refused: [event for event in cluster.events(ns, refused) if event["reason"] == "FailedScheduling"])
                assert nodes_of(ns)[refused] is None
                cluster.delete("pod", refused, ns)
            cluster.delete("pod", f"c-{name}", ns)
            cluster.delete("pod", f"a-{name}", ns)
            cluster.delete("resourceclaim", "c-more", ns)
        assert identities(ns) == before


def ready(one: dict) -> bool:
    conditions = one["status"].get("conditions", [])
    return "deletionTimestamp" not in one["metadata"] and any(at["type"] == "Ready" and at["status"] == "True" for at in conditions)


def identities(ns: str) -> dict[str, tuple]:
    """A pod that was replaced, restarted or moved is another."""
    return {
        one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"]["nodeName"], one["status"]["containerStatuses"][0].get("containerID"))
        for one in product.pods(ns)
    }


def keeps(cluster, ns: str, asked: dict[str, int], agent: Agent, others: set[str], when: str) -> None:
    """Both agents have their pods, and the claims their parts of the GPU's busy time."""
    limits = {name: (GPUS[1], milli * 1000, 1 << 30) for name, milli in asked.items()}

    def there() -> bool:
        found = product.clients_of(ns)
        return {name: (one["gpu"], one["quota_ppm"], one["memory_bytes"]) for name, one in found.items()} == limits and all(one["processes"] for one in found.values())

    cluster.until("the clients of claims", 90, there)
    cluster.until("the clients of annotations", 60, lambda: served(agent) == others)
    seen = product.shares(15, [GPUS[1]])[GPUS[1]]
    for name, milli in asked.items():
        got = seen.get(f"{ns}/{name}", 0.0) / sum(seen.values())
        cluster.record(f"{when}_{name}", f"asked {milli / 1000:.2f}, got {got:.4f}")
        assert abs(got - milli / 1000) <= 0.04, (when, seen)


def served(agent: Agent) -> set[str]:
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return agent.clients()
    return set()
