"""Shares of GPUs as claims: the chart with dra.enabled on the labelled node, and objects for tests."""

import contextlib
import json
from collections.abc import Sequence

from lib import api, devices, images, product
from lib.cluster import Skipped
from lib.namespaces import until
from lib.settings import KUBERNETES, NODE, REPOSITORY

DRIVER = "gpu.sluice.dev"
# The class of MIG instances.
MIG = "mig.sluice.dev"
LABEL = "sluice.dev/dra"
LIBRARY = devices.CDI.parent / "sluice.dev-library.json"


@contextlib.contextmanager
def installed(instances: Sequence[str] = (), **values):
    """Sluice with these values on a node that gives its GPUs, and these MIG instances, by claims; afterwards as before."""
    with devices.cdi(instances):
        api.kubectl("label", "node", NODE, f"{LABEL}=true", "--overwrite")
        product.upgrade(REPOSITORY / "charts/sluice", product.merged(product.merged(product.VALUES, {"dra": {"enabled": True}}), values))
        until("the node's devices", 60, lambda: len(published()) == len(devices.GPUS) + len(instances))
        try:
            yield
        finally:
            remove_pods()
            api.kubectl("label", "node", NODE, f"{LABEL}-")
            product.install()
            LIBRARY.unlink(missing_ok=True)


def remove_pods() -> None:
    """The pods of a failed test: while one has a claim, the node offers no device slots."""
    for one in api.request("GET", "/api/v1/namespaces")["items"]:
        if (name := one["metadata"]["name"]).startswith("test-"):
            api.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=1", "--timeout=90s")


def need_consumable_capacity() -> None:
    if tuple(map(int, KUBERNETES.split(".")[:2])) < (1, 36):
        raise Skipped(f"Kubernetes {KUBERNETES} has no consumable capacity of devices, which is on from 1.36 on")


def slices() -> list[dict]:
    """The driver's ResourceSlices."""
    found = api.request("GET", "/apis/resource.k8s.io/v1/resourceslices")["items"]
    return [one for one in found if one["spec"]["driver"] == DRIVER]


def published() -> list[dict]:
    """The devices of the driver's ResourceSlices."""
    return [device for one in slices() for device in one["spec"].get("devices", [])]


def taints(gpu: str) -> dict[str, dict]:
    """The taints of this GPU's device by key."""
    found = [device.get("taints", []) for device in published() if device["name"] == gpu.lower()]
    return {taint["key"]: taint for one in found for taint in one}


def claim(name: str, milli: int, memory: str, gpu: str | None = None, critical: bool = False, of: str = DRIVER, **config: str) -> dict:
    """A claim on a share of this GPU, or of any of the class."""
    requests = {"milli": str(milli), "memory": memory} | ({"critical": "1"} if critical else {})
    exactly = {"deviceClassName": of, "capacity": {"requests": requests}}
    if gpu:
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].uuid == "{gpu}"'}}]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    if config:
        parameters = {"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig", **config}
        spec["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(ns: str, name: str, *argv: str, claims: list[str] | None = None) -> dict:
    """A pod whose container `main` has these claims, or the one of its own name. A best-effort load if argv is absent."""
    used = claims or [name]
    words = ["/usr/bin/sluice", *(argv or ("load", "be", "--duration-us", "5000", "--seconds", "100000"))]
    main = {
        "name": "main", "image": images.TOOLS, "imagePullPolicy": "Never", "command": words,
        "env": [{"name": "SLUICE_SIM_LABEL", "value": f"{ns}/{name}/main"}],
        "resources": {"claims": [{"name": one} for one in used]},
    }
    spec = {
        "containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "resourceClaims": [{"name": one, "resourceClaimName": one} for one in used],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def refusal(ns: str | None, one: dict) -> str:
    """Why the API server does not create this object."""
    where = ["-n", ns] if ns else []
    try:
        api.kubectl("create", *where, "-f", "-", stdin=json.dumps(one))
    except api.Failed as why:
        return str(why)
    raise AssertionError(f"{one['kind']} {one['metadata']['name']} was created")


def consumed(ns: str, name: str) -> dict:
    """What kube-scheduler has counted for the first device of a claim."""
    status = api.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims/{name}")["status"]
    return status["allocation"]["devices"]["results"][0]
