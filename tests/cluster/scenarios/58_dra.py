"""Shares of GPUs as claims on Kubernetes 1.36: the stock scheduler allocates them, and the managers enforce what it has counted."""

from lib import claims, product
from lib.claims import claim, pod
from lib.devices import CONTEXT_BYTES, GPUS

SECONDS = 600
MIB = 1 << 20


def have_shares(cluster, ns: str, asked: dict[str, float], gpu: str, when: str) -> None:
    """Each pod's part of the GPU's busy time, by the simulator's ledger."""
    seen = product.shares(15, [gpu])[gpu]
    busy = sum(seen.values())
    for name, share in asked.items():
        got = seen.get(f"{ns}/{name}", 0.0) / busy
        cluster.record(f"{when}_{name}", f"asked {share:.2f}, got {got:.4f}")
        assert abs(got - share) <= 0.02, f"{when}: {name} asked {share}, got {got:.4f} of {seen}"


def client(cluster, ns: str, name: str) -> dict:
    cluster.until(f"{name} at its manager", 60, lambda: product.clients_of(ns).get(name, {}).get("processes"))
    return product.clients_of(ns)[name]


def test_claims_of_a_gpu_get_their_shares_and_exact_memory_also_after_restarts(cluster):
    claims.need_consumable_capacity()
    asked = {"three": 0.3, "seven": 0.7}
    with claims.installed(), cluster.namespace() as ns:
        cluster.create(ns, claim("three", 300, "2Gi", GPUS[1], limit="0.9"), claim("seven", 700, "1177Mi", GPUS[1], priority="high"))
        cluster.create(ns, *(pod(ns, name) for name in asked))
        product.all_running(ns, 120)
        limits = {name: client(cluster, ns, name) for name in asked}
        found = {name: (one["gpu"], one["quota_ppm"], one["limit_ppm"], one["memory_bytes"], one["class"]) for name, one in limits.items()}
        assert found == {
            "three": (GPUS[1], 300_000, 900_000, 2 << 30, "best-effort"),
            "seven": (GPUS[1], 700_000, 1_000_000, 1177 * MIB, "high"),
        }, found
        result = claims.consumed(ns, "seven")
        assert (result["consumedCapacity"], result["device"]) == ({"critical": "0", "memory": "1177Mi", "milli": "700", "seats": "1"}, GPUS[1].lower()), result
        for name in asked:
            spec, at = cluster.get("pod", name, ns)["spec"], cluster.get("pod", name, ns)["metadata"]
            ours = [key for key in at.get("annotations", {}) if key.startswith("sluice.dev/")]
            assert (spec["schedulerName"], spec.get("runtimeClassName"), ours) == ("default-scheduler", None, []), (spec, at)
            # Exactly this device, the library and the sockets, by CDI.
            assert cluster.exec(ns, name, "sh", "-c", "echo $SLUICE_SIM_SOCKET").strip() == f"/run/sluice-sim/{GPUS[1]}.sock"
            mounts = cluster.exec(ns, name, "cat", "/proc/self/mountinfo").split()
            assert mounts.count("/etc/ld.so.preload") == 1 and mounts.count("/run/sluice") == 1, mounts
        have_shares(cluster, ns, asked, GPUS[1], "started")

        old = product.agent()
        cluster.delete("pod", old["metadata"]["name"], product.NAMESPACE)
        cluster.until("another agent", 90, lambda: is_ready_beside(old))
        cluster.until("both clients again", 60, lambda: set(product.clients_of(ns)) == set(asked))
        have_shares(cluster, ns, asked, GPUS[1], "agent_restarted")
        cluster.restart(cluster.kubelet)
        # Kubelet deletes the slices at its start.
        cluster.until("the devices again", 60, lambda: len(claims.published()) == len(GPUS))
        have_shares(cluster, ns, asked, GPUS[1], "kubelet_restarted")

        cluster.delete("pod", "seven", ns)
        cluster.until("one client", 60, lambda: set(product.clients_of(ns)) == {"three"})
        cluster.delete("resourceclaim", "seven", ns)
        cluster.create(ns, claim("other", 700, "1Gi", GPUS[1]), pod(ns, "other"))
        cluster.wait("pod/other", "condition=Ready", ns, seconds=90)
        assert client(cluster, ns, "other")["quota_ppm"] == 700_000


def is_ready_beside(old: dict) -> bool:
    pods = [one for one in product.pods_of("node-agent") if one["metadata"]["uid"] != old["metadata"]["uid"]]
    return any(one["type"] == "Ready" and one["status"] == "True" for at in pods for one in at["status"].get("conditions", []))


def waits(cluster, ns: str, name: str, part: str) -> bool:
    """Whether an event of the pod says why it waits."""
    return any(part in event.get("message", "") for event in cluster.events(ns, of=name))


