"""Claims of several GPUs, several containers and latency-critical pods, GPUs that fail, and a node that starts again."""

import contextlib
import datetime
import os
import signal
import subprocess

from lib import api, claims, devices, images, product
from lib.claims import claim, pod
from lib.devices import GPUS
from lib.gangs import clients_of_gpus
from lib.processes import running
from lib.settings import BIN, CONTAINERD, REPOSITORY, environment

SECONDS = 600
# Each device of the simulated driver names its own socket only. NVIDIA's driver finds the devices that are there.
ON_BOTH = (
    "all=(/run/sluice-sim/*.sock); IFS=,; export SLUICE_SIM_SOCKET=\"${all[*]}\"; "
    "sluice load be --device 0 --duration-us 5000 --seconds 100000 & exec sluice load be --device 1 --duration-us 5000 --seconds 100000"
)


def test_claims_of_two_gpus_of_several_containers_and_of_latency_critical_pods(cluster):
    claims.need_consumable_capacity()
    with claims.installed():
        with cluster.namespace() as ns:
            two_gpus_of_one_request(cluster, ns)
        with cluster.namespace() as ns:
            two_containers_with_one_claim_and_with_two(cluster, ns)
        with cluster.namespace() as ns:
            latency_critical_claims_spread(cluster, ns)


def two_gpus_of_one_request(cluster, ns: str) -> None:
    pair = claim("pair", 250, "8Gi")
    pair["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    pair["spec"]["devices"]["constraints"] = [
        {"matchAttribute": f"{claims.DRIVER}/nvlinkDomain"}, {"distinctAttribute": f"{claims.DRIVER}/uuid"}
    ]
    both = pod(ns, "pair")
    both["spec"]["containers"][0]["command"] = ["/usr/bin/bash", "-c", ON_BOTH]
    # More than the half that a GPU has left otherwise.
    cluster.create(ns, pair, both, *(claim(f"rest-{at}", 750, "8Gi", gpu) for at, gpu in enumerate(GPUS)), *(pod(ns, f"rest-{at}") for at in (0, 1)))
    product.all_running(ns, 120)
    cluster.until("a client on each GPU", 60, lambda: set(clients_of_gpus(ns, "pair")) == set(GPUS))
    limits = {gpu: (row["quota_ppm"], row["memory_bytes"]) for gpu, row in clients_of_gpus(ns, "pair").items()}
    assert limits == dict.fromkeys(GPUS, (250_000, 8 << 30)), limits
    cluster.until("processes on both", 60, lambda: all(row["processes"] for row in clients_of_gpus(ns, "pair").values()))
    seen = product.shares(15)
    for gpu in GPUS:
        part = seen[gpu][f"{ns}/pair"] / sum(seen[gpu].values())
        cluster.record(f"pair_{gpu[-1]}", f"asked 0.25, got {part:.4f}")
        assert abs(part - 0.25) <= 0.04, (gpu, seen[gpu])


def containers(ns: str, name: str, uses: dict[str, str]) -> dict:
    """A pod with one container for each claim of `uses`, a claim by the container's name."""
    made = pod(ns, name, claims=sorted(set(uses.values())))
    (main,) = made["spec"]["containers"]
    of = lambda label: [{"name": "SLUICE_SIM_LABEL", "value": f"{ns}/{name}/{label}"}]
    made["spec"]["containers"] = [main | {"name": at, "env": of(at), "resources": {"claims": [{"name": used}]}} for at, used in uses.items()]
    return made


def two_containers_with_one_claim_and_with_two(cluster, ns: str) -> None:
    cluster.create(ns, claim("shared", 300, "2Gi", GPUS[0]), containers(ns, "one", {"a": "shared", "b": "shared"}))
    cluster.create(ns, claim("first", 200, "1Gi", GPUS[0]), claim("second", 400, "3Gi", GPUS[1]), containers(ns, "two", {"a": "first", "b": "second"}))
    product.all_running(ns, 120)
    cluster.until("both containers of one", 60, lambda: len(clients_of_gpus(ns, "one").get(GPUS[0], {}).get("processes", [])) == 2)
    # Both containers are one client, with what the claim has.
    assert {gpu: (row["quota_ppm"], row["memory_bytes"]) for gpu, row in clients_of_gpus(ns, "one").items()} == {GPUS[0]: (300_000, 2 << 30)}
    cluster.until("a process on each GPU of two", 60, lambda: [len(row["processes"]) for row in clients_of_gpus(ns, "two").values()] == [1, 1])
    assert {gpu: (row["quota_ppm"], row["memory_bytes"]) for gpu, row in clients_of_gpus(ns, "two").items()} == {
        GPUS[0]: (200_000, 1 << 30), GPUS[1]: (400_000, 3 << 30)
    }
    # A container has the GPU of its own claim only.
    for container, gpu in (("a", GPUS[0]), ("b", GPUS[1])):
        assert cluster.exec(ns, "two", "sh", "-c", "echo /run/sluice-sim/*", container=container).strip() == f"/run/sluice-sim/{gpu}.sock"


