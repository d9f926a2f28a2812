"""Pods of a higher PriorityClass evict the pods whose end makes room on a GPU, and no pod in vain."""

import contextlib
import time

from lib import api, images, product
from lib.devices import GPUS
from lib.namespaces import until
from lib.settings import NODE

SECONDS = 180
CORE = {
    "no_pod_is_evicted_for_one_that_the_extender_refuses",
    "pods_of_the_lowest_class_are_evicted_where_they_make_room",
    "pod_is_evicted_where_only_the_single_gpus_lack_room",
}
URGENT, HIGHER = "test-sluice-urgent", "test-sluice-higher"
CLASSES = {URGENT: 1_000_000, HIGHER: 1_000}


@contextlib.contextmanager
def namespace(cluster):
    """A namespace for one test, while the PriorityClasses exist."""
    product.need()
    for name, value in CLASSES.items():
        cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    try:
        with cluster.namespace() as ns:
            yield ns
    finally:
        for name in CLASSES:
            cluster.delete("priorityclass", name)


def share(name: str, quota: str, gpu: int | None = None, of_class: str | None = None, **keys: object) -> dict:
    pod = product.idle(name, quota=quota, memory="64Mi", **({} if gpu is None else {"gpu_uuid": GPUS[gpu]}), **keys)
    if of_class:
        pod["spec"]["priorityClassName"] = of_class
    return pod


def run(ns: str, *pods: dict) -> dict[str, str]:
    """Creates pods and returns their UIDs by name when all run. They start in a later second than those that run already."""
    starts = [pod["status"]["startTime"] for pod in product.pods(ns)]
    until("a later second", 5, lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > max(starts, default=""))
    product.create(ns, *pods)
    product.all_running(ns)
    return alive(ns)


