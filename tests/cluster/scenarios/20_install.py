"""helm install, and the first commands after it."""

import json
from pathlib import Path

from lib import api, images, product
from lib.devices import GPUS, MODEL, ledger
from lib.processes import running
from lib.settings import NODE

SECONDS = 300
CORE = {
    "helm_install_and_describe_node",
    "every_manager_has_a_self_test_result_for_its_gpu",
    "helm_test_is_green",
    "a_pod_without_sluice_annotations_is_not_changed",
}


def test_helm_install_and_describe_node(cluster):
    product.install()
    text = cluster.kubectl("describe", "node", NODE)
    capacity = text.split("Capacity:")[1].split("Allocatable:")[0]
    for resource in (product.RESOURCE, "sluice.dev/milli", "sluice.dev/memory-mib"):
        assert f"{resource}:" in capacity, text
    assert product.allocatable() == 100 * len(GPUS)
    node = cluster.get("node", NODE)["metadata"]
    assert node["labels"]["sluice.dev/gpu.present"] == "true"
    assert node["labels"]["sluice.dev/gpu.model"] == MODEL.replace(" ", "-")
    inventory = json.loads(node["annotations"]["sluice.dev/gpus"])
    assert [gpu["uuid"] for gpu in inventory["gpus"]] == GPUS
    assert all(gpu["healthy"] for gpu in inventory["gpus"])


def test_every_manager_has_a_self_test_result_for_its_gpu(cluster):
    product.need()

    def outcomes() -> dict[str, str]:
        return {s.labels["gpu"]: s.labels["outcome"] for s in product.metrics() if s.name == "sluice_gpu_self_test"}

    # No process used the GPUs when the agent started. On a busy machine a self-test takes longer, and is made up to three
    # times before it is given up as inconclusive.
    cluster.until("verdicts", 120, lambda: set(outcomes()) == set(GPUS) and "pending" not in outcomes().values())
    # The GPUs are tried side by side, on two processors: not all need have come to an end, and one shows that they can.
    assert set(outcomes().values()) <= {"proven", "inconclusive"} and "proven" in outcomes().values(), outcomes()
    (agent,) = running("node-agent")
    managers = {gpu: command_line(one) for gpu in GPUS for one in running("pod-manager", gpu)}
    for gpu in GPUS:
        result_file = managers[gpu][managers[gpu].index("--self-test") + 1]
        about = json.loads(Path(f"/proc/{agent}/root{result_file}").read_text())["about"]
        assert about["gpu"] == gpu, about
    # Each was tried as itself: both have seen programs that Sluice started.
    tests = {gpu: [row["label"] for row in ledger(gpu)["processes"] if row["label"].startswith("doctor-")] for gpu in GPUS}
    assert all(set(labels) >= {"doctor-first", "doctor-second"} for labels in tests.values()), tests


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def test_helm_test_is_green(cluster):
    product.need()
    try:
        api.helm("test", product.RELEASE, "-n", product.NAMESPACE, "--timeout", "120s", seconds=180)
    except api.Failed as why:
        raise AssertionError(f"{why}\n{cluster.kubectl('logs', '-n', product.NAMESPACE, '-l', 'app.kubernetes.io/component=test', '--tail=-1')}") from why


def test_a_pod_without_sluice_annotations_is_not_changed(cluster):
    product.need()
    with cluster.namespace() as ns:
        plain = cluster.pod("plain", "sleep", "1000", image=images.TOOLS)
        plain["spec"]["containers"][0]["command"] = ["/usr/bin/sleep", "1000"]
        api.request("POST", f"/api/v1/namespaces/{ns}/pods", plain)
        cluster.wait("pod/plain", "condition=Ready", ns)
        spec = cluster.get("pod", "plain", ns)["spec"]
        assert spec["schedulerName"] == "default-scheduler"
        assert "resources" not in spec["containers"][0] or not spec["containers"][0]["resources"]
        assert "libsluice" not in cluster.exec(ns, "plain", "cat", "/proc/self/maps")
