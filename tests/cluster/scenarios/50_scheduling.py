"""Placement of pods, events of pods that wait, and what `kubectl sluice` shows. KubeShare's placement defects do not occur."""

import json
import os
import subprocess

from lib import api, product, prometheus
from lib.devices import GPUS, MEMORY_BYTES, MODEL
from lib.settings import BUILT, KUBECONFIG, NODE, STATE, environment

SECONDS = 240
CORE = {
    "filled_to_exactly_one_and_the_next_waits",
    "memory_counts_as_well",
    "whole_gpus",
    "d15_limit_and_request_are_not_swapped",
    "kubectl_sluice_explains_and_shows_with_the_rights_of_its_roles",
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
        # The webhook has made it a node affinity, so kube-scheduler does not ask the extender.
        waits(cluster, ns, "model", "node affinity")
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


def plugin(*words: object, kubeconfig=KUBECONFIG) -> str:
    """`kubectl sluice`, found by kubectl as users have it."""
    folder = STATE / "plugins"
    folder.mkdir(exist_ok=True)
    link = folder / "kubectl-sluice"
    link.unlink(missing_ok=True)
    os.symlink(BUILT / "sluice", link)
    variables = environment() | {"KUBECONFIG": str(kubeconfig)}
    variables["PATH"] = f"{folder}:{variables['PATH']}"
    argv = ["kubectl", "sluice", *(str(word) for word in words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=variables)
    if done.returncode != 0:
        raise api.Failed(argv, done.returncode, done.stdout, done.stderr)
    return done.stdout


def kubeconfig_of(ns: str, account: str):
    """A kubeconfig of a service account."""
    config = json.loads(api.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    config["users"] = [{"name": user["name"], "user": {"token": api.kubectl("-n", ns, "create", "token", account).strip()}} for user in config["users"]]
    path = STATE / f"kubeconfig-{ns}"
    path.write_text(json.dumps(config))
    return path


def test_kubectl_sluice_explains_and_shows_with_the_rights_of_its_roles(cluster):
    product.need()
    with cluster.namespace() as ns:
        gpu = GPUS[0]
        product.create(ns, product.tenant("runs", quota="0.7", limit="0.8", memory="64Mi", gpu_uuid=gpu))
        product.all_running(ns)
        product.create(ns, quiet("next", quota="0.4", memory="64Mi", gpu_uuid=gpu))
        waits(cluster, ns, "next", "0.300 free", "0.400 asked")

        api.kubectl("-n", ns, "create", "serviceaccount", "reader")
        reader = kubeconfig_of(ns, "reader")
        try:
            plugin("nodes", kubeconfig=reader)
            raise AssertionError("a user without rights saw the nodes")
        except api.Failed as why:
            assert "not permitted to list the nodes" in why.err and "sluice-kubectl" in why.err, why
        bindings = (("clusterrolebinding", "--clusterrole"), ("rolebinding", "--role"))
        for kind, role in bindings:
            api.kubectl("-n", product.NAMESPACE, "create", kind, ns, f"{role}=sluice-kubectl", f"--serviceaccount={ns}:reader")
        try:
            text = plugin("explain", "next", "-n", ns, kubeconfig=reader)
            assert "has 0.300 free, 0.400 asked" in text and f"fits after the end of {ns}/runs" in text, text
            explained = json.loads(plugin("explain", "next", "-n", ns, "-o", "json", kubeconfig=reader))
            assert explained["state"] == "waiting" and "0.300 free, 0.400 asked" in explained["message"], explained
            reported = [event["message"] for event in cluster.events(ns, "next") if event["reason"] == "FailedScheduling"]
            (answer,) = explained["nodes"]
            # The plugin's reason for the node is the extender's, word for word.
            assert any(answer["reason"] in message for message in reported), (answer, reported)
            assert json.loads(plugin("explain", "runs", "-n", ns, "-o", "json", kubeconfig=reader))["gpus"] == [gpu]

            row = {}

            def has_share() -> bool:
                top = json.loads(plugin("top", "--once", "-o", "json", kubeconfig=reader))
                assert not top["notes"] and f"{ns}/next" in top["waiting"], top
                rows = [client for one in top["gpus"] if one["gpu"] == gpu for client in one["clients"]]
                row.update(*(client for client in rows if (client["namespace"], client["name"]) == (ns, "runs")))
                return (row.get("got_share") or 0) > 0.5

            cluster.until("the pod's share", 60, has_share)
            assert (row["asked_share"], row["limit_share"], row["memory_limit_bytes"]) == (0.7, 0.8, 64 << 20), row
            (node,) = json.loads(plugin("nodes", "-o", "json", kubeconfig=reader))["nodes"]
            assert node["node"] == NODE and [one["promised_share"] for one in node["gpus"] if one["gpu"] == gpu] == [0.7], node
        finally:
            for kind, _ in bindings:
                api.kubectl("-n", product.NAMESPACE, "delete", kind, ns)
