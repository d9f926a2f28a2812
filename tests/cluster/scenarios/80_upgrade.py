"""helm upgrade leaves running pods alone, also when it replaces every part of Sluice, and also by another version."""

import contextlib
import json
import time

from lib import api, images, older, product
from lib.cluster import Skipped
from lib.devices import CONTEXT_BYTES, GPUS
from lib.product import GI
from lib.settings import KUBERNETES, NODE

SECONDS = 400
FIRST, SECOND = GPUS
LC = ["load", "lc", "--seconds", "100000"]
HELD, ROUNDING = GI // 2, 8 << 20
HOLDS = ["load", "be", "--duration-us", "5000", "--seconds", "100000", "--memory", HELD]
FULL = ["load", "be", "--duration-us", "5000", "--seconds", "100000", "--grow"]


def identities(ns: str) -> dict[str, tuple]:
    """A pod that was replaced, restarted or moved is another."""
    found = {}
    for pod in product.pods(ns):
        status, at = pod["status"]["containerStatuses"][0], pod["metadata"]
        found[at["name"]] = (at["uid"], status["containerID"], status["restartCount"], at["annotations"].get(product.ASSIGNED))
    return found


def follow(cluster, ns: str, asked: dict[str, float], when: str, within: float = 0.05) -> None:
    """On each GPU the best-effort pods share the time by their quotas."""
    seen, where, wrong = product.shares(10), product.assigned(ns), []
    for gpu in GPUS:
        quotas = {name: quota for name, quota in asked.items() if where[name] == gpu}
        times = {name: seen[gpu].get(f"{ns}/{name}", 0.0) for name in quotas}
        for name, quota in quotas.items():
            got, due = times[name] / (sum(times.values()) or 1), quota / sum(quotas.values())
            cluster.record(f"{when}_{name}", f"due {due:.3f}, got {got:.3f}")
            wrong += [f"{name}: due {due:.3f}, got {got:.3f}"] if abs(got - due) > within else []
    assert not wrong, (when, wrong, seen)
    assert "serve" not in where or seen[where["serve"]].get(f"{ns}/serve"), seen


def memory_taken(cluster, ns: str, name: str) -> int:
    """What a pod of HOLDS has when a further process of it is refused one more byte: both processes' allocations and contexts."""
    lines = cluster.exec(ns, name, "sluice", "load", "be", "--grow", "--seconds", "8").splitlines()
    last = json.loads(lines[-1])
    # The last refusals are of single bytes.
    assert last["denied"] > 20, last
    return HELD + last["peak_bytes"] + 2 * CONTEXT_BYTES


def is_full(cluster, ns: str, name: str) -> None:
    """A further process of the pod gets no memory."""
    try:
        cluster.exec(ns, name, "sluice", "load", "be", "--count", "1")
    except api.Failed as failed:
        assert "OUT_OF_MEMORY" in failed.err.upper().replace(" ", "_"), failed
    else:
        raise AssertionError(f"{name} has got more than its limit")


