#!/usr/bin/env python3
"""dashboards.py [--check]: writes Grafana's dashboards into charts/sluice/monitoring/dashboards, one for each kind of reader.

--check compares them with the committed ones instead. To change a panel, change it here.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "charts/sluice/monitoring/dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Of Grafana's grid.
WIDTH = 24
# Selectors with the variables of a dashboard.
POD = '{namespace=~"$namespace", pod=~"$pod"}'
POD_QUANTILES = '{namespace=~"$namespace", pod=~"$pod", quantile=~"0.5|0.99"}'
NODE = '{node=~"$node"}'
OF_POD = "{{namespace}}/{{pod}}"
OF_GPU = "{{node}} {{gpu}}"
# What a pod can request of each healthy GPU: the part of its time that is not promised.
FREE = f"(1 - max by (node, gpu) (sluice_gpu_quota_assigned_ratio{NODE})) * on (node, gpu) max by (node, gpu) (sluice_gpu_healthy{NODE})"


def row(title: str) -> dict:
    return {"type": "row", "title": title, "height": 1, "width": WIDTH}


def graph(title: str, unit: str, *queries: tuple[str, str], width: int = 12, about: str = "") -> dict:
    """`queries` are pairs of an expression and the legend of its series."""
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"type": "timeseries", "title": title, "unit": unit, "queries": queries, "height": 8, "width": width, "about": about, "options": options}


def number(title: str, query: str, unit: str = "none", about: str = "") -> dict:
    return {"type": "stat", "title": title, "unit": unit, "queries": [(query, "")], "height": 4, "width": 4, "about": about}


def rate(series: str, by: str, selector: str) -> str:
    return f"sum by ({by}) (rate({series}{selector}[$__rate_interval]))"


def of_pods(series: str) -> str:
    return f"sum by (namespace, pod) ({series}{POD})"


def of_gpus(series: str) -> str:
    return f"max by (node, gpu) ({series}{NODE})"


def quantiles(histogram: str, *parts: float) -> list[tuple[str, str]]:
    buckets = rate(f"{histogram}_bucket", "le", "")
    return [(f"histogram_quantile({part}, {buckets})", f"p{part * 100:.0f}") for part in parts]


USER = [
    graph(
        "Share of GPU time: asked and got", "percentunit",
        (rate("sluice_client_gpu_seconds_total", "namespace, pod", POD), f"{OF_POD} got"),
        (of_pods("sluice_client_quota_ratio"), f"{OF_POD} asked"),
        width=WIDTH, about="A pod that has no work gets less than it asked for.",
    ),
    graph(
        "GPU memory", "bytes",
        (of_pods("sluice_client_memory_used_bytes"), f"{OF_POD} used"),
        (of_pods("sluice_client_memory_overhead_bytes"), f"{OF_POD} contexts and modules"),
        (of_pods("sluice_client_memory_limit_bytes"), f"{OF_POD} limit"),
        about="Used memory and contexts together count towards the limit.",
    ),
    graph(
        "Allocations refused for the memory limit", "none",
        (f"sum by (namespace, pod) (increase(sluice_client_memory_denied_total{POD}[$__rate_interval]))", OF_POD),
    ),
    graph(
        "Why my pods wait: seconds in a second", "s",
        (rate("sluice_client_wait_seconds_total", "namespace, pod", POD), f"{OF_POD} waits for the GPU"),
        (rate("sluice_client_delayed_seconds_total", "namespace, pod", POD), f"{OF_POD} has used its limit or quota"),
        (rate("sluice_client_hold_and_wait_seconds_total", "namespace, pod", POD), f"{OF_POD} holds the GPU and executes nothing"),
        about="Several threads of a pod can wait at a time. A pod that is pending waits for kube-scheduler: its events have the reason.",
    ),
    graph(
        "Latency against SLO", "s",
        (f"max by (namespace, pod, quantile) (sluice_client_request_quantile_seconds{POD_QUANTILES})", f"{OF_POD} p{{{{quantile}}}}"),
        (f"max by (namespace, pod) (sluice_client_slo_seconds{POD}) > 0", f"{OF_POD} SLO"),
        about="Requests of latency-critical pods on the GPU over the last minute: from the first call to the end of the last wait. No data: no such pod, or no request.",
    ),
    graph(
        "Requests above the SLO", "percentunit",
        (
            f"{rate('sluice_client_slo_violations_total', 'namespace, pod', POD)} / {rate('sluice_client_request_seconds_count', 'namespace, pod', POD)}",
            OF_POD,
        ),
        about="The part of a pod's requests that took longer than sluice.dev/slo.",
    ),
    graph(
        "Violations of limits", "none",
        (f"sum by (namespace, pod, kind) (sluice_client_violations_total{POD})", f"{OF_POD} {{{{kind}}}}"),
        (f"{of_pods('sluice_client_stopped_processes')} > 0", f"{OF_POD} stopped processes"),
        about="No data is good: a kind has a series from the first violation on.",
    ),
]

OPERATOR = [
    row("Health"),
    number("Unhealthy GPUs", f"count({of_gpus('sluice_gpu_healthy')} == 0) or vector(0)"),
    number("GPUs without a pod-manager", f"count({of_gpus('sluice_manager_up')} == 0) or vector(0)"),
    number(
        "Nodes without an agent",
        f"count(max by (node) (sluice_scheduler_gpu_pods{NODE}) unless max by (node) (sluice_gpu_healthy{NODE})) or vector(0)",
        about="The scheduler knows the nodes; Prometheus reaches no agent there.",
    ),
    number("Pods refused a GPU", f"sum(max by (node) (sluice_refused_pods{NODE})) or vector(0)"),
    number("Schedulers that decide", "sum(sluice_scheduler_active) or vector(0)", about="1 is good: the other replicas wait for the lease."),
    number(
        "Webhook's certificate ends in", "min(sluice_webhook_certificate_expiry_timestamp_seconds) - time()", "s",
        about="A negative number: a replica has no certificate yet.",
    ),
    graph(
        "Alerts", "none",
        ('count by (alertname, severity) (ALERTS{alertname=~"Sluice.*", alertstate="firing"})', "{{severity}} {{alertname}}"),
        about="No data is good. Needs the rules of the chart (monitoring.rules).",
    ),
    graph(
        "Violations of limits", "none",
        (f'sum by (namespace, pod, kind) (sluice_client_violations_total{NODE})', f"{OF_POD} {{{{kind}}}}"),
        about="No data is good: a kind has a series from the first violation on.",
    ),
    row("Nodes and GPUs"),
    graph("GPU time used", "percentunit", (rate("sluice_client_gpu_seconds_total", "node, gpu", NODE), OF_GPU)),
    graph("Pods of a GPU", "none", (of_gpus("sluice_gpu_clients"), OF_GPU)),
    graph(
        "What makes processes give way", "none",
        (f"sum by (level) (sluice_level{NODE})", "{{level}}"), width=8,
        about="turn: the GPU's controls. token: grants alone.",
    ),
    graph("Restarts of pod-managers", "none", (f"sum by (node, gpu) (increase(sluice_manager_restarts_total{NODE}[$__rate_interval]))", OF_GPU), width=8),
    graph("Memory of pod-managers", "bytes", (of_gpus("sluice_manager_resident_memory_bytes"), OF_GPU), width=8),
    row("Scheduling and admission"),
    graph("The extender's answers to filter", "reqps", (rate("sluice_scheduler_filters_total", "outcome", ""), "{{outcome}}"), width=8),
    graph("Duration of filter", "s", *quantiles("sluice_scheduler_filter_seconds", 0.5, 0.99), width=8),
    graph("Duration of bind", "s", *quantiles("sluice_scheduler_bind_seconds", 0.5, 0.99), width=8),
    graph(
        "kube-scheduler's attempts", "ops",
        (rate("scheduler_schedule_attempts_total", "result", '{profile="sluice-scheduler"}'), "{{result}}"), width=8,
        about="Needs monitoring.monitors.kubeScheduler. A pod that fits nowhere is tried again and again.",
    ),
    graph("The webhook's answers", "reqps", (rate("sluice_webhook_admissions_total", "webhook, outcome", ""), "{{webhook}} {{outcome}}"), width=8),
    graph("Duration of Allocate", "s", *quantiles("sluice_device_plugin_allocate_seconds", 0.5, 0.99), width=8),
]

PLANNER = [
    number("GPUs", f"count({of_gpus('sluice_gpu_healthy')})"),
    number("Healthy", f"sum({of_gpus('sluice_gpu_healthy')})"),
    number("GPUs without a pod", f"count({of_gpus('sluice_gpu_clients')} == 0) or vector(0)"),
    number("Time promised", f"avg({of_gpus('sluice_gpu_quota_assigned_ratio')})", "percentunit"),
    number("Memory promised", f"sum({of_gpus('sluice_gpu_memory_assigned_bytes')}) / sum({of_gpus('sluice_gpu_memory_usable_bytes')})", "percentunit"),
    number("Time used", f"sum({rate('sluice_client_gpu_seconds_total', 'node, gpu', NODE)}) / count({of_gpus('sluice_gpu_healthy')})", "percentunit"),
    graph(
        "GPU time, in GPUs", "none",
        (f"count({of_gpus('sluice_gpu_healthy')})", "GPUs"),
        (f"sum({of_gpus('sluice_gpu_quota_assigned_ratio')})", "promised"),
        (f"sum({rate('sluice_client_gpu_seconds_total', 'node, gpu', NODE)})", "used"),
    ),
    graph(
        "GPU memory", "bytes",
        (f"sum({of_gpus('sluice_gpu_memory_usable_bytes')})", "that pods can request"),
        (f"sum({of_gpus('sluice_gpu_memory_assigned_bytes')})", "promised"),
        (f"sum(sluice_client_memory_used_bytes{NODE}) + sum(sluice_client_memory_overhead_bytes{NODE})", "used"),
    ),
    graph(
        "Time that each namespace was promised and used, in GPUs", "none",
        (f"sum by (namespace) (sluice_client_quota_ratio{NODE})", "{{namespace}} promised"),
        (rate("sluice_client_gpu_seconds_total", "namespace", NODE), "{{namespace}} used"),
    ),
    graph(
        "Fragmentation: further pods that fit, by their quota", "none",
        # A free part such as 0.3 is a little less in binary.
        *((f"sum(floor({FREE} / {quota} + 1e-6))", f"quota {quota}") for quota in (0.1, 0.25, 0.5, 1)),
        about="By GPU time alone: memory and slots may allow fewer. If many small pods fit and no large one, the free time is spread over GPUs.",
    ),
    graph(
        "Free time on GPUs that are too full, by the quota of a pod", "percentunit",
        ("max by (share) (sluice_scheduler_fragmentation_ratio)", "quota {{share}}"),
        about="Of all nodes. A pod of this quota, with the same part of the memory, cannot use this part of the free time.",
    ),
]


def variable(name: str, series: str, selector: str = "") -> dict:
    """A variable with the values of a label of the same name."""
    query = {"query": f"label_values({series}{selector}, {name})", "refId": name}
    everything = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {"name": name, "type": "query", "datasource": DATASOURCE, "query": query, "refresh": 2, **everything}


def placed(panels: list[dict]):
    """The panels as Grafana has them, from left to right in lines."""
    x = y = line = 0
    for number, panel in enumerate(panels, 1):
        if x + panel["width"] > WIDTH:
            x, y, line = 0, y + line, 0
        one = {"id": number, "type": panel["type"], "title": panel["title"]}
        one["gridPos"] = {"h": panel["height"], "w": panel["width"], "x": x, "y": y}
        x, line = x + panel["width"], max(line, panel["height"])
        if panel["type"] == "row":
            yield one | {"collapsed": False, "panels": []}
            continue
        targets = [
            {"refId": chr(ord("A") + at), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel["queries"])
        ]
        defaults = {"unit": panel["unit"]} | ({"min": 0} if panel["type"] == "timeseries" else {})
        one |= {"datasource": DATASOURCE, "fieldConfig": {"defaults": defaults, "overrides": []}, "targets": targets}
        one |= {"description": panel["about"]} if panel["about"] else {}
        yield one | ({"options": panel["options"]} if "options" in panel else {})


def dashboard(name: str, title: str, panels: list[dict], *variables: dict) -> dict:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "title": title,
        "uid": f"sluice-{name}",
        "tags": ["gpu", "sluice"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "panels": list(placed(panels)),
    }


NODES = variable("node", "sluice_gpu_info")
NAMESPACES = variable("namespace", "sluice_client_info")
PODS = variable("pod", "sluice_client_info", '{namespace=~"$namespace"}')
DASHBOARDS = {
    "user": dashboard("user", "Sluice: my pods", USER, NAMESPACES, PODS),
    "operator": dashboard("operator", "Sluice: nodes, GPUs and control plane", OPERATOR, NODES),
    "planner": dashboard("planner", "Sluice: use and capacity", PLANNER, NODES),
}

if __name__ == "__main__":
    texts = {FOLDER / f"{name}.json": json.dumps(one, indent=1) + "\n" for name, one in DASHBOARDS.items()}
    if sys.argv[1:] == ["--check"]:
        wrong = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
        sys.exit(f"run tools/dashboards.py: {', '.join(map(str, wrong))} differ from what it writes" if wrong else 0)
    for path, text in texts.items():
        path.write_text(text)
