"""A component is killed or restarted: pods keep their GPU, their limits and their work; nothing is lost or assigned twice."""

import contextlib
import os
import signal
import time

from lib import api, product
from lib.devices import GPUS
from lib.processes import running

SECONDS = 300
CORE = {
    "node_agent_restart",
    "pod_manager_killed",
}
QUOTAS = {"a": 0.3, "b": 0.7, "c": 0.4, "d": 0.6}
# Whatever the order in which they are scheduled, each GPU is filled exactly.
PLACES = {"a": GPUS[0], "b": GPUS[0], "c": GPUS[1], "d": GPUS[1]}


@contextlib.contextmanager
def working(cluster):
    """Four pods that fill both GPUs, at work; afterwards all of them are as they were."""
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, *(product.tenant(name, quota=quota, memory="1Gi", gpu_uuid=PLACES[name]) for name, quota in QUOTAS.items()))
        product.all_running(ns)
        cluster.until("clients at the managers", 60, lambda: limits(ns).keys() == QUOTAS.keys())
        works(cluster, ns)
        before = identity(ns), product.assigned(ns), limits(ns)
        yield ns
        works(cluster, ns)
        cluster.until("clients at the managers", 60, lambda: limits(ns).keys() == QUOTAS.keys())
        after = identity(ns), product.assigned(ns), limits(ns)
        assert after == before, f"\nbefore {before}\nafter  {after}"
        shares(cluster, ns, before[1])


def limits(ns: str) -> dict[str, tuple]:
    with contextlib.suppress(OSError, ValueError):
        return {pod: (c["gpu"], c["quota_ppm"], c["limit_ppm"], c["memory_bytes"]) for (at, pod), c in product.clients().items() if at == ns}
    return {}


def identity(ns: str) -> dict[str, tuple]:
    """A pod that was replaced or whose container was restarted is another."""
    statuses = {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]) for pod in product.pods(ns)}
    return {name: (uid, status["containerID"], status["restartCount"]) for name, (uid, status) in statuses.items()}


def kernels(ns: str) -> dict[str, int]:
    rows = [product.counted(gpu)[1] for gpu in GPUS]
    return {pod: sum(row[f"{ns}/{pod}"].kernels for row in rows if f"{ns}/{pod}" in row) for pod in QUOTAS}


def works(cluster, ns: str) -> None:
    """Each pod's kernels end on the GPU, by the simulators' own count."""
    began = kernels(ns)
    cluster.until("kernels of every pod", 60, lambda: all(now > began[pod] for pod, now in kernels(ns).items()))


