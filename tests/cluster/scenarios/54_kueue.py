"""Kueue admits and suspends Jobs by the share of a GPU that they request, as resources and as claims."""

import contextlib

from lib import api, claims, documentation, images, kueue, product
from lib.settings import REPOSITORY

SECONDS = 600
NAMESPACE = "team-b"
HEADING = "Queue Jobs with Kueue"


@contextlib.contextmanager
def installed(cluster, values_of_claims: str | None = None):
    product.need()
    kueue.install(values_of_claims)
    try:
        yield
    finally:
        cluster.kubectl("delete", "jobs", "--all", "-n", NAMESPACE, "--ignore-not-found", "--timeout=60s")
        cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "--all", "-A", "--timeout=60s")
        kueue.uninstall()
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=90s")


def test_jobs_beyond_the_quota_of_their_queue_wait_and_start_when_one_ends(cluster):
    documentation.provide_images()
    with installed(cluster):
        page = iter(documentation.commands()[HEADING])
        run(page, "jobs.yaml")
        cluster.until("two Jobs run", 90, lambda: running(cluster) == {"first", "second"})
        cluster.until("the third has a reason", 30, lambda: reason(cluster, "third"))
        assert "insufficient unused quota for sluice.dev/milli in flavor sluice, 200 more needed" in reason(cluster, "third"), reason(cluster, "third")
        assert suspended(cluster) == {"third"}
        shown = run(page, "describe workloads")
        assert reason(cluster, "third") in shown, shown

        run(page, "delete job first")
        cluster.until("the third Job runs", 90, lambda: running(cluster) == {"second", "third"})
        # A Job that completes makes room as one that is deleted does.
        cluster.create(NAMESPACE, waits_for_a_file("fourth", milli=600))
        cluster.until("the fourth has a reason", 30, lambda: "sluice.dev/milli" in reason(cluster, "fourth"))
        cluster.delete("job", "third", NAMESPACE)
        cluster.until("the fourth Job runs", 90, lambda: "fourth" in running(cluster))
        cluster.create(NAMESPACE, waits_for_a_file("fifth", milli=500))
        cluster.until("the fifth has a reason", 30, lambda: "sluice.dev/milli" in reason(cluster, "fifth"))
        cluster.exec(NAMESPACE, pods(cluster)["fourth"]["metadata"]["name"], "/bin/touch", "/tmp/end")
        cluster.until("the fourth Job is complete", 60, lambda: job(cluster, "fourth")["status"].get("succeeded") == 1)
        cluster.until("the fifth Job runs", 90, lambda: "fifth" in running(cluster))
        run(page, "")


# What Kueue counts of claims, the queue's quota, and what the third Job of the example lacks. The example has the time.
COUNTED = {"milli": ("1000", "200"), "memory": ("10Gi", "2Gi")}


def test_jobs_with_claims_wait_for_the_quota_of_their_queue(cluster):
    """What docs/operators/capacity.md says about claims, by the files that it names."""
    claims.need_consumable_capacity()
    documentation.provide_images()
    with claims.installed():
        for capacity, (quota, lacks) in COUNTED.items():
            values = example("dra-values.yaml").replace("name: milli", f"name: {capacity}").replace("/milli", f"/{capacity}")
            with installed(cluster, values):
                jobs = example("claims.yaml").replace("/milli", f"/{capacity}").replace("nominalQuota: 1000", f"nominalQuota: {quota}")
                two_of_three_jobs_run(cluster, jobs, f"insufficient unused quota for gpu.sluice.dev/{capacity} in flavor claims, {lacks} more needed")


def example(name: str) -> str:
    return (REPOSITORY / "examples/kueue" / name).read_text()