def latency_critical_claims_spread(cluster, ns: str) -> None:
    critical = {"critical": True, "priority": "latency-critical"}
    cluster.create(ns, claim("first", 100, "1Gi", **critical), pod(ns, "first"), claim("second", 100, "1Gi", **critical), pod(ns, "second"))
    product.all_running(ns, 120)
    used = {claims.consumed(ns, name)["device"] for name in ("first", "second")}
    assert used == {gpu.lower() for gpu in GPUS}, used
    third = claim("third", 100, "1Gi", **critical)
    # A GPU of its own where one is free, and any otherwise.
    either = claim("either", 100, "1Gi", **critical)
    exactly = either["spec"]["devices"]["requests"][0].pop("exactly")
    any_gpu = {"deviceClassName": claims.DRIVER, "capacity": {"requests": {"milli": "100", "memory": "1Gi"}}}
    either["spec"]["devices"]["requests"][0]["firstAvailable"] = [{"name": "alone"} | exactly, {"name": "beside"} | any_gpu]
    cluster.create(ns, third, pod(ns, "third"), either, pod(ns, "either"), claim("plain", 100, "1Gi"), pod(ns, "plain"))
    for name in ("either", "plain"):
        cluster.wait(f"pod/{name}", "condition=Ready", ns, seconds=90)
    assert claims.consumed(ns, "either")["request"] == "gpu/beside"
    cluster.until("the third waits", 60, lambda: any("cannot allocate all claims" in event["message"] for event in cluster.events(ns, "third")))
    cluster.delete("pod", "first", ns)
    cluster.delete("resourceclaim", "first", ns)
    cluster.wait("pod/third", "condition=Ready", ns, seconds=90)


