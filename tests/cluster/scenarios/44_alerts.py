"""The chart's monitors, rules and dashboards with a real Prometheus: each absent part raises its alert, and each panel shows data."""

import contextlib
import os
import signal

from lib import api, monitoring, product, violator
from lib.devices import GPUS
from lib.processes import running
from lib.settings import NODE

SECONDS = 600
VIOLATORS = {"violator"}


def test_monitors_scrape_every_part_and_the_rules_are_healthy(cluster):
    with monitoring.installed(cluster) as prometheus:
        cluster.until("every rule evaluated", 30, lambda: all(rule["health"] == "ok" for rule in prometheus.rules()))
        # kube-scheduler's own series, by the monitor with the token.
        cluster.until("kube-scheduler's series", 30, lambda: prometheus.query('scheduler_pending_pods{endpoint="kube-scheduler"}'))
        quiet(cluster)


def quiet(cluster) -> None:
    try:
        cluster.until("no alert", 90, lambda: not monitoring.firing())
    except TimeoutError as error:
        raise AssertionError(f"alerts without a fault: {monitoring.firing()}") from error


@contextlib.contextmanager
def without_replicas(component: str):
    """A Deployment that has no pods."""
    name = f"deployment/sluice-{component}"
    replicas = api.kubectl("get", name, "-n", product.NAMESPACE, "-o", "jsonpath={.spec.replicas}")
    api.kubectl("scale", name, "-n", product.NAMESPACE, "--replicas=0")
    try:
        yield
    finally:
        api.kubectl("scale", name, "-n", product.NAMESPACE, f"--replicas={replicas}")
        api.kubectl("rollout", "status", name, "-n", product.NAMESPACE, "--timeout=120s", seconds=150)


@contextlib.contextmanager
def without_agents():
    """The DaemonSet selects no node."""
    path = f"/apis/apps/v1/namespaces/{product.NAMESPACE}/daemonsets/sluice-node-agent"
    select = lambda value: api.request("PATCH", path, {"spec": {"template": {"spec": {"nodeSelector": {"test/none": value}}}}}, "application/merge-patch+json")
    select("none")
    try:
        yield
    finally:
        select(None)
        api.kubectl("rollout", "status", "daemonset/sluice-node-agent", "-n", product.NAMESPACE, "--timeout=120s", seconds=150)


@contextlib.contextmanager
def suspended(*words: str):
    """Processes that do not run and do not end: kubelet restarts a container that ends at once."""
    found = running(*words)
    assert found, words
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


# Each part, how it is stopped, and its alert.
PARTS = {
    "scheduler": (lambda: without_replicas("scheduler"), "SluiceSchedulerIdle"),
    # Alone, without the extender of its pod, and the other way round.
    "kube-scheduler": (lambda: suspended("kube-scheduler", "--config=/etc/sluice/config.yaml"), "SluiceSchedulerIdle"),
    "extender": (lambda: suspended("scheduler", f"--lease={product.NAMESPACE}/sluice-scheduler"), "SluiceSchedulerIdle"),
    "webhook": (lambda: without_replicas("webhook"), "SluiceWebhookAbsent"),
    "agent": (without_agents, "SluiceAgentAbsent"),
    "manager": (lambda: suspended("pod-manager", GPUS[0]), "SluiceManagerDown"),
}


def test_each_stopped_part_raises_its_alert_until_it_works_again(cluster):
    with monitoring.installed(cluster):
        cluster.until("the node in the scheduler's series", 60, lambda: monitoring.PROMETHEUS.query("sluice_scheduler_gpu_pods"))
        for part, (stopped, alert) in PARTS.items():
            quiet(cluster)
            with stopped():
                labels = cluster.until(f"{alert} while {part} is stopped", 90, lambda alert=alert: monitoring.firing().get(alert))
                cluster.record(part, sorted(monitoring.firing()))
                if part in ("agent", "manager"):
                    assert labels["node"] == NODE, labels
                if part == "manager":
                    assert labels["gpu"] == GPUS[0], labels
            cluster.until(f"the end of {alert} after {part} works", 120, lambda alert=alert: alert not in monitoring.firing())
        quiet(cluster)


