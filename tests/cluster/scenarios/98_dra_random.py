"""Random claims on the GPUs of three nodes, which the stock kube-scheduler allocates, and how many claims it allocates in a second.

The nodes are kwok's, so nothing prepares the claims. Their agents are processes, which publish the devices."""

import contextlib
import random
import re
import statistics
import time
from collections import defaultdict

from lib import api, claims, controlplane, fleet, scale
from lib.agents import Agent
from lib.namespaces import until

SECONDS = 900
NODES, GPUS, CLAIMS, BATCH = 3, 4, 200, 40
UNITS = {"": 1, "k": 1000, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
CLASS = {
    "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": claims.DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{claims.DRIVER}'"}}]},
}
# For the comparison: devices that are given whole, of a driver that does not exist.
PLAIN = "plain.test"
# So many that those count little which are placed before the scheduler is first asked. A slice has at most 128 devices.
PODS = 360
ROUNDS = 5


@contextlib.contextmanager
def nodes():
    """Nodes whose agents publish their GPUs as devices."""
    claims.need_consumable_capacity()
    scale.remove_releases()
    names = fleet.start(NODES, scale.RESOURCE, gpus=GPUS)
    agents = [Agent(node, GPUS, number, dra=True) for number, node in enumerate(names)]
    try:
        api.apply(CLASS)
        for agent in agents:
            agent.start()
        yield names
    finally:
        for agent in agents:
            agent.stop()
        fleet.stop()
        api.kubectl("delete", "deviceclass", claims.DRIVER, PLAIN, "--ignore-not-found")
        api.kubectl("delete", "resourceslices", "--all")


def test_no_gpu_is_overcommitted_and_no_claim_waits_in_vain(cluster):
    with nodes() as names:
        seed = time.time_ns() % 1_000_000
        cluster.record("seed", seed)
        chance = random.Random(seed)
        sizes = {place(one, device): amounts({name: at["value"] for name, at in device["capacity"].items()}) for one in claims.slices() if one["spec"]["nodeName"] in names for device in one["spec"]["devices"]}
        assert len(sizes) == NODES * GPUS, sizes
        with cluster.namespace() as ns:
            wanted = [wish(chance) for _ in range(CLAIMS)]
            for first in range(0, CLAIMS, BATCH):
                for number in range(first, first + BATCH):
                    create(ns, f"c{number}", claim_for(f"c{number}", wanted[number]))
                check(ns, sizes, wanted)
            until("no claim that waits fits", 180, lambda: is_settled(ns, sizes, wanted), every=1)
            placed = [name for name, results in check(ns, sizes, wanted).items() if results]
            cluster.record("allocated", len(placed))
            assert 0 < len(placed) < CLAIMS, "the claims neither all fit nor all wait"
            # A part of them ends, and others take their room.
            for name in chance.sample(placed, len(placed) // 2):
                api.request("DELETE", f"/api/v1/namespaces/{ns}/pods/{name}?gracePeriodSeconds=0")
                api.request("DELETE", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims/{name}")
            until("no claim that waits fits", 180, lambda: is_settled(ns, sizes, wanted), every=1)
            later = [name for name, results in check(ns, sizes, wanted).items() if results and name not in placed]
            cluster.record("allocated_later", len(later))
            assert later
            scale.clear(ns)


def quantity(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * UNITS[unit]


def amounts(texts: dict[str, str]) -> dict[str, int]:
    return {name: quantity(text) for name, text in texts.items()}


def place(slice_: dict, device: dict) -> tuple[str, str]:
    return slice_["spec"]["pool"]["name"], device["name"]


def wish(chance: random.Random) -> dict:
    """What a claim asks for of each of its GPUs; empty amounts: whole ones."""
    count = chance.choice([1, 1, 1, 1, 2, 3])
    if chance.random() < 0.05:
        return {"count": count, "ask": {}}
    ask = {"milli": chance.choice([0, 1, 33, 100, 250, 500, chance.randint(1, 1000)]), "memory": chance.randint(1, 60 << 10) << 20}
    if chance.random() < 0.2:
        ask["critical"] = 1
    return {"count": count, "ask": ask}


def claim_for(name: str, wanted: dict) -> dict:
    made = claims.claim(name, 0, "1Mi")
    (request,) = made["spec"]["devices"]["requests"]
    request["exactly"] |= {"count": wanted["count"], "capacity": {"requests": {key: str(value) for key, value in wanted["ask"].items()}}}
    if wanted["count"] > 1:
        made["spec"]["devices"]["constraints"] = [{"distinctAttribute": f"{claims.DRIVER}/uuid"}]
    return made


def create(ns: str, name: str, *made: dict) -> None:
    """The claims, and a pod that has them."""
    for one in made:
        api.request("POST", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims", one)
    api.request("POST", f"/api/v1/namespaces/{ns}/pods", pod(name))


def pod(name: str) -> dict:
    main = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [main], "tolerations": [fleet.TOLERATION], "nodeSelector": fleet.SELECTOR, "automountServiceAccountToken": False,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def full(wanted: dict, size: dict[str, int]) -> dict[str, int]:
    """What the claim takes of a GPU of this size."""
    return {"milli": 1000, "memory": size["memory"], "critical": 0} | wanted["ask"] | {"seats": 1}


def check(ns: str, sizes: dict, wanted: list[dict]) -> dict[str, list]:
    """No GPU has given more than it has, and each claim has what it asks for. Returns what each claim has."""
    found = api.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims")["items"]
    given = {one["metadata"]["name"]: one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []) for one in found}
    for at, left in free(given, sizes).items():
        assert min(left.values()) >= 0, (at, left)
    for name, results in given.items():
        wish_of = wanted[int(name[1:])]
        if results:
            places = [(one["pool"], one["device"]) for one in results]
            assert len(places) == len(set(places)) == wish_of["count"] and len({pool for pool, _ in places}) == 1, (name, places)
            for one, at in zip(results, places):
                assert amounts(one["consumedCapacity"]) == full(wish_of, sizes[at]), (name, one, wish_of)
    return given


def free(given: dict[str, list], sizes: dict) -> dict:
    left = {at: dict(size) for at, size in sizes.items()}
    for results in given.values():
        for one in results:
            for name, amount in amounts(one["consumedCapacity"]).items():
                left[one["pool"], one["device"]][name] -= amount
    return left


def is_settled(ns: str, sizes: dict, wanted: list[dict]) -> bool:
    """Each claim that waits fits on no node."""
    given = check(ns, sizes, wanted)
    left = free(given, sizes)
    for name, results in given.items():
        wish_of, room = wanted[int(name[1:])], defaultdict(int)
        for (node, device), size in sizes.items():
            room[node] += all(left[node, device][key] >= amount for key, amount in full(wish_of, size).items())
        if not results and max(room.values()) >= wish_of["count"]:
            return False
    return True


def test_shares_are_allocated_as_fast_as_plain_claims(cluster):
    with nodes() as names, cluster.namespace() as ns:
        api.apply(CLASS | {"metadata": {"name": PLAIN}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{PLAIN}'"}}]}})
        api.apply(*(plain_slice(name) for name in names))
        scale.write_configuration()
        rates = defaultdict(list)
        try:
            for number in range(ROUNDS):
                for kind in ("shares", "plain")[:: 1 if number % 2 else -1]:
                    rates[kind].append(burst(ns, kind))
        finally:
            scale.stop()
            controlplane.SCHEDULER.start()
        cluster.record("pods_per_second", {kind: [round(rate, 1) for rate, _ in of] for kind, of in rates.items()})
        cluster.record("pods_per_second_of_the_schedulers_processor_time", {kind: [round(rate, 1) for _, rate in of] for kind, of in rates.items()})
        # Other programs of the machine change the rate by the clock by a factor of two from round to round. Its processor time in all rounds counts.
        shares, plain = (statistics.harmonic_mean([rate for _, rate in rates[kind]]) for kind in ("shares", "plain"))
        part = shares / plain
        cluster.record("shares_to_plain", round(part, 3))
        assert part >= 0.95, rates


def plain_slice(node: str) -> dict:
    spec = {"driver": PLAIN, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}
    spec["devices"] = [{"name": f"device-{number}"} for number in range(PODS // NODES)]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-plain"}, "spec": spec}


def burst(ns: str, kind: str) -> tuple[float, float]:
    """Pods a second, by the clock and by the scheduler's processor time, of pods that all wait before it starts."""
    scale.stop()
    names = [f"{kind}-{time.monotonic_ns()}-{number}" for number in range(PODS)]
    made = [claims.claim(name, 1000 * NODES * GPUS // PODS, "64Mi", limit="0.8", priority="high") for name in names]
    if kind == "plain":
        for one in made:
            one["spec"]["devices"] = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": PLAIN}}]}
    api.many("POST", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims", made)
    api.many("POST", f"/api/v1/namespaces/{ns}/pods", map(pod, names))
    rate = scale.rate_of("plain", PODS)
    scale.clear(ns)
    with contextlib.suppress(OSError):  # It goes on when the API server does not answer in time.
        api.request("DELETE", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims", seconds=60)
    until("claims gone", 120, lambda: not api.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims?limit=1")["items"], every=0.5)
    return rate
