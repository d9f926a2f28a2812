"""Sluice as users run it: installed by Helm, configured by annotations, observed by metrics and by the agent's state."""

import contextlib
import json
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from lib import api, images
from lib.cluster import parse_metrics
from lib.devices import GPUS, ledger
from lib.namespaces import until
from lib.processes import running
from lib.settings import KUBERNETES, NODE, REPOSITORY

NAMESPACE = "sluice-system"
RELEASE = "sluice"
RESOURCE = "sluice.dev/gpu"
ASSIGNED = "sluice.dev/assigned-gpu"
GI = 1 << 30

# The GPUs are simulated, for which the chart has no value: a program could make a simulator of its own.
SIMULATED = {"nodeAgent": {"extraArgs": ["--controls=simulated"]}}

# What a site sets that has no registry: the images that lie on the node already. All else is the chart's own.
VALUES = {
    "image": {"registry": "sluice.test", "repository": "sluice", "tag": "test", "pullPolicy": "Never"},
    "scheduler": {"kubeScheduler": {"image": {"tag": f"v{KUBERNETES}", "pullPolicy": "Never"}}},
    "nodeAgent": {"seatsPerGpu": 100, "contextReserve": "0", **SIMULATED["nodeAgent"]},
}


def install(**values) -> None:
    """`helm install`, or `helm upgrade` of the existing release; returns when all parts are ready."""
    install_chart(REPOSITORY / "charts/sluice", merged(VALUES, values))


def install_chart(chart: Path, values: dict) -> None:
    """The same with another chart, and with these values only."""
    upgrade(chart, values)
    until("device slots on the node", 60, lambda: allocatable() > 0)


def upgrade(chart: Path, values: dict) -> None:
    """Returns when Helm has; the node may offer no device slots."""
    # As the GPU Operator or Node Feature Discovery label a node.
    api.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true", "--overwrite")
    words = ["upgrade", "--install", RELEASE, chart, "-n", NAMESPACE, "--create-namespace"]
    api.command("helm", *words, "--wait", "--timeout", "120s", "-f", "-", stdin=json.dumps(values), seconds=180)


def merged(base: dict, over: dict) -> dict:
    out = dict(base)
    for key, value in over.items():
        out[key] = merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


def installed() -> bool:
    releases = json.loads(api.helm("list", "-n", NAMESPACE, "-o", "json"))
    return any(release["name"] == RELEASE for release in releases)


def uninstall() -> str:
    """Returns Helm's output when no pod of Sluice is left: an agent that is ending still tells what its node offers."""
    output = api.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", "120s")
    until("our pods have gone", 90, lambda: not [pod for kind in ("node-agent", "scheduler", "webhook") for pod in pods_of(kind)])
    return output


def clean_up() -> None:
    """After `uninstall`, the commands of docs/operators/upgrade.md under "Remove", with the test's images."""
    values = merged(VALUES, {"cleanup": {"enabled": True}})
    shown = ["--show-only", "templates/cleanup/daemonset.yaml", "--show-only", "templates/cleanup/rbac.yaml"]
    words = ["helm", "template", RELEASE, REPOSITORY / "charts/sluice", "-n", NAMESPACE, *shown, "-f", "-"]
    manifest = api.command(*words, stdin=json.dumps(values))
    api.apply(manifest)
    api.kubectl("rollout", "status", "daemonset/sluice-cleanup", "-n", NAMESPACE, "--timeout=120s", seconds=150)
    api.kubectl("delete", "-f", "-", stdin=manifest)
    api.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s")


def need() -> None:
    """Installs Sluice unless an earlier test has."""
    if not installed():
        install()


def allocatable() -> int:
    node = api.request("GET", f"/api/v1/nodes/{NODE}")
    return int(node["status"].get("allocatable", {}).get(RESOURCE, 0))


def pods_of(component: str) -> list[dict]:
    selector = f"app.kubernetes.io%2Fname%3Dsluice%2Capp.kubernetes.io%2Fcomponent%3D{component}"
    return api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}")["items"]


def agent() -> dict:
    """The node agent's pod that serves now."""
    (pod,) = [pod for pod in pods_of("node-agent") if "deletionTimestamp" not in pod["metadata"]]
    return pod


def agent_is_another(old: dict) -> bool:
    """Whether an agent is ready that is another one than this pod."""
    others = [pod for pod in pods_of("node-agent") if pod["metadata"]["uid"] != old["metadata"]["uid"]]
    return any(c["type"] == "Ready" and c["status"] == "True" for pod in others for c in pod["status"].get("conditions", []))


def annotations(**keys: object) -> dict[str, str]:
    """quota=0.3 to "sluice.dev/quota": "0.3"; gpu_uuid to "sluice.dev/gpu-uuid"."""
    return {f"sluice.dev/{key.replace('_', '-')}": str(value) for key, value in keys.items()}


def tenant(name: str, *argv: object, labels: dict | None = None, **keys: object) -> dict:
    """A pod that requests a part of a GPU. argv are the arguments of `sluice` in it; a best-effort load if absent."""
    words = [str(word) for word in argv] or ["load", "be", "--duration-us", "5000", "--seconds", "100000"]
    return program(name, "/usr/bin/sluice", *words, labels=labels, **keys)


def idle(name: str, **keys: object) -> dict:
    """A pod that opens its GPU and then launches nothing."""
    return tenant(name, "load", "be", "--idle-after", "0", "--seconds", "100000", **keys)