def alive(ns: str) -> dict[str, str]:
    """UIDs by name of the pods that nothing deletes."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in product.pods(ns) if "deletionTimestamp" not in pod["metadata"]}


def preemptions(cluster, outcome: str) -> float:
    """Preempt calls with this outcome, counted by all replicas of the extender."""
    count = 0.0
    for pod in product.pods_of("scheduler"):
        samples = cluster.metrics(f"http://{pod['status']['podIP']}:9401/metrics")
        count += sum(one.value for one in samples if one.name == "sluice_scheduler_preemptions_total" and one.labels["outcome"] == outcome)
    return count


def evicts_none(cluster, ns: str, wants: dict) -> None:
    """The extender is asked about victims for the pod and finds none; all pods stay."""
    before, refused = alive(ns), preemptions(cluster, "refused")
    product.create(ns, wants)
    cluster.until("the extender finds no victims", 30, lambda: preemptions(cluster, "refused") > refused)
    name = wants["metadata"]["name"]
    now = {pod["metadata"]["name"]: pod for pod in product.pods(ns)}
    assert now[name]["status"]["phase"] == "Pending" and "nominatedNodeName" not in now[name]["status"], now[name]["status"]
    assert {pod: uid for pod, uid in alive(ns).items() if pod != name} == before


def test_no_pod_is_evicted_for_one_that_the_extender_refuses(cluster):
    with namespace(cluster) as ns:
        # The node's sum has room for half a GPU, no GPU has. Half of the processors are those of a pod without a GPU.
        product.create(ns, share("equal-0", "0.6", 0, URGENT), share("equal-1", "0.6", 1, URGENT))
        half = {"requests": {"cpu": f"{milli_cores() // 2}m"}}
        victim = cluster.pod("victim", "/usr/bin/sleep", "1000", image=images.TOOLS, resources=half)
        api.request("POST", f"/api/v1/namespaces/{ns}/pods", victim)
        product.all_running(ns)
        wants = share("wants", "0.5", of_class=URGENT)
        wants["spec"]["containers"][0]["resources"] = half
        evicts_none(cluster, ns, wants)


def test_no_pod_is_evicted_on_gpus_that_stay_too_full(cluster):
    with namespace(cluster) as ns:
        # Without both lower pods the node has 0.8 of a GPU, each GPU 0.4.
        run(ns, *(share(f"equal-{gpu}", "0.6", gpu, URGENT) for gpu in (0, 1)), *(share(f"lower-{gpu}", "0.4", gpu) for gpu in (0, 1)))
        evicts_none(cluster, ns, share("wants", "0.8", of_class=URGENT))


def test_pods_of_the_lowest_class_are_evicted_where_they_make_room(cluster):
    with namespace(cluster) as ns:
        run(ns, share("old-0", "0.5", 0), share("higher-1", "0.5", 1, HIGHER))
        before = run(ns, share("young-0", "0.5", 0))
        before |= run(ns, share("youngest-1", "0.5", 1))
        # The sums of the node suggest the two youngest pods, which are on different GPUs.
        product.create(ns, share("wants", "1", of_class=URGENT))
        cluster.until("it has the room", 60, lambda: product.assigned(ns).get("wants") == GPUS[0])
        kept = {"higher-1", "youngest-1"}
        cluster.until("its victims are gone", 30, lambda: alive(ns).keys() == kept | {"wants"})
        assert {pod: alive(ns)[pod] for pod in kept} == {pod: before[pod] for pod in kept}


def test_pod_is_evicted_where_only_the_single_gpus_lack_room(cluster):
    with namespace(cluster) as ns:
        before = run(ns, share("higher-0", "0.6", 0, HIGHER), share("lower-1", "0.6", 1))
        # The node's sum has 0.8, so kube-scheduler looks for no victims.
        product.create(ns, share("wants", "0.5", of_class=URGENT))
        cluster.until("it has the room", 120, lambda: product.assigned(ns).get("wants") == GPUS[1])
        cluster.until("its victim is gone", 30, lambda: alive(ns).keys() == {"higher-0", "wants"})
        assert alive(ns)["higher-0"] == before["higher-0"]
        reasons = [event["message"] for event in cluster.events(ns, "lower-1") if event["reason"] == "Preempted"]
        assert len(reasons) == 1 and NODE in reasons[0], reasons
        product.all_running(ns)


def test_youngest_pod_is_evicted_unless_a_budget_protects_it(cluster):
    with namespace(cluster) as ns:
        run(ns, share("equal-0", "0.6", 0, URGENT), share("equal-1", "0.6", 1, URGENT), share("old-0", "0.4", 0))
        run(ns, share("young-1", "0.4", 1))
        product.create(ns, share("first", "0.4", of_class=URGENT))
        cluster.until("it has the room of the youngest", 60, lambda: product.assigned(ns).get("first") == GPUS[1])
        cluster.until("only the youngest is gone", 30, lambda: alive(ns).keys() == {"equal-0", "equal-1", "old-0", "first"})

        cluster.delete("pod", "first", ns)
        run(ns, share("protected-1", "0.4", 1, labels={"app": "protected"}))
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}
        cluster.create(ns, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "one"}, "spec": budget})
        status = lambda: cluster.get("poddisruptionbudget", "one", ns).get("status", {})
        cluster.until("the budget counts its pod", 30, lambda: status().get("currentHealthy") == 1)
        assert status()["disruptionsAllowed"] == 0
        product.create(ns, share("second", "0.4", of_class=URGENT))
        cluster.until("it has the room of the older", 60, lambda: product.assigned(ns).get("second") == GPUS[0])
        cluster.until("only the older is gone", 30, lambda: alive(ns).keys() == {"equal-0", "equal-1", "protected-1", "second"})


def test_waiting_pods_do_not_get_the_room_of_the_victims(cluster):
    with namespace(cluster) as ns:
        run(ns, share("victim", "0.6", 0), share("equal", "0.9", 1, URGENT))
        # They fit as soon as the victim has ended, and were there first.
        product.create(ns, *(share(f"waits-{number}", "0.5", 0) for number in range(4)))
        cluster.until("they wait", 60, lambda: all(phase == "Pending" for name, phase in product.phases(ns).items() if name.startswith("waits")))
        product.create(ns, share("wants", "1", of_class=URGENT))
        cluster.until("it has the room", 60, lambda: product.assigned(ns).get("wants") == GPUS[0])
        assert alive(ns).keys() == {"equal", "wants", *(f"waits-{number}" for number in range(4))}
        assert product.assigned(ns).keys() == {"equal", "wants"}


def milli_cores() -> int:
    """The processors that the node gives to pods."""
    cpu = api.request("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["cpu"]
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu)
