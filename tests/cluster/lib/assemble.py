"""The cluster from bare namespaces to a Ready node; runs inside them."""

import subprocess
import time
from pathlib import Path

from lib import api, certificates, controlplane, devices, images, node
from lib.namespaces import until
from lib.settings import BIN, BUILT, CONTAINERD, NODE, STATE

CONTROL_PLANE = [controlplane.CONTROLLERS, controlplane.SCHEDULER, controlplane.PROXY]
PROGRAMS = [controlplane.ETCD, controlplane.APISERVER, *CONTROL_PLANE, node.RUNTIME, node.KUBELET]


def up() -> None:
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"up: {time.monotonic() - began:5.1f} s  {text}", flush=True)

    certificates.make()
    node.write_configuration()
    node.RUNTIME.start()
    controlplane.ETCD.start()
    start_api_server()
    for program in CONTROL_PLANE:
        program.start()
    say("API server ready")
    programs = stripped_copies()
    devices.start(programs)
    until("containerd", 30, lambda: node.RUNTIME.check() or containerd_answers())
    images.make_and_import(programs)
    say("images imported")
    node.KUBELET.start()
    until("default service account", 30, lambda: api.answers("/api/v1/namespaces/default/serviceaccounts/default"))
    until("node registered", 60, lambda: node.KUBELET.check() or api.answers(f"/api/v1/nodes/{NODE}"))
    api.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=60s")
    api.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"})
    say("node ready")


def stripped_copies() -> Path:
    """A folder with stripped copies of the product's programs: a running cluster's files must not change, and the build is ten times as large."""
    folder = STATE / "programs"
    folder.mkdir()
    for name in ("sluice", "libsluice.so", "libcuda.so"):
        subprocess.run(["strip", "--strip-debug", "-o", folder / name, BUILT / name], check=True)
    return folder


def start_api_server() -> None:
    controlplane.APISERVER.start()
    until("API server", 180, lambda: controlplane.APISERVER.check() or api.answers("/readyz"))


def containerd_answers() -> bool:
    return subprocess.run([BIN / "ctr", "--address", CONTAINERD, "version"], capture_output=True).returncode == 0


def logs(lines: int = 25) -> str:
    """The ends of all programs' logs, for a failure."""
    gpus = [devices.program(uuid) for uuid in devices.GPUS]
    return "\n".join(f"--- {program.name}\n{program.tail(lines)}" for program in [*PROGRAMS, *gpus] if Path(program.log).exists())
