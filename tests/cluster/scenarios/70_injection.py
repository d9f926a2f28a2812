"""How containers get their GPUs: by NRI and CDI, on a node without NVIDIA's runtime or beside it."""

import contextlib
import subprocess

from lib import api, devices, images, product, toolkit
from lib.devices import GPUS
from lib.namespaces import until
from lib.settings import NODE, environment

SECONDS = 400
CORE = {
    "nri_gives_the_chosen_container_exactly_its_gpu_without_nvidia_runtime",
}


@contextlib.contextmanager
def injecting(**values):
    """Sluice on a node with a CDI specification; afterwards as before."""
    with devices.cdi(), installed(**values):
        yield


@contextlib.contextmanager
def installed(**values):
    """Sluice with these values; afterwards as before."""
    install(**values)
    try:
        yield
    finally:
        install()


def install(**values) -> None:
    """Returns when only webhooks with these values answer: they decide about the pods' RuntimeClass."""
    product.install(**values)
    ending = lambda: [pod for pod in product.pods_of("webhook") if "deletionTimestamp" in pod["metadata"]]
    until("the former webhooks are gone", 60, lambda: not ending())


def path() -> list[str]:
    """The paths in force; empty while the agent does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return [sample.labels["path"] for sample in product.metrics() if sample.name == "sluice_injection"]
    return []


def proof() -> list[str]:
    """Whether the path in force is proven; empty while the agent does not answer."""
    with contextlib.suppress(OSError, ValueError):
        return [sample.labels["outcome"] for sample in product.metrics() if sample.name == "sluice_injection_proof"]
    return []


def tenant(ns: str, name: str, gpu: str) -> dict:
    """A pod whose container `main` has the GPU, beside a container `side`. Both can only load a driver that they were given."""
    pod = product.tenant(name, quota=0.1, memory="64Mi", gpu_uuid=gpu, container="main")
    main = pod["spec"]["containers"][0]
    main["env"] = [{"name": "SLUICE_SIM_LABEL", "value": f"{ns}/{name}"}]
    pod["spec"]["containers"].append({"name": "side", "image": images.TOOLS, "imagePullPolicy": "Never", "command": ["sleep", "100000"]})
    return pod


def governed(cluster, ns: str, name: str, gpu: str) -> None:
    """Its kernels run on its GPU and on no other, and its manager limits it."""
    cluster.wait(f"pod/{name}", "condition=Ready", ns, seconds=120)
    cluster.until(f"{name} at its manager", 60, lambda: product.clients_of(ns).get(name, {}).get("processes"))
    assert product.clients_of(ns)[name]["gpu"] == gpu
    has_run = lambda uuid: [row["label"] for row in devices.ledger(uuid)["processes"] if row["kernels_completed"]]
    cluster.until(f"kernels of {name}", 60, lambda: f"{ns}/{name}" in has_run(gpu))
    for other in GPUS:
        assert other == gpu or f"{ns}/{name}" not in has_run(other), other


def test_nri_gives_the_chosen_container_exactly_its_gpu_without_nvidia_runtime(cluster):
    product.need()
    with injecting(injection="nri"), cluster.namespace() as ns:
        cluster.until("NRI in force", 60, lambda: path() == ["nri"])
        assert "runtimeClassName" not in product.agent()["spec"]
        # The agent's own container has got the driver in this way.
        cluster.until("the proof", 30, lambda: proof() == ["proven"])
        product.create(ns, tenant(ns, "a", GPUS[1]))
        governed(cluster, ns, "a", GPUS[1])
        assert "runtimeClassName" not in cluster.get("pod", "a", ns)["spec"]
        # Kubelet's Allocate brings the same mounts: they are there once.
        mounts = cluster.exec(ns, "a", "cat", "/proc/self/mountinfo", container="main").split()
        assert mounts.count("/etc/ld.so.preload") == 1 and mounts.count("/run/sluice") == 1, mounts
        assert cluster.exec(ns, "a", "sh", "-c", "echo $SLUICE_SIM_SOCKET", container="main").strip() == f"/run/sluice-sim/{GPUS[1]}.sock"
        assert "libsluice" not in cluster.exec(ns, "a", "cat", "/proc/self/maps", container="side")
        try:
            cluster.exec(ns, "a", "sluice", "load", "be", "--count", "1", container="side")
        except api.Failed as failed:
            assert "libcuda" in failed.err, failed.err
        else:
            raise AssertionError("the second container has a driver")

        # Another agent gets the driver, and the next pod its GPU.
        old = product.agent()
        cluster.delete("pod", old["metadata"]["name"], product.NAMESPACE)
        cluster.until("another agent", 60, lambda: running_agent() not in (None, old["metadata"]["uid"]))
        cluster.until("NRI in force", 60, lambda: path() == ["nri"])
        cluster.until("device slots again", 60, lambda: product.allocatable() > 0)
        product.create(ns, tenant(ns, "b", GPUS[0]))
        governed(cluster, ns, "b", GPUS[0])
        governed(cluster, ns, "a", GPUS[1])


def announced() -> str:
    """The latest event of the path, by the command that the release's notes give."""
    notes = api.helm("get", "notes", product.RELEASE, "-n", product.NAMESPACE)
    (command,) = [line.strip() for line in notes.splitlines() if line.strip().startswith("kubectl get events")]
    words = command.replace("get events", "get events --sort-by=.metadata.creationTimestamp")
    lines = subprocess.run(["sh", "-c", words], capture_output=True, text=True, env=environment()).stdout.splitlines()
    return lines[-1] if lines else ""