def hardware_scheduled() -> dict[str, int]:
    """For each GPU the processes that give way by the GPU's controls; none while the agent does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return {s.labels["gpu"]: int(s.value) for s in product.metrics() if s.name == "sluice_level" and s.labels["level"] == "turn"}
    return {}


def shares(cluster, ns: str, where: dict[str, str]) -> None:
    # A manager that has started anew schedules processes by token until it has checked their announcements.
    cluster.until("all processes at the level turn", 60, lambda: hardware_scheduled() == dict.fromkeys(GPUS, 2))
    seen = product.shares(10)
    for pod, gpu in where.items():
        busy = sum(seen[gpu].values())
        got = seen[gpu][f"{ns}/{pod}"] / busy
        assert abs(got - QUOTAS[pod]) <= 0.03, f"{pod} was promised {QUOTAS[pod]} of {gpu}, gets {got:.3f} of {seen[gpu]}"


def arrives(cluster, ns: str, pod: str) -> None:
    """A pod that was created in the disturbance gets a GPU, its library and its limits; then it goes again.

    It has no quota: the GPUs are full, so it is not asked to get any time.
    """
    cluster.wait(f"pod/{pod}", "condition=Ready", ns, seconds=120)
    gpu = product.assigned(ns)[pod]
    cluster.until(f"{pod} at its manager", 60, lambda: pod in limits(ns))
    cluster.until(f"{pod} on its GPU", 60, lambda: f"{ns}/{pod}" in product.counted(gpu)[1])
    assert limits(ns)[pod] == (gpu, 0, 1_000_000, 64 << 20)
    cluster.delete("pod", pod, ns)


def test_kubelet_restart(cluster):
    with working(cluster) as ns:
        cluster.restart(cluster.kubelet)
        cluster.until("device slots again", 60, lambda: product.allocatable() > 0)
        product.create(ns, product.idle("later", memory="64Mi"))
        arrives(cluster, ns, "later")


def test_node_agent_restart(cluster):
    with working(cluster) as ns:
        old = product.agent()
        began = time.monotonic()
        api.request("DELETE", f"/api/v1/namespaces/{product.NAMESPACE}/pods/{old['metadata']['name']}")
        cluster.until("another agent", 60, lambda: product.agent_is_another(old))
        cluster.record("new_agent_ready_s", round(time.monotonic() - began, 2))


def test_pod_manager_killed(cluster):
    with working(cluster):
        managers = running("pod-manager")
        assert len(managers) == len(GPUS), managers
        for pid in managers:
            os.kill(pid, signal.SIGKILL)
        cluster.until("new managers", 30, lambda: len(set(running("pod-manager")) - set(managers)) == len(GPUS))


def test_scheduler_restart_in_mid_burst(cluster):
    with working(cluster):
        pass
    with cluster.namespace() as ns:
        # 24 pods of 0.150: 6 fit on each GPU (0.900), 12 must wait, whichever scheduler decides.
        for number in range(24):
            product.create(ns, product.tenant(f"p{number}", "load", "be", "--idle-after", "0", "--seconds", "100000", quota=0.15, memory="64Mi"))
            if number in (6, 14):
                for pod in product.pods_of("scheduler"):
                    api.request("DELETE", f"/api/v1/namespaces/{product.NAMESPACE}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
        cluster.until("twelve pods assigned", 120, lambda: len(product.assigned(ns)) == 12)
        cluster.until("the others wait", 60, lambda: sum(unschedulable(pod) for pod in product.pods(ns)) == 12)
        nothing_twice(ns, 150)
        # One goes, one comes.
        gone = next(iter(product.assigned(ns)))
        cluster.delete("pod", gone, ns)
        cluster.until("the next one got its place", 60, lambda: len(product.assigned(ns)) == 12)
        nothing_twice(ns, 150)


def unschedulable(pod: dict) -> bool:
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"].get("conditions", []))


def nothing_twice(ns: str, milli: int) -> None:
    for gpu in GPUS:
        count = sum(at == gpu for at in product.assigned(ns).values())
        assert count * milli <= 1000, f"{gpu} has {count} pods of 0.{milli}"


def test_webhook_restart(cluster):
    with working(cluster) as ns:
        for pod in product.pods_of("webhook"):
            api.request("DELETE", f"/api/v1/namespaces/{product.NAMESPACE}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
        # Closed for our pods until it is back, open for all others at once.
        plain = cluster.pod("plain", "sleep", "1000")
        api.request("POST", f"/api/v1/namespaces/{ns}/pods", plain)

        def admitted() -> bool:
            try:
                api.request("POST", f"/api/v1/namespaces/{ns}/pods", product.idle("late", memory="64Mi"))
            except OSError:
                return False
            return True

        cluster.until("the webhook admits again", 60, admitted)
        arrives(cluster, ns, "late")
        cluster.delete("pod", "plain", ns)


def test_api_server_away_for_30_seconds(cluster):
    with working(cluster) as ns:
        before = kernels(ns)
        cluster.apiserver.stop(signal.SIGKILL)
        try:
            began = product.counted(GPUS[0])[0]
            # 30 s are measured by the GPU's clock.
            cluster.until("30 s of the GPU's time", 120, lambda: product.counted(GPUS[0])[0] - began > 30e9)
            during = kernels(ns)
        finally:
            cluster.restart(cluster.apiserver)
        assert all(during[pod] - before[pod] > 100 for pod in QUOTAS), (before, during)
        cluster.until("the node is Ready", 120, lambda: "Ready" in cluster.kubectl("get", "nodes", "--no-headers").split())
        product.create(ns, product.idle("after", memory="64Mi"))
        arrives(cluster, ns, "after")