def tolerating(one: dict, seconds: int | None) -> dict:
    """The claim with a toleration of a lost GPU."""
    toleration = {"key": f"{claims.DRIVER}/lost", "operator": "Exists", "effect": "NoExecute"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    one["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [toleration]
    return one


def test_lost_gpu_evicts_its_pods_after_the_seconds_that_their_claims_tolerate(cluster):
    claims.need_consumable_capacity()
    tolerated = 30
    with claims.installed(nodeAgent={"lostGpuPolicy": "evict", "lostGpuGraceSeconds": 5}), cluster.namespace() as ns:
        cluster.create(
            ns, claim("now", 100, "64Mi", GPUS[0]), tolerating(claim("later", 100, "64Mi", GPUS[0]), tolerated),
            tolerating(claim("ever", 100, "64Mi", GPUS[0]), None), claim("other", 100, "64Mi", GPUS[1]),
        )
        idle = ["load", "be", "--idle-after", "0", "--seconds", "100000"]
        cluster.create(ns, *(pod(ns, name, *idle) for name in ("now", "later", "ever", "other")))
        product.all_running(ns, 120)
        cluster.sim("xid", devices.socket(GPUS[0]), "48")
        try:
            cluster.until("the taint", 60, lambda: f"{claims.DRIVER}/lost" in claims.taints(GPUS[0]))
            began = datetime.datetime.fromisoformat(claims.taints(GPUS[0])[f"{claims.DRIVER}/lost"]["timeAdded"])
            cluster.until("the pod without a toleration is gone", 60, lambda: "now" not in product.phases(ns))
            cluster.create(ns, claim("new", 100, "64Mi", GPUS[0]), pod(ns, "new", *idle))
            if (passed := since(began)) < tolerated - 5:
                assert product.phases(ns)["later"] == "Running", product.phases(ns)
            cluster.until("the pod with seconds is gone", 120, lambda: "later" not in product.phases(ns))
            cluster.record("gone_after_s", {"now": round(passed, 1), "later": round(since(began), 1)})
            assert since(began) >= tolerated - 1
            assert {name: product.phases(ns)[name] for name in ("ever", "other", "new")} == {"ever": "Running", "other": "Running", "new": "Pending"}
        finally:
            cluster.sim("heal", devices.socket(GPUS[0]))
        cluster.until("no taint", 90, lambda: not claims.taints(GPUS[0]))
        cluster.wait("pod/new", "condition=Ready", ns, seconds=90)
        # The agent evicts none of them itself: it does not know what a claim tolerates.
        assert not [event for event in cluster.events(ns) if event["reason"] == "EvictedForLostGpu"]


def since(began: datetime.datetime) -> float:
    return (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds()


def test_managers_and_the_node_start_again(cluster):
    claims.need_consumable_capacity()
    asked = {"three": 300, "seven": 700}
    with claims.installed(), cluster.namespace() as ns:
        pods = [pod(ns, name) for name in asked]
        for one in pods:
            one["spec"]["restartPolicy"] = "Always"
        cluster.create(ns, *(claim(name, milli, "1Gi", GPUS[1], limit="1") for name, milli in asked.items()), *pods)
        product.all_running(ns, 120)
        have_clients(cluster, ns, asked)
        before = identities(ns)

        managers = running("pod-manager")
        assert len(managers) == len(GPUS), managers
        for pid in managers:
            os.kill(pid, signal.SIGKILL)
        cluster.until("new managers", 30, lambda: len(set(running("pod-manager")) - set(managers)) == len(GPUS))
        have_clients(cluster, ns, asked)
        shares(cluster, ns, asked, "managers_killed")
        assert identities(ns) == before

        reboot(cluster)
        cluster.until("all containers again", 180, lambda: restarted(ns, before))
        have_clients(cluster, ns, asked)
        shares(cluster, ns, asked, "node_started_again")


def test_upgrade_and_rollback_leave_pods_with_claims_alone(cluster):
    claims.need_consumable_capacity()
    asked = {"three": 300, "seven": 700}
    with claims.installed(), cluster.namespace() as ns:
        cluster.create(ns, *(claim(name, milli, "1Gi", GPUS[1], limit="1") for name, milli in asked.items()), *(pod(ns, name) for name in asked))
        product.all_running(ns, 120)
        have_clients(cluster, ns, asked)
        before = identities(ns)
        for when, tag in (("upgraded", images.PRODUCT_NEXT.rpartition(":")[2]), ("rolled_back", "test")):
            old = product.agent()["metadata"]["uid"]
            product.upgrade(REPOSITORY / "charts/sluice", product.merged(product.VALUES, {"dra": {"enabled": True}, "image": {"tag": tag}}))
            cluster.until("another agent", 90, lambda: [one for one in product.pods_of("node-agent") if one["metadata"]["uid"] != old])
            have_clients(cluster, ns, asked)
            cluster.until("the devices", 60, lambda: len(claims.published()) == len(GPUS))
            assert identities(ns) == before
            shares(cluster, ns, asked, when)
            # A claim of each version beside the older ones.
            new = when.replace("_", "-")
            cluster.create(ns, claim(new, 0, "64Mi", GPUS[1]), pod(ns, new, "load", "be", "--idle-after", "0", "--seconds", "100000"))
            cluster.wait(f"pod/{new}", "condition=Ready", ns, seconds=90)
            cluster.delete("pod", new, ns)
        assert identities(ns) == before


def test_annotated_pods_of_a_listed_namespace_get_a_generated_claim(cluster):
    claims.need_consumable_capacity()
    with claims.installed(), cluster.namespace() as ns:
        product.upgrade(REPOSITORY / "charts/sluice", product.merged(product.VALUES, {"dra": {"enabled": True, "translateIn": [ns]}}))
        ending = lambda: [one for one in product.pods_of("webhook") if "deletionTimestamp" in one["metadata"]]
        cluster.until("the former webhooks are gone", 60, lambda: not ending())
        idle = ["load", "be", "--idle-after", "0", "--seconds", "100000"]
        made = [product.tenant(name, *idle, quota=0.3, memory="2Gi", limit=0.8, gpu_uuid=GPUS[1]) for name in ("a", "b")]
        made.append(product.tenant("critical", *idle, quota=0.1, memory="1Gi", priority="latency-critical", slo="5ms", gpu_uuid=GPUS[1]))
        product.create(ns, *made)
        product.all_running(ns, 120)
        cluster.until("the clients", 60, lambda: set(product.clients_of(ns)) == {"a", "b", "critical"})
        limits = {name: (one["gpu"], one["quota_ppm"], one["limit_ppm"], one["memory_bytes"], one["class"]) for name, one in product.clients_of(ns).items()}
        of_both = (GPUS[1], 300_000, 800_000, 2 << 30, "best-effort")
        assert limits == {"a": of_both, "b": of_both, "critical": (GPUS[1], 100_000, 1_000_000, 1 << 30, "latency-critical")}, limits
        for one in product.pods(ns):
            at = one["metadata"]
            assert not [key for key in at["annotations"] if key.startswith("sluice.dev/")] and one["spec"]["schedulerName"] == "default-scheduler", one
        # What no claim can ask for is refused, and a namespace that is not listed keeps its annotations.
        message = claims.refusal(ns, product.tenant("wrong", *idle, quota=0.3))
        assert "sluice.dev/memory is missing: a claim states its memory" in message, message
        try:
            product.create("default", product.tenant("waits", *idle, quota=0.1, memory="64Mi"))
            cluster.until("no slots", 60, lambda: any("Insufficient sluice.dev/gpu" in event["message"] for event in cluster.events("default", "waits")))
        finally:
            cluster.delete("pod", "waits", "default")
        # Pods with equal annotations share a template, which goes with the pod that owns it. Claims go with their pods.
        assert len(cluster.get("resourceclaimtemplates", namespace=ns)["items"]) == 2
        cluster.kubectl("delete", "pods", "--all", "-n", ns, "--timeout=60s")
        cluster.until("templates and claims are gone", 60, lambda: not cluster.get("resourceclaimtemplates,resourceclaims", namespace=ns)["items"])


def have_clients(cluster, ns: str, asked: dict[str, int]) -> None:
    wanted = {name: (GPUS[1], milli * 1000, 1 << 30) for name, milli in asked.items()}

    def there() -> bool:
        found = product.clients_of(ns)
        limits = {name: (one["gpu"], one["quota_ppm"], one["memory_bytes"]) for name, one in found.items()}
        return limits == wanted and all(one["processes"] for one in found.values())

    cluster.until("both clients with their limits", 90, there)


def shares(cluster, ns: str, asked: dict[str, int], when: str) -> None:
    seen = product.shares(15, [GPUS[1]])[GPUS[1]]
    for name, milli in asked.items():
        got = seen.get(f"{ns}/{name}", 0.0) / sum(seen.values())
        cluster.record(f"{when}_{name}", f"asked {milli / 1000:.2f}, got {got:.4f}")
        assert abs(got - milli / 1000) <= 0.04, (when, seen)


def identities(ns: str) -> dict[str, tuple]:
    found = {}
    for one in product.pods(ns):
        status = one["status"]["containerStatuses"][0]
        found[one["metadata"]["name"]] = (one["metadata"]["uid"], status.get("containerID"), status["ready"])
    return found


def restarted(ns: str, before: dict[str, tuple]) -> bool:
    """The same pods with other containers."""
    now = identities(ns)
    return all(now[name][0] == uid and now[name][1] not in (None, container) and now[name][2] for name, (uid, container, _) in before.items())


def reboot(cluster) -> None:
    """What a reboot does to a node: every container ends, and /run is empty. The simulated GPUs, which are processes here, go on."""
    cluster.kubelet.stop()
    words = [BIN / "ctr", "--address", CONTAINERD, "-n", "k8s.io", "tasks"]
    run = lambda *more: subprocess.run([*words, *more], capture_output=True, text=True, env=environment(), check=False).stdout
    for task in run("ls", "-q").split():
        run("kill", "-s", "KILL", task)
    cluster.until("no container", 60, lambda: not [line for line in run("ls").splitlines()[1:] if "RUNNING" in line])
    cluster.containerd.stop()
    claims.LIBRARY.unlink(missing_ok=True)
    for folder in ("/run/sluice", f"/var/lib/kubelet/plugins/{claims.DRIVER}"):
        with contextlib.suppress(OSError):
            for file in os.scandir(folder):
                if not file.is_dir():
                    os.unlink(file.path)
    cluster.restart(cluster.containerd)


    def kubelet_answers() -> bool:
        # It ends while containerd has not initialized its CRI, and systemd starts it again on a node.
        cluster.kubelet.start()
        return api.answers(f"/api/v1/nodes/{cluster.node}/proxy/healthz")

    cluster.until("kubelet", 60, kubelet_answers, every=1)
    cluster.until("the node is ready", 90, lambda: "Ready" in cluster.kubectl("get", "nodes", "--no-headers").split())
