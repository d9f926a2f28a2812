"""Two schedulers over the same thousand nodes: the stock one with a plain resource, and ours with the extender."""

import contextlib
import json
import re
import ssl
import time
import urllib.request
from pathlib import Path

from lib import api, controlplane, fleet
from lib.namespaces import until
from lib.processes import Program
from lib.settings import BIN, KUBECONFIG, REPOSITORY, SIMULATION, STATE

CHART = REPOSITORY / "charts/sluice"
RESOURCE = "sluice.dev/gpu"
PORT = 10269
CONFIGURATION = STATE / "scale-scheduler.yaml"
WITH_EXTENDER = Program(
    "scale-kube-scheduler",
    [
        BIN / "kube-scheduler",
        f"--config={CONFIGURATION}",
        f"--secure-port={PORT}",
        f"--authentication-kubeconfig={KUBECONFIG}",
        f"--authorization-kubeconfig={KUBECONFIG}",
    ],
)
# Nothing in it waits for a pod's IP or a lease: there is one of each.
EXTENDER = Program("scale-extender", [SIMULATION / "sluice", "scheduler", "--lease=none", "--metrics-listen=127.0.0.1:9401"])


def remove_releases() -> None:
    """An installed product lets only its own scheduler assign GPUs, and two schedulers would share the pods."""
    for release in json.loads(api.helm("list", "-A", "-o", "json")):
        api.helm("uninstall", release["name"], "-n", release["namespace"], "--wait", "--timeout=120s")


def write_configuration() -> None:
    """The chart's own, without leader election and with the stock scheduler's limits of requests."""
    limits = [f"scheduler.kubeScheduler.clientConnection.{name}=5000" for name in ("qps", "burst")]
    values = [word for limit in limits for word in ("--set", limit)]
    text = api.helm("template", "sluice", CHART, "-n", "sluice-system", *values, "-s", "templates/scheduler/configmap.yaml")
    config = json.loads(api.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", stdin=text))["data"]["config.yaml"]
    config = config.replace("leaderElect: true", "leaderElect: false")
    CONFIGURATION.write_text(re.sub(r"(clientConnection:\n)", rf"\1  kubeconfig: {KUBECONFIG}\n", config))


def pods(namespace: str, count: int, plain: bool):
    """Pods that differ only in the resource and in the scheduler."""
    asked = fleet.PLAIN if plain else RESOURCE
    annotations = {} if plain else {"sluice.dev/quota": "0.2", "sluice.dev/memory": "8Gi"}
    container = {"name": "main", "image": "none", "resources": {"limits": {asked: "1"}, "requests": {asked: "1"}}}
    spec = {
        "schedulerName": "default-scheduler" if plain else "sluice-scheduler",
        "containers": [container],
        "tolerations": [fleet.TOLERATION],
        "nodeSelector": fleet.SELECTOR,
        "automountServiceAccountToken": False,
    }
    for number in range(count):
        metadata = {"name": f"p{number}", "namespace": namespace, "annotations": annotations}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def rate(namespace: str, count: int, plain: bool) -> float:
    """Pods placed per second, from the first to the last, of pods that all wait before the scheduler starts."""
    programs = [controlplane.SCHEDULER] if plain else [EXTENDER, WITH_EXTENDER]
    for program in programs:
        program.stop()
    api.many("POST", f"/api/v1/namespaces/{namespace}/pods", pods(namespace, count, plain))
    if not plain:
        EXTENDER.start()
        until("extender", 60, lambda: EXTENDER.check() or answers("http://127.0.0.1:9401/readyz"))
    programs[-1].start()
    port = 10259 if plain else PORT
    began, before = until("first pod", 60, lambda: programs[-1].check() or _begun(port))
    ended, after = until("all pods", 300, lambda: _reached(port, count), every=0.1)
    return (after - before) / (ended - began)


def peak_memory(program: Program) -> int:
    """Bytes, since it started."""
    lines = Path(f"/proc/{program.pid()}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def clear(namespace: str) -> None:
    with contextlib.suppress(OSError):  # It goes on when the API server does not answer in time.
        api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0", seconds=60)
    left = f"/api/v1/namespaces/{namespace}/pods?limit=1"
    until("pods gone", 180, lambda: not api.request("GET", left)["items"], every=0.5)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


def _placed(port: int) -> float:
    asked = urllib.request.Request(f"https://127.0.0.1:{port}/metrics", headers={"Authorization": "Bearer token-admin"})
    unchecked = ssl._create_unverified_context()  # kube-scheduler makes itself a certificate
    try:
        with urllib.request.urlopen(asked, timeout=10, context=unchecked) as answer:
            text = answer.read().decode()
    except OSError:
        return 0.0
    found = re.findall(r'^scheduler_schedule_attempts_total\{.*result="scheduled".*\} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))


def _begun(port: int) -> tuple[float, float] | None:
    return (time.monotonic(), placed) if (placed := _placed(port)) else None


def _reached(port: int, count: int) -> tuple[float, float] | None:
    return (time.monotonic(), placed) if (placed := _placed(port)) >= count else None