def two_of_three_jobs_run(cluster, jobs: str, why: str) -> None:
    api.kubectl("create", "namespace", NAMESPACE)
    api.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=jobs)
    run_with_claims = lambda: {name for name, pod in pods(cluster).items() if pod["status"]["phase"] == "Running"}
    cluster.until("two Jobs run", 120, lambda: len(run_with_claims()) == 2)
    (waits,) = {"first", "second", "third"} - run_with_claims()
    cluster.until("the other has a reason", 60, lambda: reason(cluster, waits))
    assert why in reason(cluster, waits), reason(cluster, waits)
    assert suspended(cluster) == {waits}
    limits = {(one["quota_ppm"], one["limit_ppm"], one["memory_bytes"]) for one in product.clients_of(NAMESPACE).values()}
    assert limits == {(400_000, 800_000, 4 << 30)}, limits

    alternatives = cluster.get("resourceclaimtemplate", "four-tenths", NAMESPACE)
    (request,) = alternatives["spec"]["spec"]["devices"]["requests"]
    request["firstAvailable"] = [{key: value for key, value in request.pop("exactly").items()} | {"name": "only"}]
    fourth = cluster.get("job", "third", NAMESPACE)
    claim = {"name": "gpu", "resourceClaimTemplateName": "alternatives"}
    pod = fourth["spec"]["template"]["spec"] | {"resourceClaims": [claim]}
    cluster.create(
        NAMESPACE,
        alternatives | {"metadata": {"name": "alternatives"}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fourth", "labels": fourth["metadata"]["labels"]}, "spec": {"suspend": True, "template": {"spec": pod}}},
    )
    cluster.until("the fourth is refused", 60, lambda: "FirstAvailable device selection is not supported" in reason(cluster, "fourth"))

    (ends, _) = sorted(run_with_claims())
    cluster.delete("job", ends, NAMESPACE)
    cluster.until("the other Job runs", 90, lambda: waits in run_with_claims())
    assert suspended(cluster) == {"fourth"}


def run(page, last: str) -> str:
    """Runs the commands of the page up to the first that contains this text, or all that are left; returns their outputs."""
    outputs = []
    for line in page:
        outputs.append(api.command("bash", "-c", f"cd {documentation.REPOSITORY} && {line}"))
        if last and last in line:
            break
    return "\n".join(outputs)


def job(cluster, name: str) -> dict:
    return cluster.get("job", name, NAMESPACE)


def suspended(cluster) -> set[str]:
    return {one["metadata"]["name"] for one in cluster.get("jobs", namespace=NAMESPACE)["items"] if one["spec"]["suspend"]}


def pods(cluster) -> dict[str, dict]:
    """The pods of Jobs by the name of their Job."""
    found = [one for one in product.pods(NAMESPACE) if "deletionTimestamp" not in one["metadata"]]
    return {one["metadata"]["labels"]["batch.kubernetes.io/job-name"]: one for one in found}


def running(cluster) -> set[str]:
    return {name for name, pod in pods(cluster).items() if pod["status"]["phase"] == "Running" and product.ASSIGNED in pod["metadata"]["annotations"]}


def reason(cluster, name: str) -> str:
    """Why the Job's workload has no quota; empty if it has."""
    workloads = cluster.get("workloads.kueue.x-k8s.io", namespace=NAMESPACE)["items"]
    conditions = [
        condition["message"]
        for one in workloads
        if one["metadata"]["ownerReferences"][0]["name"] == name
        for condition in one.get("status", {}).get("conditions", [])
        if condition["type"] == "QuotaReserved" and condition["status"] == "False"
    ]
    return " ".join(conditions)


def waits_for_a_file(name: str, milli: int) -> dict:
    limits = {"sluice.dev/milli": str(milli), "sluice.dev/memory-mib": "64"}
    words = ["/usr/bin/bash", "-c", "until [ -e /tmp/end ]; do sleep 0.1; done"]
    main = {"name": "main", "image": images.TOOLS, "imagePullPolicy": "Never", "command": words, "resources": {"limits": limits}}
    template = {"spec": {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}}
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": {"suspend": True, "template": template}}
