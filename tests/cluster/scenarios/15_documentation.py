"""All commands of docs/kubernetes.md and docs/operators in order, as a new operator and a new user run them."""

import json

from lib import api, documentation, product
from lib.settings import NODE, REPOSITORY

SECONDS = 600
EXAMPLES = ("training", "inference", "notebook")


def test_every_command_of_the_pages_works(cluster):
    remove_what_an_earlier_try_left(cluster)
    try:
        follow_the_pages(cluster)
    finally:
        # The next test wants the GPUs.
        remove_examples(cluster)


def follow_the_pages(cluster) -> None:
    documentation.provide_images()
    # As the GPU Operator or Node Feature Discovery do.
    cluster.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true", "--overwrite")
    asked = documentation.commands()
    assert set(asked) == {
        "Install", "See what priority does", "Annotate", "Check a manifest", "Find your pods", "Look",
        "Divide GPUs between teams", "Queue Jobs with Kueue", "Troubleshooting by symptom", "A pod runs, but not as asked", "Upgrade", "Remove", "NRI and CDI",
        "Nodes with several GPUs", "Node groups without nodes",
    }, set(asked)

    documentation.run("Install")
    # The page's GPUs are real, the test's simulated; later upgrades keep the value.
    flags = ["--reuse-values", "--set", f"nodeAgent.extraArgs={{{','.join(product.SIMULATED['nodeAgent']['extraArgs'])}}}"]
    api.helm("upgrade", product.RELEASE, REPOSITORY / "charts/sluice", "--namespace", product.NAMESPACE, "--wait", *flags)
    product.until("device slots on the node", 60, lambda: product.allocatable() > 0)
    cluster.until("the path of injection", 60, lambda: "InjectionChanged" in "\n".join(documentation.run("NRI and CDI")))
    reports = [json.loads(line) for line in documentation.run("See what priority does") if '"lc_progress"' in line]
    assert len(reports) == 3 and all(one["requests"] > 100 for one in reports), reports
    documentation.run("Annotate")
    where = placed(cluster)
    assert set(where) == set(EXAMPLES) and set(where.values()) <= set(cluster.gpus), where
    cluster.until("all three use their GPU", 60, lambda: set(EXAMPLES) <= set(working(cluster)))

    checked = documentation.run("Check a manifest")[-1]
    assert "pod/training created (server dry run)" in checked, checked
    shown = "\n".join(documentation.run("Look") + documentation.run("Find your pods"))
    for part in ("sluice.dev/gpu:", "Sluice-Simulated-H200", *cluster.gpus, "GpuAssigned", "sluice_client_gpu_seconds_total", "sluice_scheduler_active"):
        assert part in shown, f"{part} is not in the output of the page's commands"

    amounts, labels = documentation.run("Node groups without nodes")
    assert NODE in amounts and "sluice.dev/milli" in amounts and "sluice.dev/gpu.model.Sluice-Simulated-H200=true" in labels, (amounts, labels)

    # 55_scale_up runs the command of "Nodes with several GPUs": it needs scale-up pods.
    # 54_kueue runs the commands of "Queue Jobs with Kueue": they need Kueue.
    described = documentation.run("Divide GPUs between teams")[2]
    assert ["requests.sluice.dev/gpu", "0", "4"] in [line.split() for line in described.splitlines()], described
    documentation.run("Troubleshooting by symptom")
    state = documentation.run("A pod runs, but not as asked")[0]
    assert all(f"{name}-" in state for name in EXAMPLES), state

    before = identities(cluster)
    documentation.run("Upgrade")
    assert identities(cluster) == before

    documentation.run("Remove")
    assert not [key for key in {**cluster.get("node", NODE)["metadata"]["labels"], **cluster.get("node", NODE)["metadata"].get("annotations", {})} if "sluice" in key]
    left = [one for kind in ("clusterroles", "validatingadmissionpolicies", "mutatingwebhookconfigurations") for one in names(cluster, kind) if "sluice" in one]
    assert not left, left
    cluster.kubectl("label", "node", NODE, "nvidia.com/gpu.present-")


def remove_what_an_earlier_try_left(cluster) -> None:
    cluster.tidy()
    api.helm("uninstall", product.RELEASE, "--namespace", product.NAMESPACE, "--ignore-not-found", "--wait")
    cluster.kubectl("delete", "namespace", product.NAMESPACE, "--ignore-not-found")
    remove_examples(cluster)


def remove_examples(cluster) -> None:
    manifests = [flag for path in sorted((REPOSITORY / "examples").glob("*.yaml")) for flag in ("--filename", str(path))]
    cluster.kubectl("delete", *manifests, "--namespace", "default", "--ignore-not-found")
    cluster.until("the examples' pods are gone", 90, lambda: not cluster.get("pods", namespace="default")["items"])


def pods(cluster) -> list[dict]:
    """Of the page's examples; those of a deployment that the page has deleted may still be ending."""
    return [pod for pod in cluster.get("pods", namespace="default")["items"] if "deletionTimestamp" not in pod["metadata"]]


def identities(cluster) -> set[tuple]:
    return {(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]) for pod in pods(cluster)}


def placed(cluster) -> dict[str, str]:
    """GPU by example."""
    return {pod["metadata"]["labels"]["app"]: pod["metadata"]["annotations"]["sluice.dev/assigned-gpu"] for pod in pods(cluster)}


def working(cluster) -> list[str]:
    """Examples that the GPUs themselves have seen."""
    seen = str([cluster.ledger(gpu) for gpu in cluster.gpus])
    return [name for name in EXAMPLES if f"default/{name}-" in seen]


def names(cluster, kind: str) -> list[str]:
    return [item["metadata"]["name"] for item in cluster.get(kind)["items"]]
