"""helm uninstall: running pods keep their library and go on; after their end and the clean-up nothing is left."""

import json
from pathlib import Path

from lib import api, product
from lib.settings import NODE

SECONDS = 300
CORE = {"uninstall_leaves_pods_working_and_then_nothing"}


def test_uninstall_leaves_pods_working_and_then_nothing(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, product.tenant("stays", quota=0.3, memory="1Gi"))
        product.all_running(ns)
        gpu = product.assigned(ns)["stays"]
        name = f"{ns}/stays"
        cluster.until("it works", 60, lambda: product.counted(gpu)[1].get(name, product.Counted(0, 0, 0, 0)).kernels > 10)
        output = product.uninstall()
        cluster.record("output", output.strip().splitlines()[-1])
        # It still works with its library, and a command in the pod sees the library.
        began = product.counted(gpu)[1][name].kernels
        cluster.until("it still works", 60, lambda: product.counted(gpu)[1][name].kernels > began + 10)
        assert "libsluice.so" in cluster.exec(ns, "stays", "cat", "/proc/1/maps")
        assert product.phases(ns)["stays"] == "Running"
        left = cluster_objects()
        assert not left, left
    # The pods' end: the namespace has gone. Now the documented rest.
    product.clean_up()
    node = api.request("GET", f"/api/v1/nodes/{NODE}")
    ours = [key for part in ("annotations", "labels") for key in node["metadata"].get(part, {}) if "sluice.dev" in key]
    assert not ours, ours
    for folder in ("/var/lib/sluice", "/run/sluice", "/var/lib/kubelet/device-plugins/sluice.sock"):
        assert not Path(folder).exists(), (folder, [str(path) for path in Path(folder).rglob("*")])
    assert int(node["status"]["allocatable"].get(product.RESOURCE, 0)) == 0
    ours = [key for part in ("capacity", "allocatable") for key in node["status"][part] if "sluice.dev" in key and key != product.RESOURCE]
    assert not ours, ours


def cluster_objects() -> list[str]:
    """The chart's objects that are left in the cluster. kube-scheduler created its Lease, which goes with the namespace."""
    kinds = ["clusterroles", "clusterrolebindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "priorityclasses"]
    found = []
    for kind in kinds:
        items = json.loads(cluster_get(kind))["items"]
        found += [f"{kind}/{item['metadata']['name']}" for item in items if "sluice" in item["metadata"]["name"]]
    inside = json.loads(api.kubectl("get", "all,configmaps,secrets,serviceaccounts,roles,rolebindings,resourcequotas,networkpolicies,pdb", "-n", product.NAMESPACE, "-o", "json"))["items"]
    return found + [f"{item['kind']}/{item['metadata']['name']}" for item in inside if item["metadata"]["name"] not in ("default", "kube-root-ca.crt") and item["kind"] not in ("Event",)]


def cluster_get(kind: str) -> str:
    return api.kubectl("get", kind, "-o", "json")