def program(name: str, *argv: str, labels: dict | None = None, **keys: object) -> dict:
    """A pod with a part of a GPU that runs another program than the product's load generator."""
    main = {"name": "main", "image": images.TOOLS, "imagePullPolicy": "Never", "command": list(argv)}
    spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    meta = {"name": name, "annotations": annotations(**keys), "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def create(namespace: str, *pods: dict) -> None:
    """Creates pods concurrently, as controllers do."""
    api.many("POST", f"/api/v1/namespaces/{namespace}/pods", pods)


def pods(namespace: str) -> list[dict]:
    return api.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]


def phases(namespace: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods(namespace)}


def all_running(namespace: str, seconds: int = 90) -> None:
    def there() -> bool:
        found = phases(namespace)
        ended = {name: phase for name, phase in found.items() if phase in ("Failed", "Succeeded")}
        assert not ended, f"pods ended that should run: {ended}\n{last_words(namespace, ended)}"
        return bool(found) and all(phase == "Running" for phase in found.values())

    until(f"pods of {namespace} running", seconds, there)


def last_words(namespace: str, pods: dict[str, str]) -> str:
    return "\n".join(f"{pod}: {api.kubectl('logs', '-n', namespace, pod, '--tail=5')}" for pod in list(pods)[:5])


def assigned(namespace: str) -> dict[str, str]:
    """Maps each pod to its assigned GPU; pods without a GPU are left out."""
    found = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(ASSIGNED) for pod in pods(namespace)}
    return {name: gpu for name, gpu in found.items() if gpu}


def url(component: str, port: int, path: str) -> str:
    (pod, *_) = [pod for pod in pods_of(component) if pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]]
    return f"http://{pod['status']['podIP']}:{port}{path}"


def agent_state() -> str:
    """The agent's page /state, which only its pod's loopback serves."""
    # The chart's agent has its node from the environment, those of lib/agents.py from a flag.
    is_of_chart = lambda pid: b"\0--node=" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    (pid, *_) = [pid for pid in running("node-agent") if is_of_chart(pid)] or [0]
    # An operator has `kubectl port-forward`, which takes longer.
    words = ["nsenter", f"--net=/proc/{pid}/ns/net", "curl", "-sS", "--fail", "--max-time", "10", "http://127.0.0.1:9407/state"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"/state of the agent: {done.stderr}")
    return done.stdout


def clients() -> dict[tuple[str, str], dict]:
    """The pod-managers' clients from the agent's /state: (namespace, pod) to limits and GPU."""
    state = json.loads(agent_state())
    rows = [(client, gpu["uuid"]) for gpu in state["gpus"] for client in gpu["in_force"] if not client["left_out"]]
    return {(client["namespace"], client["pod"]): client | {"gpu": uuid} for client, uuid in rows}


def clients_of(namespace: str) -> dict[str, dict]:
    """The clients of one namespace by pod; empty while the agent does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return {pod: client for (where, pod), client in clients().items() if where == namespace}
    return {}


def metrics(component: str = "node-agent", port: int = 9400):
    with urllib.request.urlopen(url(component, port, "/metrics"), timeout=10) as answer:
        return parse_metrics(answer.read().decode())


@dataclass(frozen=True)
class Counted:
    """A simulated GPU's counts of a pod, summed over its processes."""

    gpu_ns: int = 0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    kernels: int = 0
    # How long it had kernels on the GPU of which none ran, for others had it.
    waited_ns: int = 0
    # Time slices of its contexts that exist now.
    slices_ns: frozenset[int] = frozenset()


def counted(uuid: str) -> tuple[int, dict[str, Counted]]:
    """The GPU's own clock, and its count per "namespace/pod"."""
    book = ledger(uuid)
    slices: dict[int, set[int]] = {}
    for group in book["groups"]:
        slices.setdefault(group["pid"], set()).add(group["timeslice_ns"])
    rows: dict[str, Counted] = {}
    for row in book["processes"]:
        pod = row["label"].rpartition("/")[0]
        was = rows.get(pod, Counted())
        rows[pod] = Counted(
            was.gpu_ns + row["gpu_ns"],
            was.memory_bytes + (0 if row["ended"] else row["memory_bytes"]),
            max(was.memory_peak_bytes, row["memory_peak_bytes"]),
            was.kernels + row["kernels_completed"],
            was.waited_ns + row["waited_ns"],
            was.slices_ns | (set() if row["ended"] else slices.get(row["pid"], set())),
        )
    return book["gpu"]["now_ns"], rows


def shares(seconds: float, gpus: list[str] = GPUS) -> dict[str, dict[str, float]]:
    """For each GPU the share of its time that each pod had in a window of the GPU's clock."""
    before = {gpu: counted(gpu) for gpu in gpus}
    after = {}
    for gpu in gpus:
        began = before[gpu][0]

        def passed(gpu=gpu, began=began) -> bool:
            after[gpu] = counted(gpu)
            return after[gpu][0] - began >= seconds * 1e9

        until(f"{seconds} s of {gpu}", 6 * seconds + 30, passed)
    return {gpu: _between(before[gpu], after[gpu]) for gpu in gpus}


def _between(before, after) -> dict[str, float]:
    length = after[0] - before[0]
    grown = {pod: row.gpu_ns - before[1].get(pod, Counted()).gpu_ns for pod, row in after[1].items()}
    return {pod: ns / length for pod, ns in grown.items() if ns > 0}