def test_webhook_that_never_gets_a_certificate_raises_its_alert(cluster):
    """Without the right to its Secret no replica becomes ready. The alert for an absent webhook cannot see that."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{product.NAMESPACE}/rolebindings"
    with monitoring.installed(cluster):
        quiet(cluster)
        binding = api.request("GET", f"{path}/sluice-webhook")
        api.request("DELETE", f"{path}/sluice-webhook")
        try:
            old = {pod["metadata"]["name"] for pod in product.pods_of("webhook")}
            api.kubectl("delete", "pods", "-n", product.NAMESPACE, "-l", "app.kubernetes.io/component=webhook", "--wait=false")
            cluster.until("other replicas", 60, lambda: old.isdisjoint(pod["metadata"]["name"] for pod in product.pods_of("webhook")))
            labels = cluster.until("the alert", 90, lambda: monitoring.firing().get("SluiceWebhookWithoutCertificate"))
            assert labels["pod"] in {pod["metadata"]["name"] for pod in product.pods_of("webhook")}, labels
            assert "SluiceWebhookAbsent" not in monitoring.firing()
        finally:
            new = {"apiVersion": binding["apiVersion"], "kind": binding["kind"], "roleRef": binding["roleRef"], "subjects": binding["subjects"]}
            api.request("POST", path, new | {"metadata": {key: binding["metadata"][key] for key in ("name", "labels", "annotations")}})
        api.kubectl("rollout", "status", "deployment/sluice-webhook", "-n", product.NAMESPACE, "--timeout=120s", seconds=150)
        quiet(cluster)


def test_every_panel_of_each_dashboard_shows_data(cluster):
    with monitoring.installed(cluster), cluster.namespace() as ns:
        missing = monitoring.panels()
        cluster.record("queries", len(missing))
        # Two pods wait for each other's quanta, one is refused memory, one is stopped for a violation, one has requests with a latency goal.
        product.create(
            ns,
            product.tenant("works", quota=0.3, memory="1Gi", gpu_uuid=GPUS[0]),
            product.tenant("waits", quota=0.3, memory="1Gi", gpu_uuid=GPUS[0]),
            product.tenant("grows", "load", "be", "--grow", "--seconds", "100000", quota=0.1, memory="1Gi", gpu_uuid=GPUS[1]),
            product.tenant("serves", "load", "lc", "--seconds", "100000", priority="latency-critical", slo="5ms", quota=0.2, memory="256Mi", gpu_uuid=GPUS[1]),
            violator.pod(GPUS[0], limit=0.5),
        )
        product.all_running(ns)
        # The first call of a kind begins its series; a rate is seen at the second.
        product.create(ns, product.idle("later", quota=0.1, memory="64Mi", gpu_uuid=GPUS[0]))
        product.all_running(ns)

        def all_shown() -> bool:
            for query in [query for query, expression in missing.items() if monitoring.has_data(expression)]:
                del missing[query]
            return not missing

        try:
            cluster.until("data in every panel", 120, all_shown, every=1)
        except TimeoutError as error:
            raise AssertionError(f"panels without data: {sorted(missing)}") from error
        # Enough for the lines that tools/draw-dashboards.py draws, by the GPU's clock.
        began = product.counted(GPUS[0])[0]
        cluster.until("a minute of the GPU's time", 180, lambda: product.counted(GPUS[0])[0] - began > 60e9, every=1)
        monitoring.save_for_pictures(90)
        asked = {one["metric"]["pod"]: float(one["value"][1]) for one in monitoring.PROMETHEUS.query(f'sluice_client_quota_ratio{{namespace="{ns}"}}')}
        assert asked["works"] == 0.3, asked
