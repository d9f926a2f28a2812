"""A real Prometheus that finds pods by their prometheus.io/* annotations, as in a user's cluster."""

import json
import urllib.parse
import urllib.request

from lib.namespaces import until
from lib.processes import Program
from lib.settings import BIN, KUBECONFIG, STATE

AT = "127.0.0.1:9090"
PROGRAM = Program(
    "prometheus",
    [
        BIN / "prometheus",
        f"--config.file={STATE}/prometheus.yml",
        f"--storage.tsdb.path={STATE}/prometheus",
        f"--web.listen-address={AT}",
        "--log.level=warn",
    ],
)
# The customary relabelling; https goes unverified, as certificates of pods' addresses cannot be checked.
CONFIGURATION = f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: pods
  tls_config: {{insecure_skip_verify: true}}
  kubernetes_sd_configs: [{{role: pod, kubeconfig_file: {KUBECONFIG}}}]
  relabel_configs:
  - {{source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scrape], action: keep, regex: "true"}}
  - {{source_labels: [__meta_kubernetes_pod_phase], action: drop, regex: "Pending|Succeeded|Failed"}}
  - {{source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scheme], regex: "(https?)", target_label: __scheme__}}
  - {{source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_path], regex: "(.+)", target_label: __metrics_path__}}
  - source_labels: [__meta_kubernetes_pod_ip, __meta_kubernetes_pod_annotation_prometheus_io_port]
    regex: "(.+);([0-9]+)"
    replacement: "$1:$2"
    target_label: __address__
  - {{source_labels: [__meta_kubernetes_pod_name], target_label: scraped_pod}}
  - {{source_labels: [__meta_kubernetes_namespace], target_label: scraped_namespace}}
"""


def start() -> None:
    """Starts it if it does not run."""
    (STATE / "prometheus.yml").write_text(CONFIGURATION)
    PROGRAM.start()
    until("Prometheus", 30, lambda: PROGRAM.check() or _ready())


def query(expression: str) -> list[dict]:
    """The series of an expression now, as Prometheus answers: [{"metric": labels, "value": [time, text]}]."""
    answer = _get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    return json.loads(answer)["data"]["result"]


def targets() -> list[dict]:
    """Every pod that it scrapes: labels, scrapeUrl, health, lastError."""
    return json.loads(_get("/api/v1/targets?state=active"))["data"]["activeTargets"]


def _get(path: str) -> str:
    with urllib.request.urlopen(f"http://{AT}{path}", timeout=10) as answer:
        return answer.read().decode()


def _ready() -> bool:
    try:
        _get("/-/ready")
    except OSError:
        return False
    return True
