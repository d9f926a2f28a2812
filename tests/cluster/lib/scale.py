"""Schedulers over the same thousand nodes: the stock one with a plain resource, and ours with the extender."""

import contextlib
import json
import re
import ssl
import time
import urllib.request
from dataclasses import dataclass

from lib import api, controlplane, costs, fleet
from lib.namespaces import until
from lib.processes import Program
from lib.settings import BIN, KUBECONFIG, REPOSITORY, SIMULATION, STATE

CHART = REPOSITORY / "charts/sluice"
RESOURCE = "sluice.dev/gpu"
PORT = 10269


def _configuration(name: str):
    return STATE / f"scale-{name}.yaml"


def _kube_scheduler(name: str) -> Program:
    flags = {"config": _configuration(name), "secure-port": PORT, "authentication-kubeconfig": KUBECONFIG, "authorization-kubeconfig": KUBECONFIG}
    return Program(f"scale-kube-scheduler-{name}", [BIN / "kube-scheduler", *(f"--{flag}={value}" for flag, value in flags.items())])


# Two examine all nodes, as the chart has it. Two have kube-scheduler's default, by which they examine 42 % of a thousand nodes.
SCHEDULERS = {name: _kube_scheduler(name) for name in ("extender", "plain", "extender_sampled", "plain_sampled")}
WITH_EXTENDER = SCHEDULERS["extender"]
# Nothing in it waits for a pod's IP or a lease: there is one of each.
EXTENDER = Program("scale-extender", [SIMULATION / "sluice", "scheduler", "--lease=none", "--metrics-listen=127.0.0.1:9401"])


@dataclass(frozen=True)
class Round:
    """One burst of pods: pods placed per second, and what each pod cost."""

    rate: float
    cpu_ms: dict[str, float]
    requests: dict[str, float]


def remove_releases() -> None:
    """An installed product lets only its own scheduler assign GPUs, and two schedulers would share the pods."""
    for release in json.loads(api.helm("list", "-A", "-o", "json")):
        api.helm("uninstall", release["name"], "-n", release["namespace"], "--wait", "--timeout=120s")


def write_configuration() -> None:
    """The chart's own, without leader election and with the stock scheduler's limits of requests. Variants: without the extender, and with the
    default percentage of nodes."""
    limits = [f"scheduler.kubeScheduler.clientConnection.{name}=5000" for name in ("qps", "burst")]
    values = [word for limit in limits for word in ("--set", limit)]
    text = api.helm("template", "sluice", CHART, "-n", "sluice-system", *values, "-s", "templates/scheduler/configmap.yaml")
    config = json.loads(api.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", stdin=text))["data"]["config.yaml"]
    config = config.replace("leaderElect: true", "leaderElect: false")
    config = re.sub(r"(clientConnection:\n)", rf"\1  kubeconfig: {KUBECONFIG}\n", config)
    plain = config.partition("extenders:\n")[0].replace("sluice-scheduler", "default-scheduler")
    for name, text in (("extender", config), ("plain", plain)):
        _configuration(name).write_text(text)
        _configuration(f"{name}_sampled").write_text(text.replace("percentageOfNodesToScore: 100\n", ""))


def pods(namespace: str, count: int, plain: bool, prefix: str = "p"):
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
        metadata = {"name": f"{prefix}{number}", "namespace": namespace, "annotations": annotations}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def burst(namespace: str, count: int, which: str) -> Round:
    """From the first placed pod to the last, of pods that all wait before their scheduler starts. No other scheduler runs."""
    scheduler, is_plain = SCHEDULERS[which], which.startswith("plain")
    stop()
    # The API server deletes a collection by the names of its objects, so a name is not used twice.
    prefix = f"{which.replace('_', '-')}-{time.monotonic_ns()}-"
    api.many("POST", f"/api/v1/namespaces/{namespace}/pods", pods(namespace, count, is_plain, prefix))
    if not is_plain:
        start_extender()
    requests = costs.api_requests()
    scheduler.start()
    began, before = until("first pod", 60, lambda: scheduler.check() or _begun())
    cpu = _cpu(scheduler)
    ended, after = until("all pods", 300, lambda: _reached(count), every=0.1)
    placed = after - before
    cpu_ms = {name: round((seconds - cpu[name]) * 1000 / placed, 2) for name, seconds in _cpu(scheduler).items() if seconds > cpu[name]}
    per_pod = {name: round(number / count, 2) for name, number in (costs.api_requests() - requests).items()}
    return Round(placed / (ended - began), cpu_ms, {name: number for name, number in per_pod.items() if number >= 0.05})


def rate_of(which: str, count: int) -> tuple[float, float]:
    """Starts this scheduler. Returns how many pods it places in a second, from the first to the last of `count` that wait, and in a second of its
    processor time."""
    scheduler = SCHEDULERS[which]
    scheduler.start()
    began, before = until("first pod", 60, lambda: scheduler.check() or _begun())
    cpu = costs.cpu_seconds(scheduler)
    ended, after = until("all pods", 300, lambda: _reached(count), every=0.05)
    placed = after - before
    return placed / (ended - began), placed / (costs.cpu_seconds(scheduler) - cpu)


def start_extender() -> None:
    EXTENDER.start()
    until("extender", 60, lambda: EXTENDER.check() or answers("http://127.0.0.1:9401/readyz"))


def stop() -> None:
    for program in (controlplane.SCHEDULER, *SCHEDULERS.values(), EXTENDER):
        program.stop()


def _cpu(scheduler: Program) -> dict[str, float]:
    programs = {"etcd": controlplane.ETCD, "API server": controlplane.APISERVER, "controllers": controlplane.CONTROLLERS, "kwok": fleet.KWOK}
    programs |= {"kube-scheduler": scheduler, "extender": EXTENDER}
    return {name: costs.cpu_seconds(program) for name, program in programs.items()}


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


def _placed() -> float:
    asked = urllib.request.Request(f"https://127.0.0.1:{PORT}/metrics", headers={"Authorization": "Bearer token-admin"})
    unchecked = ssl._create_unverified_context()  # kube-scheduler makes itself a certificate
    try:
        with urllib.request.urlopen(asked, timeout=10, context=unchecked) as answer:
            text = answer.read().decode()
    except OSError:
        return 0.0
    found = re.findall(r'^scheduler_schedule_attempts_total\{.*result="scheduled".*\} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))


def _begun() -> tuple[float, float] | None:
    return (time.monotonic(), placed) if (placed := _placed()) else None


def _reached(count: int) -> tuple[float, float] | None:
    return (time.monotonic(), placed) if (placed := _placed()) >= count else None
