"""What the cluster refuses, by the webhook and without it: every message names key, value and what is allowed."""

import json
import urllib.error

from lib import api, images, product
from lib.devices import GPUS

SECONDS = 180
CORE = {
    "bad_annotations_are_refused",
    "good_annotations_become_requests",
    "keys_and_assignment_cannot_be_changed",
    "a_pod_cannot_request_devices_directly",
}

# Annotations, and words that the refusal must have.
BAD = [
    ({"sluice.dev/quota": "1.5", "sluice.dev/memory": "1Gi"}, ["sluice.dev/quota", "1.5"]),
    ({"sluice.dev/quota": "0", "sluice.dev/memory": "x"}, ["sluice.dev/memory", "x"]),
    ({"sluice.dev/quota": "-0.1", "sluice.dev/memory": "1Gi"}, ["sluice.dev/quota", "-0.1"]),
    ({"sluice.dev/quota": "0.0001", "sluice.dev/memory": "1Gi"}, ["sluice.dev/quota", "0.0001"]),
    ({"sluice.dev/quota": "a third", "sluice.dev/memory": "1Gi"}, ["sluice.dev/quota", "a third"]),
    ({"sluice.dev/quota": "101%", "sluice.dev/memory": "1Gi"}, ["sluice.dev/quota", "101%"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/limit": "0.4"}, ["sluice.dev/limit", "0.4"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/limit": "2"}, ["sluice.dev/limit", "2"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/memory": "0"}, ["sluice.dev/memory", "0"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/memory": "4 GB"}, ["sluice.dev/memory", "4 GB"]),
    ({"sluice.dev/limit": "0.5"}, ["sluice.dev/memory"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/priority": "urgent"}, ["sluice.dev/priority", "urgent", "latency-critical"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/priority": "4"}, ["sluice.dev/priority", "4"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/slo": "5ms"}, ["sluice.dev/slo", "latency-critical"]),
    ({"sluice.dev/memory": "8Gi", "sluice.dev/priority": "0", "sluice.dev/memory-overcommit": "true"}, ["sluice.dev/memory-overcommit", "latency-critical"]),
    ({"sluice.dev/memory": "8Gi", "sluice.dev/gpus": "2", "sluice.dev/memory-overcommit": "true"}, ["sluice.dev/memory-overcommit", "one GPU"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/suspend": "now"}, ["sluice.dev/suspend", "now"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/priority": "0", "sluice.dev/slo": "soon"}, ["sluice.dev/slo", "soon"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/gpu-uuid": "the first"}, ["sluice.dev/gpu-uuid", "the first"]),
    ({"sluice.dev/quota": "0.5", "sluice.dev/container": "absent"}, ["sluice.dev/container", "absent"]),
    ({"sluice.dev/quotas": "0.5"}, ["sluice.dev/quotas", "sluice.dev/quota"]),
    ({"sluice.dev/quota": "2", "sluice.dev/limit": "0.5"}, ["sluice.dev/limit"]),
]


def refused(method: str, path: str, body: dict, content: str = "application/json", **more) -> str:
    """The API server's message; fails if it agrees."""
    try:
        api.request(method, path, body, content, **more)
    except urllib.error.HTTPError as why:
        text = why.read().decode()
        assert why.code in (400, 403, 422), (why.code, text)
        return json.loads(text)["message"]
    raise AssertionError(f"{method} {path} was not refused: {json.dumps(body)[:400]}")


def warned(manifest: dict) -> str:
    """The warnings about an object that is accepted; fails if there is none. The option turns warnings into an exit code."""
    try:
        api.kubectl("create", "--dry-run=server", "--warnings-as-errors", "-f", "-", stdin=json.dumps(manifest))
    except api.Failed as warned:
        return warned.err
    raise AssertionError(f"no warning: {json.dumps(manifest)[:400]}")


def test_bad_annotations_are_refused(cluster):
    product.need()
    with cluster.namespace() as ns:
        for annotations, words in BAD:
            pod = product.tenant("bad") | {}
            pod["metadata"]["annotations"] = annotations
            message = refused("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", pod)
            missing = [word for word in words if word not in message]
            assert not missing, f"{annotations}: the message lacks {missing}: {message}"
        # Every mistake at once.
        pod["metadata"]["annotations"] = {"sluice.dev/quota": "9", "sluice.dev/memory": "lots", "sluice.dev/priority": "urgent"}
        message = refused("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", pod)
        assert all(word in message for word in ("lots", "urgent")), message
        cluster.record("kinds_refused", len(BAD))
        assert product.pods(ns) == []


def test_good_annotations_become_requests(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = product.tenant("good", quota="30%", memory="1Gi", container="main")
        pod["spec"]["initContainers"] = [{"name": "first", "image": images.BUSYBOX, "imagePullPolicy": "Never", "command": ["true"]}]
        pod["spec"]["containers"].append({"name": "side", "image": images.BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1000"]})
        made = api.request("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", pod)
        main, side = made["spec"]["containers"]
        assert main["resources"]["limits"][product.RESOURCE] == "1" and made["spec"]["schedulerName"] == "sluice-scheduler"
        env = {item["name"]: item for item in main["env"]}
        assert env["NVIDIA_VISIBLE_DEVICES"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['sluice.dev/assigned-gpu']"
        for other in (side, made["spec"]["initContainers"][0]):
            assert not other.get("resources"), other
            assert {item["name"]: item.get("value") for item in other["env"]}["NVIDIA_VISIBLE_DEVICES"] == "void"


def beside(name: str, first: str) -> dict:
    """A pod whose container `main` computes, behind a container called `first`."""
    pod = product.tenant(name, quota=0.2, memory="64Mi")
    pod["spec"]["containers"].insert(0, {"name": first, "image": images.BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "100000"]})
    return pod


def test_injected_sidecar_that_stands_first_gets_no_gpu(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = beside("train", "gke-gcsfuse-sidecar")
        warning = warned(pod | {"metadata": pod["metadata"] | {"namespace": ns}})
        assert "container main gets the GPU" in warning and "gke-gcsfuse-sidecar" in warning, warning
        product.create(ns, pod)
        product.all_running(ns)
        cluster.until("its client", 30, lambda: product.clients_of(ns).get("train", {}).get("processes"))
        made = cluster.get("pod", "train", ns)
        sidecar, main = made["spec"]["containers"]
        assert made["metadata"]["annotations"]["sluice.dev/container"] == "main"
        assert main["resources"]["limits"][product.RESOURCE] == "1" and not sidecar.get("resources"), made["spec"]
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in sidecar["env"], sidecar


def test_several_containers_need_a_name(cluster):
    product.need()
    with cluster.namespace() as ns:
        path = f"/api/v1/namespaces/{ns}/pods?dryRun=All"
        pod = beside("web", "web")
        message = refused("POST", path, pod)
        assert "sluice.dev/container is missing: one of web, main" in message, message
        pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = "main"
        warning = warned(pod | {"metadata": pod["metadata"] | {"namespace": ns}})
        assert "container main gets the GPU: kubectl.kubernetes.io/default-container names it" in warning, warning
        pod["metadata"]["annotations"]["sluice.dev/container"] = "web"
        web, main = api.request("POST", path, pod)["spec"]["containers"]
        assert web["resources"]["limits"][product.RESOURCE] == "1" and not main.get("resources"), (web, main)


def test_pods_for_other_nodes_and_claims_get_an_answer(cluster):
    product.need()
    with cluster.namespace() as ns:
        path = f"/api/v1/namespaces/{ns}/pods?dryRun=All"
        for field, value, words in [
            ("os", {"name": "windows"}, ["spec.os.name", "windows", "linux"]),
            ("nodeSelector", {"kubernetes.io/os": "windows"}, ["spec.nodeSelector[kubernetes.io/os]", "windows", "linux"]),
            ("nodeSelector", {"kubernetes.io/arch": "arm64"}, ["spec.nodeSelector[kubernetes.io/arch]", "arm64", "amd64"]),
        ]:
            pod = product.tenant("other", quota=0.2, memory="64Mi")
            pod["spec"][field] = value
            message = refused("POST", path, pod)
            assert all(word in message for word in words), message
        pod = product.tenant("claims", quota=0.2, memory="64Mi")
        pod["metadata"]["namespace"] = ns
        pod["spec"]["resourceClaims"] = [{"name": "whole", "resourceClaimName": "absent"}]
        assert "spec.resourceClaims[whole]" in warned(pod)
        pod = product.tenant("zero", quota=0.2, memory="64Mi")
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0"}}
        (main,) = api.request("POST", path, pod)["spec"]["containers"]
        assert main["resources"]["limits"][product.RESOURCE] == "1", main
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        assert "nvidia.com/gpu" in refused("POST", path, pod)


def test_annotations_beside_the_template_are_warned_of(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = product.tenant("a", quota=0.2, memory="64Mi")
        labels = {"app": "a"}
        template = {"metadata": {"labels": labels}, "spec": pod["spec"] | {"restartPolicy": "Always"}}
        meta = {"name": "a", "namespace": ns, "annotations": pod["metadata"]["annotations"]}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        create = ["create", "--dry-run=server", "-f", "-"]
        # It is accepted with a warning.
        assert "created" in api.kubectl(*create, stdin=json.dumps(workload))
        warning = warned(workload)
        assert "sluice.dev/quota" in warning and "spec.template.metadata.annotations" in warning, warning
        template["metadata"]["annotations"] = pod["metadata"]["annotations"]
        api.kubectl(*create, "--warnings-as-errors", stdin=json.dumps(workload))


def test_kubeshare_labels(cluster):
    product.need()
    with cluster.namespace() as ns:
        labels = {"sharedgpu/gpu_request": "0.3", "sharedgpu/gpu_limit": "0.6", "sharedgpu/gpu_mem": str(1 << 30), "sharedgpu/priority": "0"}
        pod = product.tenant("old", labels=labels)
        product.create(ns, pod)
        product.all_running(ns)
        cluster.until("its client", 30, lambda: (ns, "old") in product.clients())
        client = product.clients()[(ns, "old")]
        assert (client["quota_ppm"], client["limit_ppm"], client["memory_bytes"]) == (300_000, 600_000, 1 << 30), client
        bad = product.tenant("bad", labels=labels | {"sharedgpu/gpu_limit": "0.2"})
        message = refused("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", bad)
        assert "sharedgpu/gpu_limit" in message and "0.2" in message, message


def test_keys_and_assignment_cannot_be_changed(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, product.tenant("a", "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.2, memory="64Mi"))
        product.all_running(ns)
        path = f"/api/v1/namespaces/{ns}/pods/a"
        merge = "application/merge-patch+json"
        for key, value in {"quota": "0.9", "memory": "8Gi", "priority": "0", "limit": None}.items():
            if value is None:
                continue
            message = refused("PATCH", path, {"metadata": {"annotations": {f"sluice.dev/{key}": value}}}, merge)
            assert f"sluice.dev/{key}" in message, message
        # Without this label the pod would not keep scale-up pods from its node.
        message = refused("PATCH", path, {"metadata": {"labels": {"sluice.dev/gpu-pod": None}}}, merge)
        assert "sluice.dev/gpu-pod" in message, message
        other = next(gpu for gpu in GPUS if gpu != product.assigned(ns)["a"])
        # Not even the administrator, with all rights on pods.
        message = refused("PATCH", path, {"metadata": {"annotations": {product.ASSIGNED: other}}}, merge)
        assert product.ASSIGNED in message, message
        pod = product.tenant("b", quota=0.2, memory="64Mi")
        pod["metadata"]["annotations"][product.ASSIGNED] = GPUS[0]
        # As a copy of a pod does: the webhook takes it out, and says so.
        assert product.ASSIGNED in warned(pod | {"metadata": pod["metadata"] | {"namespace": ns}})
        created = api.request("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", pod)
        assert product.ASSIGNED not in created["metadata"]["annotations"]
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "c", "annotations": {product.ASSIGNED: GPUS[0]}}, "target": {"kind": "Node", "name": cluster.node}}
        held = cluster.pod("c", "sleep", "1000") | {}
        held["spec"]["schedulerName"] = "absent"
        api.request("POST", f"/api/v1/namespaces/{ns}/pods", held)
        assert product.ASSIGNED in refused("POST", f"/api/v1/namespaces/{ns}/pods/c/binding", binding)
        # Whether the pod is suspended may change, also with its status. The webhook does not see that.
        for value in ("true", "false", None):
            api.request("PATCH", path, {"metadata": {"annotations": {"sluice.dev/suspend": value}}}, merge)
        for where in (path, f"{path}/status"):
            message = refused("PATCH", where, {"metadata": {"annotations": {"sluice.dev/suspend": "yes"}}}, merge)
            assert "sluice.dev/suspend" in message and "true or false" in message, message
        # What is not ours may change.
        api.request("PATCH", path, {"metadata": {"annotations": {"team": "x"}, "labels": {"team": "x"}}}, merge)


def test_a_pod_cannot_request_devices_directly(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = product.tenant("greedy", quota=0.2, memory="64Mi")
        pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        assert "NVIDIA_VISIBLE_DEVICES" in refused("POST", f"/api/v1/namespaces/{ns}/pods", pod)
        product.create(ns, product.tenant("a", "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.2, memory="64Mi"))
        product.all_running(ns)
        extra = {"spec": {"ephemeralContainers": [{"name": "debug", "image": images.TOOLS, "imagePullPolicy": "Never", "command": ["/usr/bin/sleep", "1000"], "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}}
        path = f"/api/v1/namespaces/{ns}/pods/a/ephemeralcontainers"
        assert "NVIDIA_VISIBLE_DEVICES" in refused("PATCH", path, extra, "application/strategic-merge-patch+json")
        # Images of CUDA set the variable themselves: a debugging container is given one of its own, which wins.
        del extra["spec"]["ephemeralContainers"][0]["env"]
        made = api.request("PATCH", path, extra, "application/strategic-merge-patch+json")
        (debug,) = made["spec"]["ephemeralContainers"]
        assert debug["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}], debug
        no_slots = product.tenant("none", quota=0.2, memory="64Mi")
        no_slots["spec"]["containers"][0]["resources"] = {"limits": {product.RESOURCE: "0"}}
        assert product.RESOURCE in refused("POST", f"/api/v1/namespaces/{ns}/pods", no_slots), "a GPU without its library"


def test_a_pod_in_a_sandbox_is_refused(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = product.tenant("hidden", quota=0.2, memory="64Mi")
        pod["spec"]["runtimeClassName"] = "kata-qemu"
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata-qemu"}, "handler": "runc"}
        cluster.apply(runtime)
        try:
            message = refused("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", pod)
        finally:
            cluster.delete("runtimeclass", "kata-qemu")
        assert "spec.runtimeClassName" in message and "kata-qemu" in message, message


def test_exec_children_and_empty_environments_count_as_their_pod(cluster):
    """All processes in the pod belong to its client: the memory limit holds for them together."""
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, product.program("a", "/usr/bin/sleep", "100000", quota=0.2, memory="256Mi"))
        product.all_running(ns)
        visible = cluster.exec(ns, "a", "/usr/bin/env")
        hold = ["/usr/bin/sluice", "load", "be", "--count", "3", "--memory"]
        # Only the driver's variables are kept: they replace the device files of a real GPU.
        driver = [line for line in visible.splitlines() if line.startswith("SLUICE_SIM_")]
        for words in ([], ["/usr/bin/env", "-i", *driver]):
            fits = last_record(cluster.exec(ns, "a", *words, *hold, "200Mi"))
            assert fits["held_bytes"] >= 200 << 20 and fits["denied"] == 0, (words, fits)
            refused = last_record(cluster.exec(ns, "a", *words, *hold, "300Mi"))
            assert refused["held_bytes"] < 1 << 20 and refused["denied"] == 1, (words, refused)
        peak = product.counted(product.assigned(ns)["a"])[1][f"{ns}/a"].memory_peak_bytes
        assert 200 << 20 <= peak <= 256 << 20, peak


def last_record(text: str) -> dict:
    """The final record of a load."""
    return json.loads(text.strip().splitlines()[-1])


def agent_of(node: str) -> dict:
    """Headers of a request as the node agent of this node."""
    user = f"system:serviceaccount:{product.NAMESPACE}:sluice-node-agent"
    return {"Impersonate-User": user, "Impersonate-Extra-Authentication.kubernetes.io%2fnode-name": node}


def test_agent_may_set_its_taint_and_no_other_part_of_the_node(cluster):
    product.need()
    merge = "application/merge-patch+json"
    path = f"/api/v1/nodes/{cluster.node}?dryRun=All"
    own = agent_of(cluster.node)
    taint = {"key": "sluice.dev/gpu-lost", "effect": "PreferNoSchedule"}
    there = api.request("GET", f"/api/v1/nodes/{cluster.node}")["spec"].get("taints", [])
    made = api.request("PATCH", path, {"spec": {"taints": [*there, taint]}}, merge, as_other=own)
    assert made["spec"]["taints"] == [*there, taint], made["spec"]
    for spec in ({"taints": [{"key": "pool", "effect": "NoSchedule"}]}, {"taints": [*there, taint | {"effect": "NoExecute"}]}, {"unschedulable": True}, {"providerID": "other://node"}):
        message = refused("PATCH", path, {"spec": spec}, merge, as_other=own)
        assert "not the rest of the node" in message, message


def test_agent_may_set_its_condition_on_pods_of_its_node_and_nothing_else_of_them(cluster):
    product.need()
    strategic = "application/strategic-merge-patch+json"
    condition = {"type": "sluice.dev/Suspended", "status": "True", "reason": "Suspended"}
    with cluster.namespace() as ns:
        product.create(ns, product.idle("own", quota="0.1", memory="64Mi"))
        product.all_running(ns)
        path, own = f"/api/v1/namespaces/{ns}/pods/own/status?dryRun=All", agent_of(cluster.node)
        made = api.request("PATCH", path, {"status": {"conditions": [condition]}}, strategic, as_other=own)
        assert [one["status"] for one in made["status"]["conditions"] if one["type"] == condition["type"]] == ["True"], made["status"]
        message = refused("PATCH", path, {"status": {"conditions": [condition]}}, strategic, as_other=agent_of("another"))
        assert "may change only pods of that node" in message, message
        others = [
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
            {"status": {"message": "other"}},
            {"metadata": {"annotations": {"other": "value"}}},
            {"metadata": {"finalizers": ["other.dev/finalizer"]}},
        ]
        for other in others:
            message = refused("PATCH", path, other, strategic, as_other=own)
            assert "may change only the condition sluice.dev/Suspended" in message, message
