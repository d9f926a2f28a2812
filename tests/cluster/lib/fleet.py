"""Nodes of kwok: objects that accept pods and start nothing, to measure the schedulers with a thousand nodes."""

import json
import uuid

from lib import api
from lib.namespaces import until
from lib.processes import Program
from lib.settings import BIN, KUBECONFIG

FAKE = "kwok.x-k8s.io/node"
# What a pod needs to go there, and nothing else goes there.
TOLERATION = {"key": FAKE, "operator": "Equal", "value": "fake", "effect": "NoSchedule"}
SELECTOR = {"type": "kwok"}
SLOTS_PER_GPU = 10
GPUS = 8
MEMORY_BYTES = 141 << 30
PLAIN = "test.sluice.dev/plain"
KWOK = Program(
    "kwok",
    [
        BIN / "kwok",
        f"--kubeconfig={KUBECONFIG}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={FAKE}=fake",
        "--node-lease-duration-seconds=200",
        *[f"--config={BIN}/kwok-stages/{stage}.yaml" for stage in (
            "node-initialize", "node-heartbeat-with-lease", "pod-ready", "pod-complete", "pod-delete")],
    ],
)


def start(nodes: int, resource: str, healthy: range | None = None, gpus: int = GPUS, first: int = 0) -> list[str]:
    """Creates the nodes, with our inventory and an equal number of slots of a plain resource; waits for Ready. `healthy`: the numbers
    of the nodes whose GPUs are healthy, all if absent. The slots of the others stay, so that only the extender refuses them. `first`: how
    many nodes exist already."""
    KWOK.start()
    numbers = range(first, first + nodes)
    names = [f"kwok-{number:04}" for number in numbers]
    api.many("POST", "/api/v1/nodes", (_node(name, resource, healthy is None or number in healthy, gpus) for number, name in zip(numbers, names)))
    # `kubectl wait` would ask for each node by itself, a few a second.
    until("nodes Ready", 180, lambda: _ready() == first + nodes, every=1)
    return names


def stop_agent(node: str, resource: str) -> int:
    """What a node shows while its agent is away: kubelet offers no device slots. Returns the revision of the API server."""
    return _patch(f"{node}/status", {"status": {"allocatable": {resource: "0"}}})


def start_agent(node: str, resource: str, gpus: int, is_process: bool = False) -> int:
    """What an agent publishes when it starts: the inventory, the amounts and, through kubelet, the device slots. If it is a process, only
    kubelet's part is left. Returns the revision of the API server."""
    new = _node(node, resource, True, gpus)
    allocatable = new["status"]["allocatable"]
    if is_process:
        allocatable = {resource: allocatable[resource]}
    else:
        _patch(node, {"metadata": {"annotations": new["metadata"]["annotations"]}})
    return _patch(f"{node}/status", {"status": {"allocatable": allocatable}})


def _patch(path: str, change: dict) -> int:
    """Returns the revision of the API server, which it numbers for all objects together."""
    node = api.request("PATCH", f"/api/v1/nodes/{path}", change, "application/merge-patch+json")
    return int(node["metadata"]["resourceVersion"])


def stop() -> None:
    api.request("DELETE", "/api/v1/nodes?labelSelector=type%3Dkwok", seconds=120)
    KWOK.stop()


def _ready() -> int:
    """Nodes that are Ready and accept pods: the taint of a node that is not ready goes later than its condition."""
    found = api.request("GET", "/api/v1/nodes?labelSelector=type%3Dkwok")["items"]
    ready = {"type": "Ready", "status": "True"}
    accepting = [node for node in found if len(node["spec"]["taints"]) == 1]
    return sum(any(ready.items() <= condition.items() for condition in node["status"].get("conditions", [])) for node in accepting)


def _node(name: str, resource: str, healthy: bool, gpus: int) -> dict:
    slots = str(gpus * SLOTS_PER_GPU)
    capacity = {"cpu": "256", "memory": "2Ti", "pods": "250", resource: slots, PLAIN: slots}
    capacity |= {"sluice.dev/milli": str(gpus * 1000), "sluice.dev/memory-mib": str(gpus * MEMORY_BYTES >> 20)}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    labels |= {"sluice.dev/gpu.present": "true", "sluice.dev/gpu.count": str(gpus), "sluice.dev/gpu.model": "NVIDIA-H200"}
    annotations = {FAKE: "fake", "sluice.dev/gpus": json.dumps(_inventory(name, healthy, gpus))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"taints": [{"key": FAKE, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def uuids(node: str, gpus: int) -> list[str]:
    return [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}" for index in range(gpus)]


def _inventory(name: str, healthy: bool, gpus: int) -> dict:
    own = uuids(name, gpus)
    gpus = [
        {
            "uuid": one,
            "index": index,
            "model": "NVIDIA H200",
            "memory_bytes": MEMORY_BYTES,
            "pci": f"0000:{index + 1:02x}:00.0",
            "nvlink": [other for other in own if other != one],
            "healthy": healthy,
        }
        for index, one in enumerate(own)
    ]
    return {"version": 1, "seats_per_gpu": SLOTS_PER_GPU, "gpus": gpus}