def test_notes_and_event_announce_the_injection_in_force(cluster):
    product.need()
    with devices.cdi():
        says = {"nri": ("by NRI and CDI.", "by NRI of containerd"), "auto": ("where a node has both", "by NRI of containerd"), "runtime": ("by NVIDIA's container runtime.", "by NVIDIA's container runtime")}
        for injection, (note, event) in says.items():
            with installed(injection=injection):
                assert note in api.helm("get", "notes", product.RELEASE, "-n", product.NAMESPACE), injection
                cluster.until(f"the event with {injection}", 60, lambda event=event: event in announced())
                assert "InjectionChanged" in announced(), announced()


def running_agent() -> str | None:
    """The uid of the agent that is ready."""
    for pod in product.pods_of("node-agent"):
        conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
            return pod["metadata"]["uid"]
    return None


def test_plugin_is_back_after_a_restart_of_containerd(cluster):
    product.need()
    with injecting(injection="nri"), cluster.namespace() as ns:
        cluster.until("NRI in force", 60, lambda: path() == ["nri"])
        cluster.restart(cluster.containerd)
        cluster.until("NRI in force", 60, lambda: path() == ["nri"])
        product.create(ns, tenant(ns, "a", GPUS[0]))
        governed(cluster, ns, "a", GPUS[0])


def test_node_without_a_cdi_specification_says_so(cluster):
    product.need()
    with injecting(injection="nri"):
        text = devices.CDI.read_text()
        devices.CDI.unlink()
        agent = product.agent()
        cluster.delete("pod", agent["metadata"]["name"], product.NAMESPACE)
        reason = lambda: [
            one["state"].get("waiting", {}).get("message", "")
            for pod in product.pods_of("node-agent")
            for one in pod["status"].get("containerStatuses", [])
        ]
        cluster.until("the reason", 60, lambda: any("no CDI specification in /etc/cdi or /var/run/cdi" in one for one in reason()))
        devices.CDI.write_text(text)
        cluster.until("the agent is ready", 90, lambda: running_agent() is not None)


def test_auto_uses_nri_where_the_node_has_it_and_the_runtime_elsewhere(cluster):
    product.need()
    with installed(injection="auto"):
        cluster.until("the runtime in force", 60, lambda: path() == ["runtime"])
        cluster.until("the reason", 60, lambda: any("no CDI specification" in note for note in notes_of_the_path(cluster)))
        with devices.cdi(), cluster.namespace() as ns:
            cluster.until("NRI in force", 60, lambda: path() == ["nri"])
            product.create(ns, tenant(ns, "a", GPUS[1]))
            governed(cluster, ns, "a", GPUS[1])
            # The agent got its driver by NVIDIA's runtime, so this pod is the first to prove the path.
            cluster.until("the proof", 30, lambda: proof() == ["proven"])
            # NVIDIA's runtime starts this pod, and adds nothing to what CDI has brought.
            assert cluster.get("pod", "a", ns)["spec"]["runtimeClassName"] == "nvidia"
            assert cluster.exec(ns, "a", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES", container="main").strip() == "void"
        cluster.until("the runtime in force", 60, lambda: path() == ["runtime"])


def test_specification_of_nvidias_toolkit_is_used_and_stays_the_only_one(cluster):
    product.need()
    with toolkit.cdi(), installed(injection="auto"), cluster.namespace() as ns:
        before = toolkit.files()
        assert list(before) == [str(devices.CDI)]
        cluster.until("NRI in force", 60, lambda: path() == ["nri"])
        product.create(ns, tenant(ns, "a", GPUS[1]))
        governed(cluster, ns, "a", GPUS[1])
        # The toolkit's hook has made the link. The second GPU's device node is there, and the first one's is not.
        assert cluster.exec(ns, "a", "sh", "-c", "cd /dev; echo nvidia*", container="main").split() == ["nvidia1", "nvidiactl"]
        assert cluster.exec(ns, "a", "readlink", "-f", "/usr/lib/x86_64-linux-gnu/libcuda.so", container="main").strip().endswith(toolkit.VERSION)
        assert cluster.exec(ns, "a", "sh", "-c", "cd /dev; echo nvidia*", container="side").split() == ["nvidia*"]
        assert toolkit.files() == before, "the agent writes no specification beside the toolkit's"


def notes_of_the_path(cluster) -> list[str]:
    events = cluster.get("events", namespace="default")["items"]
    return [one["message"] for one in events if one["reason"] == "InjectionChanged" and one["involvedObject"]["name"] == NODE]
