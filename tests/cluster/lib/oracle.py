"""What pods hold of GPUs, counted without the product's code."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from lib import api


@dataclass(frozen=True)
class Gang:
    """A pod with shares of several GPUs, which runs on all of them at the same time."""

    gpus: frozenset[str]
    milli: int

    @staticmethod
    def of(pod: dict, gpus: Iterable[str]) -> "Gang | None":
        """`None`: the pod needs no slot, because it has one GPU or whole ones, or is latency-critical."""
        annotations = pod["metadata"]["annotations"]
        if "sluice.dev/gpus" not in annotations or annotations.get("sluice.dev/priority") == "latency-critical":
            return None
        return Gang(frozenset(gpus), Held.of(pod, 0).milli)


def have_slots(gangs: Iterable[Gang]) -> bool:
    """Whether no three gangs of which each two share a GPU ask for more than all of the time."""
    threes = itertools.combinations(gangs, 3)
    return all(sum(one.milli for one in three) <= 1000 or any(not a.gpus & b.gpus for a, b in itertools.combinations(three, 2)) for three in threes)


def gangs_of(pods: list[dict]) -> dict[str, list[Gang]]:
    """The gangs of each node that need slots."""
    found = defaultdict(list)
    for one in pods:
        if node := one["spec"].get("nodeName"):
            gang = Gang.of(one, one["metadata"]["annotations"]["sluice.dev/assigned-gpu"].split(","))
            found[node] += [gang] if gang else []
    return found


@dataclass(frozen=True)
class Held:
    """What a pod takes of each of its GPUs."""

    whole: bool
    milli: int
    memory_bytes: int

    @staticmethod
    def of(pod: dict, gpu_bytes: int) -> "Held":
        annotations = pod["metadata"]["annotations"]
        quota = float(annotations.get("sluice.dev/quota", 0))
        milli = round(1000 * min(quota, 1))
        memory = annotations.get("sluice.dev/memory")
        return Held(quota > 1, milli, int(memory.removesuffix("Gi")) << 30 if memory else gpu_bytes * milli // 1000)


def memories() -> dict[str, dict[str, int]]:
    """Bytes of each GPU of each node."""
    nodes = api.request("GET", "/api/v1/nodes?labelSelector=type%3Dkwok")["items"]
    gpus = {node["metadata"]["name"]: json.loads(node["metadata"]["annotations"]["sluice.dev/gpus"])["gpus"] for node in nodes}
    return {node: {gpu["uuid"]: gpu["memory_bytes"] for gpu in of_node} for node, of_node in gpus.items()}


def on_gpus(pods: list[dict], sizes: dict[str, dict[str, int]]) -> dict[str, list[Held]]:
    """What the bound pods take of each GPU. No GPU has more than it holds, and each gang has a slot."""
    bytes_of = {gpu: size for of_node in sizes.values() for gpu, size in of_node.items()}
    holds = defaultdict(list)
    for one in pods:
        if one["spec"].get("nodeName"):
            gpus, annotations = one["metadata"]["annotations"]["sluice.dev/assigned-gpu"].split(","), one["metadata"]["annotations"]
            wanted = annotations.get("sluice.dev/gpus") or max(1, float(annotations.get("sluice.dev/quota", 0)))
            # Different GPUs, of one node, as many as the pod asks for.
            assert len(gpus) == len(set(gpus)) == int(wanted) and set(gpus) <= set(sizes[one["spec"]["nodeName"]]), one["metadata"]
            for gpu in gpus:
                holds[gpu].append(Held.of(one, bytes_of[gpu]))
    for gpu, held in holds.items():
        assert sum(one.milli for one in held) <= 1000, (gpu, held)
        assert sum(one.memory_bytes for one in held) <= bytes_of[gpu], (gpu, held)
        assert len(held) == 1 or not any(one.whole for one in held), (gpu, held)
    for node, gangs in gangs_of(pods).items():
        assert have_slots(gangs), (node, gangs)
    return holds


def check_gpus(events: list[tuple[str, dict]], sizes: dict) -> None:
    """No GPU had more than it holds at any time."""
    bound = {}
    for kind, one in events:
        if kind == "DELETED":
            bound.pop(one["metadata"]["uid"], None)
        elif one["spec"].get("nodeName"):
            if one["metadata"]["uid"] not in bound:
                on_gpus([*bound.values(), one], sizes)
            bound[one["metadata"]["uid"]] = one


def fits(pod: dict, gpus: dict[str, tuple[int, list[Held]]], gangs: list[Gang]) -> bool:
    """Whether the GPUs of a node, each with its bytes and what pods hold of it, take the pod beside the gangs of the node."""
    annotations = pod["metadata"]["annotations"]
    if Held.of(pod, 0).whole:
        return sum(not held for _, held in gpus.values()) >= int(annotations["sluice.dev/quota"])
    room = []
    for gpu, (size, held) in gpus.items():
        wanted = Held.of(pod, size)
        is_shared = not any(one.whole for one in held)
        if is_shared and sum(one.milli for one in held) + wanted.milli <= 1000 and sum(one.memory_bytes for one in held) + wanted.memory_bytes <= size:
            room.append(gpu)
    sets = itertools.combinations(room, int(annotations.get("sluice.dev/gpus", 1)))
    wanted = (Gang.of(pod, one) for one in sets)
    return any(gang is None or have_slots([*gangs, gang]) for gang in wanted)
