"""Whether processes on several GPUs run at the same time, by the timelines of the simulated GPUs, whose clocks are the machine's."""

import json

from lib import product
from lib.devices import GPUS, ledger, sim, socket

LAST_MS = 4000


def together(namespace: str, pods: list[str]) -> float:
    """The part of the time of these pods on one GPU in which they also ran on the other one; of the GPU where they ran less."""
    first, second = (intervals(gpu, [f"{namespace}/{pod}" for pod in pods]) for gpu in GPUS)
    least = min(length(first), length(second))
    return length(common(first, second)) / least if least else 0.0


def intervals(gpu: str, pods: list[str]) -> list[tuple[int, int]]:
    """When processes of these pods ran on a GPU."""
    pids = {row["pid"] for row in ledger(gpu)["processes"] if row["label"].rpartition("/")[0] in pods}
    lines = [json.loads(line) for line in sim("timeline", "--socket", socket(gpu), "--last-ms", LAST_MS).splitlines()]
    return [(line["start_ns"], line["end_ns"]) for line in lines if line["pid"] in pids]


def common(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> list[tuple[int, int]]:
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return [(begin, end) for begin, end in pairs if begin < end]


def length(of: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in of)


def clients_of_gpus(namespace: str, pod: str) -> dict[str, dict]:
    """The client of a pod at the manager of each of its GPUs."""
    state = json.loads(product.agent_state())
    rows = [(gpu["uuid"], client) for gpu in state["gpus"] for client in gpu["in_force"] if not client["left_out"]]
    return {uuid: client for uuid, client in rows if (client["namespace"], client["pod"]) == (namespace, pod)}
