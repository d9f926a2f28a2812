"""Jobs on several GPUs: their ranks run at the same time, in one pod, in several containers of a pod, and in the pods of a JobSet, a
LeaderWorkerSet, a TrainJob or a RayCluster that Kueue admits.

JobSet and LeaderWorkerSet have their real controllers. TrainJob and RayCluster have stand-ins: the objects that their controllers make."""

import contextlib
import json
import os
import signal

from lib import images, job_controllers, kueue, product
from lib.devices import GPUS
from lib.gangs import clients_of_gpus, together
from lib.processes import running

SECONDS = 900
ON_BOTH = "sluice load be --device 0 --duration-us 5000 --seconds 100000 & exec sluice load be --device 1 --duration-us 5000 --seconds 100000"
# Independent phases coincide for about the share of the gang.
TOGETHER = 0.85


def ranks(name: str, **keys: object) -> dict:
    """A pod with a process on each of two GPUs."""
    return product.program(name, "/usr/bin/bash", "-c", ON_BOTH, gpus=2, **keys)


def hardware_scheduled() -> dict[str, int]:
    """For each GPU the processes that are scheduled by quanta; none while the agent does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return {s.labels["gpu"]: int(s.value) for s in product.metrics() if s.name == "sluice_level" and s.labels["level"] == "turn"}
    return {}


def run_together(cluster, ns: str, pods: dict[str, list[str]], when: str) -> None:
    """The processes of each gang, by the names of its pods, run on both GPUs at the same time. On each GPU two pods share the time."""
    cluster.until("all processes at the level turn", 90, lambda: hardware_scheduled() == dict.fromkeys(GPUS, 2))
    for gang, names in pods.items():
        # The managers tell each other their clients within half a second.
        parts = []
        cluster.until(f"{gang} on both GPUs at once {when}", 60, lambda: parts.append(together(ns, names)) or parts[-1] >= TOGETHER)
        cluster.record(f"{when}_{gang}_together", [round(part, 3) for part in parts])


def have_shares(cluster, ns: str, asked: dict[str, float], when: str) -> None:
    seen = product.shares(10)
    for gpu in GPUS:
        of_gpu = {name: seen[gpu][f"{ns}/{name}"] for name in asked if f"{ns}/{name}" in seen[gpu]}
        for name, got in of_gpu.items():
            part = got / sum(of_gpu.values())
            cluster.record(f"{when}_{name}_{gpu[-1]}", round(part, 3))
            assert abs(part - asked[name]) <= 0.04, f"{when}: {name} asked {asked[name]} of {gpu}, got {part:.3f} of {seen[gpu]}"


def identities(ns: str) -> dict[str, tuple]:
    """A pod that was replaced, restarted or moved is another."""
    found = {}
    for pod in product.pods(ns):
        status, at = pod["status"]["containerStatuses"][0], pod["metadata"]
        found[at["name"]] = (at["uid"], status["containerID"], status["restartCount"], at["annotations"].get(product.ASSIGNED))
    return found


def test_ranks_of_a_pod_run_at_the_same_time_also_after_restarts_and_an_upgrade(cluster):
    product.need()
    asked = {"a": 0.3, "b": 0.7}
    gangs = {name: [name] for name in asked}
    with cluster.namespace() as ns:
        product.create(ns, *(ranks(name, quota=quota, memory="1Gi") for name, quota in asked.items()))
        product.all_running(ns)
        run_together(cluster, ns, gangs, "started")
        have_shares(cluster, ns, asked, "started")
        for name, quota in asked.items():
            limits = {gpu: (row["quota_ppm"], row["limit_ppm"], row["memory_bytes"]) for gpu, row in clients_of_gpus(ns, name).items()}
            # Quota, limit and memory are those of each GPU.
            assert limits == dict.fromkeys(GPUS, (round(quota * 1_000_000), 1_000_000, product.GI)), limits
        before = identities(ns)

        old = product.agent()
        cluster.delete("pod", old["metadata"]["name"], product.NAMESPACE)
        cluster.until("another agent", 90, lambda: is_ready_beside(old))
        run_together(cluster, ns, gangs, "agent_restarted")

        managers = running("pod-manager")
        assert len(managers) == len(GPUS), managers
        os.kill(managers[0], signal.SIGKILL)
        cluster.until("another manager", 60, lambda: len(set(running("pod-manager")) - {managers[0]}) == len(GPUS))
        run_together(cluster, ns, gangs, "manager_killed")

        old = product.agent()
        product.install(logLevel="debug")
        cluster.until("another agent", 120, lambda: is_ready_beside(old))
        run_together(cluster, ns, gangs, "upgraded")
        have_shares(cluster, ns, asked, "upgraded")
        assert identities(ns) == before
        product.install()


def is_ready_beside(old: dict) -> bool:
    pods = [pod for pod in product.pods_of("node-agent") if pod["metadata"]["uid"] != old["metadata"]["uid"]]
    return any(one["type"] == "Ready" and one["status"] == "True" for pod in pods for one in pod["status"].get("conditions", []))


def rank_container(name: str, device: int, memory: str) -> dict:
    """A container that ends when a file is there, and computes until then."""
    load = f"sluice load be --device {device} --memory {memory} --duration-us 5000 --seconds 100000"
    words = f"{load} & until [ -e /tmp/end ]; do sleep 0.1; done; kill $!"
    return {"name": name, "image": images.TOOLS, "imagePullPolicy": "Never", "command": ["/usr/bin/bash", "-c", words]}


def test_several_containers_are_one_client_and_one_of_them_restarts_alone(cluster):
    product.need()
    with cluster.namespace() as ns:
        pod = ranks("pair", quota=0.3, memory="1Gi", container="first,second")
        side = {"name": "side", "image": images.TOOLS, "imagePullPolicy": "Never", "command": ["/usr/bin/sleep", "100000"]}
        pod["spec"] |= {"containers": [rank_container("first", 0, "600Mi"), side, rank_container("second", 1, "0")], "restartPolicy": "Always"}
        product.create(ns, pod, ranks("other", quota=0.7, memory="1Gi"))
        product.all_running(ns)
        run_together(cluster, ns, {"pair": ["pair"], "other": ["other"]}, "started")

        containers = {one["name"]: one.get("resources", {}).get("limits", {}) for one in cluster.get("pod", "pair", ns)["spec"]["containers"]}
        # A slot of each GPU for each container, and the pod's amounts once.
        assert [containers[name].get(product.RESOURCE) for name in ("first", "side", "second")] == ["2", None, "2"], containers
        assert [name for name, limits in containers.items() if "sluice.dev/milli" in limits] == ["first"], containers
        assert "libsluice" not in cluster.exec(ns, "pair", "cat", "/proc/self/maps", container="side")
        rows = clients_of_gpus(ns, "pair")
        # Both containers' processes belong to the one client of the pod, each on its GPU.
        containers_of = {gpu: [process["container"] for process in row["processes"]] for gpu, row in rows.items()}
        assert containers_of == dict(zip(GPUS, (["first"], ["second"]))), rows
        # One limit: what the first container holds of a GPU is missing for the second one there.
        hold = ["sluice", "load", "be", "--device", "0", "--count", "1", "--memory"]
        denied = {size: last_record(cluster.exec(ns, "pair", *hold, size, container="second"))["denied"] for size in ("300Mi", "600Mi")}
        assert denied == {"300Mi": 0, "600Mi": 1}, denied

        before = statuses(cluster, ns)
        cluster.exec(ns, "pair", "touch", "/tmp/end", container="second")
        cluster.until("the second container started again", 60, lambda: statuses(cluster, ns)["second"][1] == 1)
        after = statuses(cluster, ns)
        assert (after["first"], after["side"]) == (before["first"], before["side"]), (before, after)
        run_together(cluster, ns, {"pair": ["pair"], "other": ["other"]}, "restarted")
        have_shares(cluster, ns, {"pair": 0.3, "other": 0.7}, "restarted")


def last_record(text: str) -> dict:
    """The final record of a load."""
    return json.loads(text.strip().splitlines()[-1])


def statuses(cluster, ns: str) -> dict[str, tuple]:
    return {one["name"]: (one["containerID"], one["restartCount"]) for one in cluster.get("pod", "pair", ns)["status"]["containerStatuses"]}


QUEUED = {"sluice.test/queued": "true"}
IN_QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}
RANK = {"sluice.dev/milli": "300", "sluice.dev/memory-mib": "1024"}


JOBS = "jobsets.jobset.x-k8s.io,leaderworkersets.leaderworkerset.x-k8s.io"


@contextlib.contextmanager
def queued(cluster):
    """A namespace whose jobs Kueue admits, if they fit into the time of three ranks. A job whose pods are not ready in time is suspended."""
    product.need()
    wait = {"timeout": "45s", "requeuingStrategy": {"backoffBaseSeconds": 2, "backoffLimitCount": 20}}
    frameworks = ["batch/job", "pod", "jobset.x-k8s.io/jobset", "leaderworkerset.x-k8s.io/leaderworkerset"]
    # Kueue looks for their kinds when it starts.
    with job_controllers.installed():
        kueue.install(integrations={"frameworks": frameworks}, managedJobsNamespaceSelector={"matchLabels": QUEUED}, waitForPodsReady=wait)
        try:
            with cluster.namespace(**QUEUED) as ns:
                cluster.create(ns, *queue())
                try:
                    yield ns
                finally:
                    cluster.kubectl("delete", JOBS, "--all", "-n", ns, "--timeout=60s")
                    cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "--all", "-n", ns, "--timeout=60s")
        finally:
            kueue.uninstall()


def queue() -> list[dict]:
    version = "kueue.x-k8s.io/v1beta2"
    quotas = {"sluice.dev/gpu": 10, "sluice.dev/milli": 3 * 300, "sluice.dev/memory-mib": 1 << 20}
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {"coveredResources": list(quotas), "flavors": [{"name": "sluice", "resources": resources}]}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "sluice"}},
        {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "shared-gpus"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
        {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "gpus"}, "spec": {"clusterQueue": "shared-gpus"}},
    ]


def rank_template(gang: str, restart: str) -> dict:
    """The template of a pod for one rank."""
    pod = product.tenant("rank", gang=gang)
    pod["spec"]["containers"][0]["resources"] = {"limits": RANK}
    pod["spec"]["restartPolicy"] = restart
    return {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}


def job_set(name: str) -> list[dict]:
    """A JobSet of two ranks, in a pod each."""
    job = {"backoffLimit": 0, "completions": 1, "parallelism": 1, "template": rank_template(name, "Never")}
    spec = {"replicatedJobs": [{"name": "ranks", "replicas": 2, "template": {"spec": job}}]}
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name, "labels": IN_QUEUE}, "spec": spec}]


def leader_worker_set(name: str) -> list[dict]:
    """A LeaderWorkerSet of one group of two pods."""
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": rank_template(name, "Always")}}
    return [{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": name, "labels": IN_QUEUE}, "spec": spec}]


def train_job(name: str) -> list[dict]:
    """Stand-in of a TrainJob of two nodes: the JobSet that Kubeflow's trainer makes of it, with one indexed Job and a pod for each node."""
    template = rank_template(name, "Never")
    template["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"backoffLimit": 0, "completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template}
    (made,) = job_set(name)
    made["spec"]["replicatedJobs"] = [{"name": "node", "replicas": 1, "template": {"spec": job}}]
    return [made]


