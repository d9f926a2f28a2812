"""The chart's monitors, rules and dashboards in force: a Prometheus that is configured from the installed objects as the Prometheus
Operator configures one, and the queries of the dashboards as Grafana sends them."""

import contextlib
import json
import math
import re
import shutil

from lib import api, product
from lib.namespaces import until
from lib.prometheus import Prometheus
from lib.settings import KUBECONFIG, STATE

GROUP = "monitoring.coreos.com"
MONITORING = {"monitors": {"enabled": True}, "rules": {"enabled": True}, "dashboards": {"enabled": True}}
PROMETHEUS = Prometheus("prometheus-of-monitors", 9091)
RULES, TOKEN, PICTURES = STATE / "rules.json", STATE / "prometheus-token", STATE / "dashboards.json"
# The answer of an agent takes 1 s longer while a manager does not answer.
EVERY = "3s"
# An alert is due after this time instead of its own `for`.
SHORT = "1s"
# Of Grafana's dashboards: a multiple of the interval, and all values of each variable.
VARIABLES = {"__rate_interval": "30s", "node": ".*", "namespace": ".*", "pod": ".*"}
ACCOUNT = "prometheus"
KINDS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
# The containers that the monitors select.
PARTS = {"node-agent", "extender", "kube-scheduler", "webhook"}


@contextlib.contextmanager
def installed(cluster):
    """Sluice with its objects for monitoring, and the Prometheus that follows them; afterwards neither is left."""
    # Pods of a failed test would raise alerts.
    cluster.tidy()
    definitions = [definition(kind) for kind in KINDS]
    names = [one["metadata"]["name"] for one in definitions]
    api.apply(*definitions)
    api.kubectl("wait", "--for=condition=Established", "crd", *names)
    try:
        product.install(monitoring=MONITORING)
        api.apply(*account())
        TOKEN.write_text(api.kubectl("create", "token", ACCOUNT, "-n", "default", "--duration=2h").strip())
        (rule,) = objects("prometheusrules")
        RULES.write_text(json.dumps(shortened(rule["spec"])))
        # Of a run that was ended in the middle of a test.
        PROMETHEUS.program.stop()
        shutil.rmtree(PROMETHEUS.data, ignore_errors=True)
        PROMETHEUS.start(json.dumps(configuration([*objects("podmonitors"), *objects("servicemonitors")])))
        until("a scrape of every part", 60, lambda: scraped() == PARTS)
        yield PROMETHEUS
    finally:
        PROMETHEUS.program.stop()
        product.install()
        api.kubectl("delete", "-f", "-", "--ignore-not-found", stdin="\n---\n".join(json.dumps(one) for one in account()))
        api.kubectl("delete", "crd", *names)