def amounts() -> bool:
    """Whether the node offers shares as a resource."""
    return "sluice.dev/milli" in api.request("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]


def install_older() -> None:
    """The older version on a node without Sluice, with the values of its own scenarios."""
    images.bring(images.product(images.PRODUCT_OLDER, older.FOLDER / "bin", older.FOLDER / "bin/libsluice.so", source=older.FOLDER))
    if product.installed():
        product.uninstall()
        product.clean_up()
    values = json.loads((older.FOLDER / "values.json").read_text())
    values["image"]["tag"] = images.PRODUCT_OLDER.rpartition(":")[2]
    # The commit was built once, perhaps in a run with another Kubernetes.
    values["scheduler"]["kubeScheduler"]["image"]["tag"] = f"v{KUBERNETES}"
    # Older versions do not look for it.
    values["runtimeClassName"] = "nvidia"
    product.install_chart(older.FOLDER / "charts/sluice", values)


@contextlib.contextmanager
def replaced_at_the_end():
    """Later tests find the present version."""
    try:
        yield
    finally:
        product.install()


def test_pods_of_an_older_version_go_on_after_an_upgrade_and_after_a_rollback(cluster):
    if older.FOLDER is None:
        raise Skipped("no older version was given: --upgrade-from COMMIT")
    # The namespace first: the pods of a failed test would keep the clean-up waiting.
    with cluster.namespace() as ns, replaced_at_the_end():
        install_older()
        asked = {"train-a": 0.3, "train-b": 0.5, "holds": 0.3, "full": 0.05}
        old = [
            product.tenant("serve", *LC, priority="latency-critical", slo="5ms", quota=0.2, memory="256Mi", gpu_uuid=FIRST),
            product.tenant("train-a", quota=0.3, memory="1Gi", gpu_uuid=FIRST),
            product.tenant("train-b", quota=0.5, memory="1Gi", gpu_uuid=FIRST),
            product.tenant("holds", *HOLDS, quota=0.3, memory="1Gi", gpu_uuid=SECOND),
            product.tenant("full", *FULL, quota=0.05, memory="1Gi", gpu_uuid=SECOND),
        ]
        cluster.record("older_version_has_amounts", amounts())
        if amounts():
            stated = product.tenant("stated")
            stated["spec"]["containers"][0]["resources"] = {"limits": {"sluice.dev/milli": "200", "sluice.dev/memory-mib": "256"}}
            # The first GPU is full.
            old, asked["stated"] = [*old, stated], 0.2
        for pod in old:
            product.create(ns, pod)
            product.all_running(ns)
        follow(cluster, ns, asked, "before")
        # Versions before contexts were charged give them on top of the limit.
        older_takes = memory_taken(cluster, ns, "holds")
        cluster.record("before_memory", older_takes)
        # It has been refused a single byte.
        cluster.until("its limit reached", 60, lambda: json.loads(cluster.logs(ns, "full", "--tail=1"))["denied"] == 27)
        before, agent = identities(ns), product.agent()["metadata"]["uid"]
        began = time.monotonic()
        product.install()
        cluster.until("another agent", 120, lambda: product.agent()["metadata"]["uid"] != agent)
        cluster.record("upgrade_s", round(time.monotonic() - began, 1))
        assert identities(ns) == before
        attached(cluster, ns, before.keys())
        follow(cluster, ns, asked, "upgraded")
        assert product.clients_of(ns)["serve"]["class"] == "latency-critical"
        takes = memory_taken(cluster, ns, "holds")
        assert GI - ROUNDING <= takes <= GI, takes
        is_full(cluster, ns, "full")
        # A new pod only fits on the second GPU, and what it leaves there is too little for the next one.
        product.create(ns, product.tenant("new", *HOLDS, quota=0.4, memory="1Gi"))
        product.all_running(ns)
        asked["new"] = 0.4
        assert product.assigned(ns)["new"] == SECOND
        product.create(ns, product.tenant("late", quota=0.35, memory="1Gi"))
        cluster.until("the reason why it waits", 60, lambda: cluster.events(ns, "late"))
        time.sleep(5)
        assert product.phases(ns)["late"] == "Pending", product.assigned(ns)
        cluster.delete("pod", "late", ns)
        attached(cluster, ns, asked.keys())
        follow(cluster, ns, asked, "with_new")
        before, agent = identities(ns), product.agent()["metadata"]["uid"]
        began = time.monotonic()
        api.helm("rollback", product.RELEASE, "-n", product.NAMESPACE, "--wait", "--timeout", "120s")
        cluster.until("another agent", 120, lambda: product.agent()["metadata"]["uid"] != agent)
        cluster.record("rollback_s", round(time.monotonic() - began, 1))
        assert identities(ns) == before
        attached(cluster, ns, before.keys())
        follow(cluster, ns, asked, "rolled_back")
        for name in ("holds", "new"):
            takes = memory_taken(cluster, ns, name)
            cluster.record(f"rolled_back_memory_{name}", takes)
            assert GI - ROUNDING <= takes <= max(GI, older_takes), (name, takes, older_takes)
        assert identities(ns) == before


def attached(cluster, ns: str, names) -> None:
    """The manager that runs now has a process of each pod."""
    cluster.until(f"{', '.join(names)} at the manager", 60, lambda: all(product.clients_of(ns).get(name, {}).get("processes") for name in names))


def test_helm_upgrade_leaves_pods_alone(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, *(product.tenant(name, quota=quota, memory="1Gi", gpu_uuid=FIRST) for name, quota in {"a": 0.3, "b": 0.7}.items()))
        product.all_running(ns)
        before = identities(ns)
        agent = product.agent()["metadata"]["uid"]
        # The same values: nothing of ours restarts either.
        product.install()
        assert product.agent()["metadata"]["uid"] == agent
        # Another log level: every pod of ours is replaced.
        began = time.monotonic()
        product.install(logLevel="debug")
        cluster.until("another agent", 120, lambda: product.agent()["metadata"]["uid"] != agent)
        cluster.record("upgrade_s", round(time.monotonic() - began, 1))
        assert identities(ns) == before
        follow(cluster, ns, {"a": 0.3, "b": 0.7}, "upgraded", within=0.03)
        product.install()
