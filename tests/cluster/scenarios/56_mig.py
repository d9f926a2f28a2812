"""Instances of a GPU in MIG mode beside the node's GPUs. Each instance is a simulator of its own."""

import contextlib

from lib import claims, devices, product
from lib.claims import claim, pod
from lib.devices import GPUS
from lib.processes import Program
from lib.settings import SIMULATION

SECONDS = 600
PARENT = "GPU-00000000-0000-4000-8000-00000000001a"
INSTANCES = [f"MIG-00000000-0000-4000-8000-00000000002{letter}" for letter in "ab"]
MODEL = f"{devices.MODEL} MIG 1g.16gb"
# As the node's label spells it.
SELECTED = MODEL.replace(" ", "-")


def simulator(uuid: str, *more: str) -> Program:
    words = [SIMULATION / "sluice", "sim", "--socket", devices.socket(uuid), "--uuid", uuid, "--model", devices.MODEL]
    return Program(f"sim-{uuid}", [*words, "--context-memory", f"{devices.CONTEXT_BYTES >> 20}Mi", *more])


@contextlib.contextmanager
def instances():
    """The node has a third GPU, with two instances."""
    programs = [simulator(PARENT, "--mig", "--pci", "0000:1a:00.0")]
    programs += [simulator(uuid, "--memory", "16Gi", "--mig-parent", PARENT) for uuid in INSTANCES]
    try:
        for program in programs:
            program.start()
        yield
    finally:
        for program in programs:
            program.stop()
        for uuid in (PARENT, *INSTANCES):
            devices.socket(uuid).unlink(missing_ok=True)


@contextlib.contextmanager
def installed(cluster, **node_agent: object):
    with instances():
        product.install(nodeAgent={"mig": "instances", **node_agent})
        try:
            # The agent's container has the simulators that were there when it was created.
            cluster.delete("pod", product.agent()["metadata"]["name"], product.NAMESPACE)
            cluster.until("the instances", 90, lambda: set(tests()) == {*GPUS, *INSTANCES})
            yield
        finally:
            cluster.tidy()
    product.install()
    has_gpus_alone(cluster)


@contextlib.contextmanager
def given_by_claims(cluster, **node_agent: object):
    """GPUs and instances as devices of claims."""
    claims.need_consumable_capacity()
    with instances(), claims.installed(INSTANCES, nodeAgent={"mig": "instances", **node_agent}):
        yield
    has_gpus_alone(cluster)


def has_gpus_alone(cluster) -> None:
    """Waits for an agent that was created after the instances' simulators have ended."""
    cluster.delete("pod", product.agent()["metadata"]["name"], product.NAMESPACE)
    cluster.until("the GPUs alone", 90, lambda: set(tests()) == set(GPUS))


def tests() -> dict[str, str]:
    """The outcome of the self-test of each GPU and instance."""
    with contextlib.suppress(OSError, ValueError):
        return {s.labels["gpu"]: s.labels["outcome"] for s in product.metrics() if s.name == "sluice_gpu_self_test"}
    return {}


def have_shares(cluster, ns: str, asked: dict[str, float], gpu: str) -> None:
    """Each pod's part of the instance's busy time, by its simulator's ledger."""
    seen = product.shares(15, [gpu])[gpu]
    for name, share in asked.items():
        got = seen.get(f"{ns}/{name}", 0.0) / sum(seen.values())
        cluster.record(name, f"asked {share:.2f}, got {got:.4f}")
        assert abs(got - share) <= 0.02, f"{name} asked {share}, got {got:.4f} of {seen}"


def refused(cluster, ns: str, name: str, words: str) -> None:
    messages = lambda: [event["message"] for event in cluster.events(ns, name) if event["reason"] == "FailedScheduling"]
    cluster.until(f"{name} is refused", 60, lambda: any(words in message for message in messages()))


def test_pods_share_an_instance_whose_controls_are_proven(cluster):
    with installed(cluster), cluster.namespace() as ns:
        cluster.until("the proof", 120, lambda: {tests()[uuid] for uuid in INSTANCES} == {"proven"})
        asked = {"three": 0.3, "seven": 0.7}
        product.create(ns, *(product.tenant(name, quota=share, memory="2Gi", gpu_model=SELECTED, gpu_uuid=INSTANCES[0]) for name, share in asked.items()))
        # Pods that ask for GPUs alone use them up.
        product.create(ns, *(product.idle(f"whole-{number}", quota=1) for number in range(len(GPUS))))
        product.all_running(ns, 120)
        found = {name: (product.clients_of(ns)[name]["gpu"], product.clients_of(ns)[name]["memory_bytes"]) for name in asked}
        assert found == dict.fromkeys(asked, (INSTANCES[0], 2 << 30)), found
        have_shares(cluster, ns, asked, INSTANCES[0])
        product.create(ns, product.idle("any", quota=0.1, memory="1Gi"))
        refused(cluster, ns, "any", "is a MIG instance, for pods with one GPU that name its model or UUID")