def definition(kind: str) -> dict:
    """A definition of the Operator's kind that accepts all fields."""
    plural = kind.lower() + "s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def account() -> list[dict]:
    """The account of Prometheus, with no right but the one that the values name for kube-scheduler's metrics."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-metrics"}
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}
    version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}},
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": rules},
        {"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": role["name"]}, "roleRef": role, "subjects": [subject]},
    ]


def objects(plural: str) -> list[dict]:
    return api.request("GET", f"/apis/{GROUP}/v1/namespaces/{product.NAMESPACE}/{plural}")["items"]


def shortened(rules: dict) -> dict:
    """The same rules, each alert due after SHORT instead of its own `for`."""
    due = lambda rule: rule | ({"for": SHORT} if "for" in rule else {})
    return {"groups": [group | {"rules": [due(rule) for rule in group["rules"]]} for group in rules["groups"]]}


def configuration(monitors: list[dict]) -> dict:
    jobs = [job(monitor, endpoint) for monitor in monitors for endpoint in monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]]
    common = {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": "1s"}
    return {"global": common, "rule_files": [str(RULES)], "scrape_configs": jobs}


def job(monitor: dict, endpoint: dict) -> dict:
    """The job that the Prometheus Operator makes of an endpoint of a monitor: what is scraped, and the labels of its series."""
    of_pods = monitor["kind"] == "PodMonitor"
    namespace, name = monitor["metadata"]["namespace"], monitor["metadata"]["name"]
    kind, port = ("pod", "pod_container_port_name") if of_pods else ("service", "endpoint_port_name")
    meta = "__meta_kubernetes"
    keep = [([f"{meta}_{kind}_label_{re.sub(r'[^A-Za-z0-9_]', '_', key)}"], re.escape(value)) for key, value in monitor["spec"]["selector"]["matchLabels"].items()]
    keep.append(([f"{meta}_{port}"], re.escape(endpoint["port"])))
    labels = {"namespace": f"{meta}_namespace", "pod": f"{meta}_pod_name", "container": f"{meta}_pod_container_name", "endpoint": f"{meta}_{port}"}
    if not of_pods:
        labels |= {"service": f"{meta}_service_name", "job": f"{meta}_service_name"}
    relabelling = [
        *({"action": "keep", "source_labels": source, "regex": regex} for source, regex in keep),
        {"action": "drop", "source_labels": [f"{meta}_pod_phase"], "regex": "(Failed|Succeeded)"},
        *({"source_labels": [source], "target_label": label} for label, source in labels.items()),
    ]
    token = {"authorization": {"credentials_file": str(TOKEN)}} if "bearerTokenFile" in endpoint else {}
    return token | {
        "job_name": f"{monitor['kind']}/{namespace}/{name}",
        "honor_labels": endpoint.get("honorLabels", False),
        "scheme": endpoint.get("scheme", "http"),
        "tls_config": {"insecure_skip_verify": endpoint.get("tlsConfig", {}).get("insecureSkipVerify", False)},
        "kubernetes_sd_configs": [{"role": "pod" if of_pods else "endpoints", "kubeconfig_file": str(KUBECONFIG), "namespaces": {"names": [namespace]}}],
        "relabel_configs": relabelling,
    }


def dashboards() -> list[dict]:
    """The dashboards in the ConfigMaps that Grafana's sidecar finds."""
    maps = api.request("GET", f"/api/v1/namespaces/{product.NAMESPACE}/configmaps?labelSelector=grafana_dashboard%3D1")["items"]
    return [json.loads(text) for one in maps for text in one["data"].values()]


def asked(target: dict) -> str:
    """The query of a panel as Grafana sends it, with the variables' values."""
    return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], target["expr"])


def scraped() -> set[str]:
    """Containers that are scraped; none as long as a scrape fails."""
    targets = PROMETHEUS.targets()
    return {target["labels"]["container"] for target in targets} if all(target["health"] == "up" for target in targets) else set()


def panels() -> dict[tuple[str, str, str], str]:
    """The queries of all panels, by dashboard, panel and legend."""
    return {
        (dashboard["title"], panel["title"], target["legendFormat"]): asked(target)
        for dashboard in dashboards()
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }


def save_for_pictures(seconds: float) -> None:
    """What the panels showed in the last seconds, for tools/draw-dashboards.py: by dashboard, panel and query."""
    of_panel = lambda panel: {target["refId"]: PROMETHEUS.query_range(asked(target), seconds, 2) for target in panel.get("targets", [])}
    saved = {one["title"]: {panel["title"]: of_panel(panel) for panel in one["panels"]} for one in dashboards()}
    PICTURES.write_text(json.dumps(saved))


def has_data(expression: str) -> bool:
    """Whether a panel shows something: Grafana leaves out values that are no numbers."""
    return any(not math.isnan(float(series["value"][1])) for series in PROMETHEUS.query(expression))


def firing() -> dict[str, dict[str, str]]:
    """Labels of the firing alerts by name; informative ones, which a tenant's work raises, are left out."""
    found = [alert["labels"] for alert in PROMETHEUS.alerts() if alert["state"] == "firing"]
    return {labels["alertname"]: labels for labels in found if labels["severity"] != "info"}
