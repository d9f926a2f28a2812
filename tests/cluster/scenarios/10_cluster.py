"""The cluster itself works as the other scenarios need."""

from lib import images
from lib.api import Failed

CORE = {
    "pod_runs_with_logs_and_exec",
    "annotation_chooses_the_gpu_of_a_container",
    "prometheus_scrapes_annotated_pods",
}


def test_pod_runs_with_logs_and_exec(cluster):
    with cluster.namespace() as ns:
        cluster.create(ns, cluster.pod("a", "sh", "-c", "echo it works; exec sleep 1000"))
        cluster.wait("pod/a", "condition=Ready", ns)
        assert cluster.logs(ns, "a") == "it works\n"
        assert cluster.exec(ns, "a", "sh", "-c", "echo inside").strip() == "inside"


def test_service_reaches_a_pod(cluster):
    with cluster.namespace() as ns:
        server = cluster.pod("server", "nc", "-ll", "-p", "8080", "-e", "echo", "hello")
        server["metadata"]["labels"] = {"app": "server"}
        port = {"port": 80, "targetPort": 8080}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
        service["spec"] = {"selector": {"app": "server"}, "ports": [port], "clusterIP": "10.96.77.77"}
        cluster.create(ns, server, service, cluster.pod("client", "sleep", "1000"))
        for pod in ("server", "client"):
            cluster.wait(f"pod/{pod}", "condition=Ready", ns)
        ask = ["sh", "-c", "for i in $(seq 50); do nc -w 2 10.96.77.77 80 </dev/null && break; done"]
        assert cluster.exec(ns, "client", *ask).strip() == "hello"


def test_annotation_chooses_the_gpu_of_a_container(cluster):
    """By the downward API, also for a process that `kubectl exec` brings; the other GPU sees nothing of it."""
    chosen, other = cluster.gpus
    with cluster.namespace() as ns:
        field = {"fieldRef": {"fieldPath": "metadata.annotations['test/gpu']"}}
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": field}]
        work = ["sluice", "load", "be", "--count", "5"]
        pod = cluster.pod("a", "sh", "-c", f"{' '.join(work)}; sleep 1000", image=images.TOOLS, annotations={"test/gpu": chosen}, env=env)
        pod["spec"]["runtimeClassName"] = "nvidia"
        cluster.create(ns, pod)
        cluster.wait("pod/a", "condition=Ready", ns)
        cluster.exec(ns, "a", *work)
        label = f"{ns}/a/main"

        def kernels(uuid):
            return [row["kernels_completed"] for row in cluster.ledger(uuid)["processes"] if row["label"] == label]

        cluster.until("both processes' kernels", 20, lambda: kernels(chosen) == [5, 5])
        assert kernels(other) == []


def test_container_without_the_variable_has_no_gpu(cluster):
    with cluster.namespace() as ns:
        pod = cluster.pod("a", "sleep", "1000", image=images.TOOLS)
        pod["spec"]["runtimeClassName"] = "nvidia"
        cluster.create(ns, pod)
        cluster.wait("pod/a", "condition=Ready", ns)
        try:
            cluster.exec(ns, "a", "sluice", "load", "be", "--count", "5")
        except Failed as failed:
            assert "libcuda" in failed.err, failed.err
        else:
            raise AssertionError("a driver in a container that was given no GPU")


def test_unknown_gpu_is_refused_by_the_runtime(cluster):
    with cluster.namespace() as ns:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-absent"}]
        pod = cluster.pod("a", "sleep", "1000", env=env)
        pod["spec"]["runtimeClassName"] = "nvidia"
        cluster.create(ns, pod)
        state = "{.status.containerStatuses[0].state.terminated.message}"
        cluster.until("refusal", 30, lambda: "unknown device" in cluster.kubectl("get", "pod", "a", "-n", ns, "-o", f"jsonpath={state}"))


def test_prometheus_scrapes_annotated_pods(cluster):
    serve = ["sh", "-c", "mkdir /www; echo some_metric 7 >/www/metrics.txt; exec httpd -f -p 8080 -h /www"]
    with cluster.namespace() as ns:
        told = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "prometheus.io/path": "/metrics.txt"}
        cluster.create(ns, cluster.pod("told", *serve, annotations=told), cluster.pod("silent", *serve))
        series = cluster.until("the pod's series", 60, lambda: cluster.prometheus("some_metric"))
        assert [(one["metric"]["scraped_pod"], one["value"][1]) for one in series] == [("told", "7")]