def ray_cluster(name: str) -> list[dict]:
    """Stand-in of a RayCluster with a worker group of two: the pods that KubeRay makes of it, without their owner. Kueue admits them as a
    group of pods. The head needs no GPU."""
    ray = {"ray.io/cluster": name, "ray.io/is-ray-node": "yes", "kueue.x-k8s.io/pod-group-name": name} | IN_QUEUE
    head = product.program(f"{name}-head", "/usr/bin/sleep", "100000")
    workers = [product.tenant(f"{name}-workers-worker-{number}", gang=name) for number in range(2)]
    for pod, kind, group in [(head, "head", "headgroup"), *((worker, "worker", "workers") for worker in workers)]:
        pod["metadata"]["labels"] = ray | {"ray.io/node-type": kind, "ray.io/group": group}
        # A group without replacements for pods that end: else Kueue keeps deleted ones.
        pod["metadata"]["annotations"] |= {"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/retriable-in-group": "false"}
    for worker in workers:
        worker["spec"]["containers"][0]["resources"] = {"limits": RANK}
    return [head, *workers]


def pods_of(ns: str, job: str) -> list[str]:
    """The pods of a job that run with a GPU."""
    alive = [pod["metadata"] for pod in product.pods(ns) if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"]
    return [at["name"] for at in alive if at["name"].startswith(job) and product.ASSIGNED in at.get("annotations", {})]


def reasons(cluster, ns: str, job: str) -> list[str]:
    """Why the workload of a job has no quota."""
    workloads = [one for one in cluster.get("workloads.kueue.x-k8s.io", namespace=ns)["items"] if job in one["metadata"]["name"]]
    conditions = [condition for one in workloads for condition in one.get("status", {}).get("conditions", [])]
    return [one["message"] for one in conditions if one["type"] == "QuotaReserved" and one["status"] == "False"]


def admitted_as_a_whole(cluster, ns: str, make, name: str) -> None:
    """Two pods with one gang run at the same time. A second job of this kind waits as a whole, though one of its pods fits into the quota."""
    cluster.create(ns, *make(f"{name}-one"))
    cluster.until("both pods of the job", 120, lambda: len(pods_of(ns, f"{name}-one")) == 2)
    members = pods_of(ns, f"{name}-one")
    where = product.assigned(ns)
    # The scheduler fills GPUs, but two pods of a gang never share one.
    assert sorted(where[member] for member in members) == sorted(GPUS), where
    run_together(cluster, ns, {name: members}, "admitted")
    cluster.create(ns, *make(f"{name}-two"))
    wanted = "insufficient unused quota for sluice.dev/milli"
    cluster.until("the second job has a reason", 60, lambda: any(wanted in reason for reason in reasons(cluster, ns, f"{name}-two")))
    assert not [pod for pod in product.assigned(ns) if pod.startswith(f"{name}-two")]
    cluster.kubectl("delete", JOBS, "--all", "-n", ns, "--timeout=60s")
    cluster.kubectl("delete", "pods", "-l", "ray.io/cluster", "-n", ns, "--timeout=60s")
    cluster.until("the job's pods are gone", 60, lambda: not [pod for pod in product.phases(ns) if pod.startswith(name)])


def waits_without_a_gpu_until_there_is_room_for_all(cluster, ns: str) -> None:
    """Kueue counts the cluster's sums: it admits a job of which one pod finds no room on a single GPU, and suspends it again."""
    product.create(ns, product.tenant("full", quota=0.8, memory="1Gi", gpu_uuid=GPUS[0]))
    product.all_running(ns)
    cluster.create(ns, *job_set("job"))
    cluster.until("one pod of the job", 90, lambda: len(pods_of(ns, "job")) == 1)
    texts = lambda: [event["message"] for event in cluster.events(ns) if event["reason"] == "FailedScheduling"]
    cluster.until("the reason of the other", 60, lambda: any("has a pod of the same gang" in text and "0.200 free, 0.300 asked" in text for text in texts()))
    cluster.until("the job is suspended", 120, lambda: not [pod for pod in product.assigned(ns) if pod.startswith("job")])
    cluster.delete("pod", "full", ns)
    cluster.until("both pods of the job", 180, lambda: len(pods_of(ns, "job")) == 2)
    where = product.assigned(ns)
    assert sorted(where[pod] for pod in pods_of(ns, "job")) == sorted(GPUS), where


def test_jobs_of_several_pods_are_admitted_as_a_whole_and_their_pods_run_at_the_same_time(cluster):
    with queued(cluster) as ns:
        # On each GPU a pod that is in no gang and that no queue manages. Beside them ranks without a gang have different shares of the two GPUs, so
        # that their phases do not stay together.
        local = [product.tenant(f"local-{gpu[-1]}", quota=quota, memory="1Gi", gpu_uuid=gpu) for gpu, quota in zip(GPUS, (0.7, 0.5))]
        product.create(ns, *local)
        product.all_running(ns)
        for name, make in (("jobset", job_set), ("lws", leader_worker_set), ("trainjob", train_job), ("raycluster", ray_cluster)):
            admitted_as_a_whole(cluster, ns, make, name)
        for pod in local:
            cluster.delete("pod", pod["metadata"]["name"], ns)
        waits_without_a_gpu_until_there_is_room_for_all(cluster, ns)
