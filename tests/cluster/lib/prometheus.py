"""Real Prometheuses. PODS finds pods by their prometheus.io/* annotations, as in many clusters without the Prometheus Operator."""

import json
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from lib.namespaces import until
from lib.processes import Program
from lib.settings import BIN, KUBECONFIG, STATE


@dataclass(frozen=True)
class Prometheus:
    name: str
    port: int

    @property
    def configuration(self) -> Path:
        return STATE / f"{self.name}.yml"

    @property
    def data(self) -> Path:
        return STATE / self.name

    @property
    def program(self) -> Program:
        words = [
            BIN / "prometheus",
            f"--config.file={self.configuration}",
            f"--storage.tsdb.path={self.data}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        return Program(self.name, words)

    def start(self, configuration: str) -> None:
        """Starts it if it does not run."""
        self.configuration.write_text(configuration)
        self.program.start()
        until(self.name, 30, lambda: self.program.check() or self._ready())

    def query(self, expression: str) -> list[dict]:
        """The series of an expression now, as Prometheus answers: [{"metric": labels, "value": [time, text]}]."""
        return self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["result"]

    def query_range(self, expression: str, seconds: float, step: float) -> list[dict]:
        """The series of an expression over the last seconds: [{"metric": labels, "values": [[time, text]]}]."""
        now = time.time()
        words = {"query": expression, "start": now - seconds, "end": now, "step": step}
        return self._get("/api/v1/query_range?" + urllib.parse.urlencode(words))["result"]

    def targets(self) -> list[dict]:
        """All that it scrapes: labels, scrapeUrl, health, lastError."""
        return self._get("/api/v1/targets?state=active")["activeTargets"]

    def alerts(self) -> list[dict]:
        """Pending and firing alerts: labels, annotations, state."""
        return self._get("/api/v1/alerts")["alerts"]

    def rules(self) -> list[dict]:
        """The rules that it evaluates: name, type, health, lastError."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=10):
                return True
        except OSError:
            return False


PODS = Prometheus("prometheus", 9090)
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
    """Starts the one of annotated pods if it does not run."""
    PODS.start(CONFIGURATION)
