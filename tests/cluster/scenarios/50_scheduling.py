"""Placement of pods, and events of pods that wait. KubeShare's placement defects do not occur."""

from lib import api, product, prometheus
from lib.devices import GPUS, MEMORY_BYTES, MODEL

SECONDS = 240
CORE = {
    "filled_to_exactly_one_and_the_next_waits",
    "memory_counts_as_well",
    "whole_gpus",
    "d15_limit_and_request_are_not_swapped",
}
IDLE = ["load", "be", "--idle-after", "0", "--seconds", "100000"]


def quiet(name: str, **keys: object) -> dict:
    return product.tenant(name, *IDLE, **keys)


def waits(cluster, ns: str, pod: str, *words: str) -> None:
    """The pod stays pending, and its events contain these words."""

    def is_reported() -> bool:
        texts = [e["message"] for e in cluster.events(ns, pod) if e["reason"] == "FailedScheduling"]
        return any(all(word in text for word in words) for text in texts)

    try:
        cluster.until(f"{pod} waits: {words}", 30, is_reported)
    except Exception as why:
        raise AssertionError(f"{why}: {[e['message'] for e in cluster.events(ns, pod)]}") from why
    assert product.phases(ns)[pod] == "Pending"


def test_filled_to_exactly_one_and_the_next_waits(cluster):
    product.need()
    with cluster.namespace() as ns:
        gpu = GPUS[0]
        # D25: with floats 0.1 ten times is not 1.
        product.create(ns, *(quiet(f"p{n}", quota="0.1", memory="64Mi", gpu_uuid=gpu) for n in range(10)))
        cluster.until("ten assigned", 60, lambda: list(product.assigned(ns).values()) == [gpu] * 10)
        product.create(ns, quiet("next", quota="0.001", memory="64Mi", gpu_uuid=gpu))
        waits(cluster, ns, "next", "0.000 free", "0.001 asked")
        cluster.delete("pod", "p3", ns)
        cluster.until("next got the place", 60, lambda: product.assigned(ns).get("next") == gpu)
        # What was given back is exactly what was taken: 0.099 fit beside 0.901, 0.100 do not.
        product.create(ns, quiet("tenth", quota="0.1", memory="64Mi", gpu_uuid=gpu))
        waits(cluster, ns, "tenth", "0.099 free", "0.100 asked")


def test_memory_counts_as_well(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, quiet("big", quota="0.1", memory=MEMORY_BYTES - (1 << 30), gpu_uuid=GPUS[0]))
        cluster.until("assigned", 60, lambda: "big" in product.assigned(ns))
        product.create(ns, quiet("more", quota="0.1", memory="2Gi", gpu_uuid=GPUS[0]))
        waits(cluster, ns, "more", "memory", "2.0 GiB asked")


def test_unknown_model_and_uuid_are_reported(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, quiet("model", quota="0.1", memory="64Mi", gpu_model="NVIDIA-H900"))
        product.create(ns, quiet("uuid", quota="0.1", memory="64Mi", gpu_uuid="GPU-11111111-2222-3333-4444-555555555555"))
        product.create(ns, quiet("right", quota="0.1", memory="64Mi", gpu_model=MODEL.replace(" ", "-")))
        waits(cluster, ns, "model", "NVIDIA-H900")
        waits(cluster, ns, "uuid", "GPU-11111111-2222-3333-4444-555555555555")
        cluster.until("the right model", 60, lambda: "right" in product.assigned(ns))


def test_whole_gpus(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, quiet("both", quota="2"))
        product.all_running(ns)
        assert sorted(product.assigned(ns)["both"].split(",")) == sorted(GPUS)
        product.create(ns, quiet("crumb", quota="0.001", memory="64Mi"))
        # All of the node's GPU time is taken: the stock scheduler sees that itself.
        waits(cluster, ns, "crumb", "Insufficient sluice.dev/milli")
        cluster.delete("pod", "both", ns)
        cluster.until("crumb", 60, lambda: "crumb" in product.assigned(ns))
        # D25: two GPUs are asked for, each half used: it waits, and the scheduler lives on.
        product.create(ns, quiet("two", quota="2"))
        waits(cluster, ns, "two", "Insufficient sluice.dev/milli")
        cluster.delete("pod", "crumb", ns)
        cluster.until("two", 60, lambda: "two" in product.assigned(ns))


