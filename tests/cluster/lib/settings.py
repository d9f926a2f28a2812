"""Paths, and the versions of tests/cluster/versions."""

import os
import shlex
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent.parent
# Not below /var/lib or /var/log: inside the cluster's namespaces those are the cluster's own.
STATE = Path(os.environ.get("SLUICE_CLUSTER_STATE", "/var/tmp/sluice-cluster"))
CACHE = Path(os.environ.get("SLUICE_CI_TOOLS", Path.home() / ".cache/sluice-ci")) / "cluster"
MINOR = os.environ.get("SLUICE_K8S", "1.34")
BIN = CACHE / f"bin-{MINOR}"

# A folder with built programs of the product, used as they are; without it, the release programs are built.
PROGRAMS = os.environ.get("SLUICE_CLUSTER_PROGRAMS")
BUILT = Path(PROGRAMS or Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release").absolute()

NODE = "node-a"
ADDRESS = "10.99.0.1"
API = f"https://{ADDRESS}:6443"
SERVICES = "10.96.0.0/16"
PODS = "10.88.0.0/16"
KUBECONFIG = STATE / "kubeconfig-admin"
CONTAINERD = "/run/containerd/containerd.sock"
# In the cluster's own /run; modules/nvidia-runtime has it too.
SIMULATION = Path("/run/sluice-test")


def _versions() -> dict[str, str]:
    pairs = (line.split("=", 1) for line in (HERE / "versions").read_text().splitlines() if "=" in line and line[0] != "#")
    return {name: shlex.split(value)[0] if shlex.split(value) else "" for name, value in pairs}


VERSIONS = _versions()
KUBERNETES = VERSIONS["KUBERNETES_" + MINOR.replace(".", "_")]


def environment() -> dict[str, str]:
    """For every program of the cluster and every command of a test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "LD_"))}
    path = f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return inherited | {"PATH": path, "KUBECONFIG": str(KUBECONFIG), "HOME": str(STATE / "home")}