def test_instance_without_proof_is_for_one_pod(cluster):
    with installed(cluster, selfTest="off"), cluster.namespace() as ns:
        product.create(ns, *(product.idle(f"p{number}", quota=0.1, memory="1Gi", gpu_model=SELECTED) for number in range(2)))
        product.all_running(ns, 120)
        assert set(product.assigned(ns).values()) == set(INSTANCES), product.assigned(ns)
        product.create(ns, product.idle("p2", quota=0.1, memory="1Gi", gpu_model=SELECTED))
        refused(cluster, ns, "p2", "is given to one pod as a whole")
        cluster.delete("pod", "p0", ns)
        cluster.until("the third has the first one's place", 60, lambda: "p2" in product.assigned(ns))


def device(uuid: str) -> dict:
    """The device of this GPU or instance in the ResourceSlice."""
    (found,) = [one for one in claims.published() if one["name"] == uuid.lower()]
    return found


def seats(uuid: str) -> str:
    return device(uuid)["capacity"]["seats"]["value"]


def test_claims_share_an_instance_whose_controls_are_proven(cluster):
    with given_by_claims(cluster), cluster.namespace() as ns:
        cluster.until("seats for several pods", 120, lambda: {seats(uuid) for uuid in INSTANCES} == {"100"})
        attributes = device(INSTANCES[0])["attributes"]
        assert (attributes["profile"], attributes["parentUUID"]) == ({"string": "1g.16gb"}, {"string": PARENT}), attributes
        asked = {"three": (0.3, "2Gi"), "seven": (0.7, "1177Mi")}
        cluster.create(ns, *(claim(name, round(share * 1000), memory, INSTANCES[0], of=claims.MIG) for name, (share, memory) in asked.items()))
        cluster.create(ns, *(pod(ns, name) for name in asked))
        product.all_running(ns, 120)
        cluster.until("both clients", 60, lambda: set(product.clients_of(ns)) == set(asked))
        found = {name: (one["gpu"], one["quota_ppm"], one["memory_bytes"]) for name, one in product.clients_of(ns).items()}
        assert found == {"three": (INSTANCES[0], 300_000, 2 << 30), "seven": (INSTANCES[0], 700_000, 1177 << 20)}, found
        have_shares(cluster, ns, {name: share for name, (share, _) in asked.items()}, INSTANCES[0])
        # An instance's time and memory are its own, and a claim on a GPU gets no instance.
        cluster.create(ns, *(claim(f"gpu-{number}", 1000, "1Gi") for number in range(len(GPUS))))
        cluster.create(ns, *(pod(ns, f"gpu-{number}") for number in range(len(GPUS))))
        product.all_running(ns, 120)
        waiting = {
            "time": claim("time", 1, "1Gi", INSTANCES[0], of=claims.MIG),
            "memory": claim("memory", 1, "17Gi", of=claims.MIG),
            "any-gpu": claim("any-gpu", 100, "1Gi"),
        }
        cluster.create(ns, *waiting.values(), *(pod(ns, name) for name in waiting))
        for name in waiting:
            refused(cluster, ns, name, "cannot allocate all claims")
        cluster.create(ns, claim("neighbour", 1000, "15Gi", of=claims.MIG), pod(ns, "neighbour"))
        cluster.wait("pod/neighbour", "condition=Ready", ns, seconds=90)
        assert claims.consumed(ns, "neighbour")["device"] == INSTANCES[1].lower()


def test_instance_without_proof_is_for_one_claim(cluster):
    with given_by_claims(cluster, selfTest="off"), cluster.namespace() as ns:
        assert {seats(uuid) for uuid in INSTANCES} == {"1"} and {seats(uuid) for uuid in GPUS} == {"100"}, claims.published()
        cluster.create(ns, *(claim(f"p{number}", 100, "1Gi", of=claims.MIG) for number in range(3)))
        cluster.create(ns, *(pod(ns, f"p{number}") for number in range(2)))
        product.all_running(ns, 120)
        assert {claims.consumed(ns, f"p{number}")["device"] for number in range(2)} == {uuid.lower() for uuid in INSTANCES}
        cluster.create(ns, pod(ns, "p2"))
        refused(cluster, ns, "p2", "cannot allocate all claims")
        cluster.delete("pod", "p0", ns)
        cluster.delete("resourceclaim", "p0", ns)
        cluster.wait("pod/p2", "condition=Ready", ns, seconds=90)