def test_share_of_each_of_several_gpus(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, quiet("pair", gpus=2, quota="0.6", memory="64Mi"))
        product.all_running(ns)
        assert sorted(product.assigned(ns)["pair"].split(",")) == sorted(GPUS)
        product.create(ns, quiet("single", quota="0.3", memory="64Mi", gpu_uuid=GPUS[0]))
        cluster.until("single", 60, lambda: "single" in product.assigned(ns))
        # The sum of the node has 0.5, and one of the GPUs 0.1.
        product.create(ns, quiet("next", gpus=2, quota="0.2", memory="64Mi"))
        waits(cluster, ns, "next", "1 of 2 GPUs fit", "has 0.100 free, 0.200 asked")
        cluster.delete("pod", "single", ns)
        cluster.until("next", 60, lambda: "next" in product.assigned(ns))


def test_latency_critical_pods_share_no_gpu_while_another_one_is_without(cluster):
    product.need()
    with cluster.namespace() as ns:
        # The best-effort pod is on one of the GPUs, where a latency-critical one does not mind it.
        product.create(ns, quiet("batch", quota="0.5", memory="64Mi"))
        cluster.until("batch assigned", 60, lambda: "batch" in product.assigned(ns))
        for number in range(len(GPUS)):
            product.create(ns, quiet(f"service-{number}", quota="0.1", memory="64Mi", priority="latency-critical"))
        services = lambda: [gpu for pod, gpu in product.assigned(ns).items() if pod.startswith("service")]
        cluster.until("services assigned", 60, lambda: len(services()) == len(GPUS))
        assert sorted(services()) == sorted(GPUS)
        product.create(ns, quiet("service-more", quota="0.1", memory="64Mi", priority="latency-critical"))
        cluster.until("it shares one", 60, lambda: len(services()) == len(GPUS) + 1)


def test_d15_limit_and_request_are_not_swapped(cluster):
    """A pod alone may use its limit, not just its request."""
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, product.tenant("alone", quota="0.2", limit="0.6", memory="64Mi"))
        product.all_running(ns)
        gpu = product.assigned(ns)["alone"]
        cluster.until("its client", 30, lambda: (ns, "alone") in product.clients())
        client = product.clients()[(ns, "alone")]
        assert (client["quota_ppm"], client["limit_ppm"]) == (200_000, 600_000), client
        got = product.shares(10, [gpu])[gpu].get(f"{ns}/alone", 0)
        cluster.record("alone_with_limit_0.6", round(got, 3))
        assert 0.5 < got < 0.63, got


def test_d21_no_prometheus_no_difference(cluster):
    """Placement and limits do not go through Prometheus: without it pods start, and those that run are left alone."""
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, quiet("before", quota="0.2", memory="64Mi"))
        product.all_running(ns)
        prometheus.PODS.program.stop()
        try:
            product.create(ns, quiet("during", quota="0.3", memory="64Mi"))
            product.all_running(ns)
            cluster.until("clients", 30, lambda: {pod for at, pod in product.clients() if at == ns} == {"before", "during"})
        finally:
            prometheus.start()


def test_d22_pods_are_bound_not_replaced(cluster):
    """The pod that was created is the pod that runs."""
    product.need()
    with cluster.namespace() as ns:
        made = api.request("POST", f"/api/v1/namespaces/{ns}/pods", quiet("same", quota="0.2", memory="64Mi"))
        product.all_running(ns)
        (now,) = product.pods(ns)
        assert now["metadata"]["uid"] == made["metadata"]["uid"]
        assert now["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def test_d24_more_pods_than_ports(cluster):
    """There is no pool of ports that is exhausted: a client is identified by its cgroup, not by a port."""
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, quiet("a", quota="0.2", memory="64Mi", gpu_uuid=GPUS[0]), quiet("b", quota="0.2", memory="64Mi", gpu_uuid=GPUS[0]))
        product.all_running(ns)
        ports = [c.get("ports") for pod in product.pods(ns) for c in pod["spec"]["containers"]]
        assert ports == [None, None]
        cluster.until("both on one GPU", 30, lambda: {pod for at, pod in product.clients() if at == ns} == {"a", "b"})
