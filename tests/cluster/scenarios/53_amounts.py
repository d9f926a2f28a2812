"""Share and memory are countable: quotas, `kubectl describe node`, and requests that are written as resources."""

import json

from lib import api, product
from lib.devices import GPUS, MEMORY_BYTES, socket
from lib.settings import NODE

SECONDS = 240
CORE = {"quota_refuses_what_exceeds_it", "describe_node_shows_capacity_and_allocation"}
MILLI, MEMORY_MIB = "sluice.dev/milli", "sluice.dev/memory-mib"


def offered(field: str = "allocatable") -> tuple[int, int]:
    """Thousandths of a GPU and MiB that the node offers."""
    amounts = api.request("GET", f"/api/v1/nodes/{NODE}")["status"].get(field, {})
    return number(amounts.get(MILLI, "0")), number(amounts.get(MEMORY_MIB, "0"))


def number(quantity: str) -> int:
    """The API server writes 2000 as 2k."""
    return int(quantity.removesuffix("k")) * 1000 if quantity.endswith("k") else int(quantity)


def stating(name: str, where: str, **amounts: str) -> dict:
    """A pod that states amounts as resources and has no annotation."""
    pod = product.idle(name)
    del pod["metadata"]["annotations"]
    pod["spec"]["containers"][0]["resources"] = {where: {f"sluice.dev/{key.replace('_', '-')}": value for key, value in amounts.items()}}
    return pod


def refused(namespace: str, pod: dict) -> str:
    try:
        api.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
    except api.Failed as why:
        return why.err
    raise AssertionError(f"{pod['metadata']['name']} was not refused")


def test_quota_refuses_what_exceeds_it(cluster):
    product.need()
    with cluster.namespace() as ns:
        hard = {f"requests.{MILLI}": "500", f"requests.{MEMORY_MIB}": "256"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu", "namespace": ns}, "spec": {"hard": hard}}
        cluster.apply(quota)
        cluster.until("the quota counts", 30, lambda: "used" in api.request("GET", f"/api/v1/namespaces/{ns}/resourcequotas/gpu")["status"])
        product.create(ns, product.idle("annotated", quota="0.3", memory="100Mi"), stating("stated", "requests", milli="200", memory_mib="100"))
        product.all_running(ns)
        clients = {pod: client["quota_ppm"] for pod, client in product.clients_of(ns).items()}
        assert clients == {"annotated": 300_000, "stated": 200_000}, clients
        used = api.request("GET", f"/api/v1/namespaces/{ns}/resourcequotas/gpu")["status"]["used"]
        assert (used[f"requests.{MILLI}"], used[f"requests.{MEMORY_MIB}"]) == ("500", "200"), used
        message = refused(ns, product.idle("more", quota="0.001", memory="10Mi"))
        assert "exceeded quota" in message and MILLI in message, message
        # No share, so only the memory is too much.
        message = refused(ns, product.idle("more", memory="57Mi"))
        assert "exceeded quota" in message and MEMORY_MIB in message, message


def test_conflict_names_both_values(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = stating("both", "limits", milli="400")
        pod["metadata"]["annotations"] = product.annotations(quota="0.3")
        message = refused(ns, pod)
        assert '"400"' in message and '"0.3"' in message, message


def test_describe_node_shows_capacity_and_allocation(cluster):
    product.need()
    whole = (1000 * len(GPUS), len(GPUS) * MEMORY_BYTES >> 20)
    cluster.until("all amounts", 60, lambda: offered() == whole == offered("capacity"))
    with cluster.namespace() as ns:
        product.create(ns, stating("a", "limits", milli="300", memory_mib="512"))
        product.all_running(ns)
        text = cluster.kubectl("describe", "node", NODE)
        capacity, allocated = text.split("Capacity:")[1].split("Allocatable:")[0], text.split("Allocated resources:")[1]
        assert MILLI in capacity and MEMORY_MIB in capacity, text
        rows = {words[0]: words[1] for words in map(str.split, allocated.splitlines()) if len(words) > 1}
        assert (rows[MILLI], rows[MEMORY_MIB]) == ("300", "512"), allocated


def test_amounts_survive_restarts_and_follow_the_health_of_gpus(cluster):
    product.need()
    whole = (1000 * len(GPUS), len(GPUS) * MEMORY_BYTES >> 20)
    cluster.until("all amounts", 60, lambda: offered() == whole)
    with cluster.namespace() as ns:
        product.create(ns, product.idle("held", quota="0.8", memory="64Mi", gpu_uuid=GPUS[0]))
        product.all_running(ns)
        # A process that opens a GPU after its Xid fails.
        cluster.until("it has opened its GPU", 30, lambda: cluster.logs(ns, "held"))
        cluster.sim("xid", socket(GPUS[0]), "48")
        # The healthy GPUs, and what the pod of the other one holds.
        left = (whole[0] - 200, whole[1] - (MEMORY_BYTES >> 20) + 64)
        try:
            cluster.until("the amounts of the healthy GPUs", 60, lambda: offered() == left)
            # The healthy GPU has all of its time free.
            product.create(ns, product.idle("beside", quota="0.9", memory="64Mi"))
            cluster.until("it runs", 60, lambda: product.phases(ns)["beside"] == "Running")
            assert product.assigned(ns)["beside"] == GPUS[1]
        finally:
            cluster.sim("heal", socket(GPUS[0]))
        cluster.until("all amounts again", 90, lambda: offered() == whole)
        old = product.agent()["metadata"]
        api.request("DELETE", f"/api/v1/namespaces/{product.NAMESPACE}/pods/{old['name']}")
        # Between the two there is none.
        cluster.until("another agent", 60, lambda: [pod for pod in product.pods_of("node-agent") if pod["metadata"]["uid"] != old["uid"]])
        assert offered() == whole
        cluster.restart(cluster.kubelet)
        cluster.until("device slots after kubelet's restart", 60, lambda: product.allocatable() > 0)
        cluster.until("all amounts after kubelet's restart", 60, lambda: offered() == whole == offered("capacity"))
        assert product.phases(ns) == {"held": "Running", "beside": "Running"}