def test_claim_gets_what_it_asks_for_and_no_more(cluster):
    claims.need_consumable_capacity()
    with claims.installed():
        with cluster.namespace() as ns:
            memory_is_the_limit_to_the_byte(cluster, ns)
        with cluster.namespace() as ns:
            stock_scheduler_refuses_what_a_gpu_has_not(cluster, ns)
        with cluster.namespace() as ns:
            configuration_with_mistakes_is_refused_or_starts_no_container(cluster, ns)


def memory_is_the_limit_to_the_byte(cluster, ns: str) -> None:
    cluster.create(ns, claim("grow", 100, "1177Mi", GPUS[0]), pod(ns, "grow", "load", "be", "--grow", "--seconds", "100000"))
    size = 1177 * MIB

    def full() -> bool:
        row = product.counted(GPUS[0])[1].get(f"{ns}/grow")
        # NVML counts blocks of 2 MiB: the small allocations at the end may be refused.
        return row is not None and size - CONTEXT_BYTES - (4 << 20) <= row.memory_peak_bytes <= size

    cluster.until("it has all it was promised", 120, full)
    assert client(cluster, ns, "grow")["memory_bytes"] == size
    cluster.until("it was refused more", 60, lambda: client(cluster, ns, "grow")["memory_denied"] > 0)
    assert full()


def stock_scheduler_refuses_what_a_gpu_has_not(cluster, ns: str) -> None:
    cluster.create(ns, claim("seven", 700, "1Gi", GPUS[0]), pod(ns, "seven"))
    cluster.wait("pod/seven", "condition=Ready", ns, seconds=90)
    # Time and memory count, each by itself.
    cluster.create(ns, claim("time", 301, "1Gi", GPUS[0]), pod(ns, "time"), claim("memory", 1, "141Gi", GPUS[0]), pod(ns, "memory"))
    for name in ("time", "memory"):
        cluster.until(f"{name} waits", 60, lambda name=name: waits(cluster, ns, name, "cannot allocate all claims"))
    assert product.phases(ns) == {"seven": "Running", "time": "Pending", "memory": "Pending"}
    # A second pod with the same claim.
    cluster.create(ns, pod(ns, "second", claims=["seven"]))
    cluster.until("the policy's refusal", 60, lambda: waits(cluster, ns, "second", "belongs to one pod"))
    # The extender's pods find no slots on the node.
    product.create(ns, product.tenant("annotated", quota=0.1, memory="64Mi"))
    cluster.until("no slots", 60, lambda: waits(cluster, ns, "annotated", "Insufficient sluice.dev/gpu"))
    cluster.delete("pod", "annotated", ns)
    cluster.delete("pod", "second", ns)
    cluster.delete("pod", "seven", ns)
    cluster.delete("resourceclaim", "seven", ns)
    cluster.wait("pod/time", "condition=Ready", ns, seconds=90)
    assert client(cluster, ns, "time")["quota_ppm"] == 301_000


def configuration_with_mistakes_is_refused_or_starts_no_container(cluster, ns: str) -> None:
    # All at once, when the claim is written.
    wrong = claim("wrong", 300, "1Gi", limit="0.2", speed="high", priority="top")
    template = {"metadata": wrong["metadata"], "kind": "ResourceClaimTemplate", "apiVersion": wrong["apiVersion"], "spec": {"spec": wrong["spec"]}}
    for one in (wrong, template):
        message = claims.refusal(ns, one)
        for part in ("config.speed: no such key", 'config.limit: "0.2" is not allowed', 'config.priority: "top" is not allowed'):
            assert part in message, message
    config = {"opaque": {"driver": claims.DRIVER, "parameters": {"apiVersion": "gpu.sluice.dev/v1alpha1", "kind": "ShareConfig", "limit": "0.2"}}}
    of_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "limited"}}
    selectors = [{"cel": {"expression": f"device.driver == '{claims.DRIVER}'"}}]
    try:
        cluster.apply(of_class | {"spec": {"selectors": selectors, "config": [config]}})
        config["opaque"]["parameters"]["limit"] = "2"
        message = claims.refusal(None, of_class | {"metadata": {"name": "wrong"}, "spec": {"selectors": selectors, "config": [config]}})
        assert 'config.limit: "2" is not allowed' in message, message
        # What only claim and class together have wrong shows when the pod starts.
        of_both = claim("both", 300, "1Gi")
        of_both["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "limited"
        cluster.create(ns, of_both, pod(ns, "both"))
        cluster.until("the agent's refusal", 60, lambda: waits(cluster, ns, "both", "config.limit"))
        assert product.phases(ns) == {"both": "Pending"}
        assert "both" not in product.clients_of(ns)
    finally:
        cluster.delete("deviceclass", "limited")
