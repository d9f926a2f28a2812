"""What priority is for: the latency-critical example beside the best-effort example, with Sluice and with it switched off."""

import contextlib
import os
import statistics
from pathlib import Path

from lib import api, devices, documentation, product
from lib.devices import GPUS
from lib.processes import running
from lib.settings import REPOSITORY

SECONDS = 420
LC, BE = "latency-critical", "best-effort"
EXAMPLES = [word for name in (LC, BE) for word in ("-f", REPOSITORY / f"examples/{name}.yaml")]
# Pods beside the latency-critical one, and whether Sluice governs both: docs/kubernetes.md switches it off by this file on the node.
ARMS = {"alone": (0, True), "with": (1, True), "off": (1, False)}
SWITCH = Path("/run/sluice/disable")
ROUNDS = 3
# Of five seconds each, in every arm of every round.
REPORTS = 2
# A slice that yields at once is below the first value; the second is the driver's default.
TINY_US, DEFAULT_US = 1000, 2048


def test_latency_critical_beside_best_effort(cluster):
    product.need()
    documentation.provide_product()
    # An earlier try may have ended with Sluice switched off.
    SWITCH.unlink(missing_ok=True)
    hurry(*(devices.program(uuid).pid() for uuid in GPUS))
    with cluster.namespace() as ns:
        cluster.kubectl("apply", "-n", ns, *EXAMPLES)
        began, rows = scheduling_counters(), []
        for number in range(ROUNDS):
            # Interleaved, and another one first each time: a busy machine hits all alike.
            names = list(ARMS)
            for arm in names[number:] + names[:number]:
                prepare(cluster, ns, *ARMS[arm])
                rows += [{"round": number, "arm": arm} | row for row in measured(cluster, ns)]
        SWITCH.unlink(missing_ok=True)
        cluster.record("rows", rows)
        of_arm = {arm: [row for row in rows if row["arm"] == arm] for arm in ARMS}
        p99 = {arm: round(statistics.median(row["latency_us"]["p99"] for row in its), 1) for arm, its in of_arm.items()}
        p50 = {arm: round(statistics.median(row["latency_us"]["p50"] for row in its), 1) for arm, its in of_arm.items()}
        cluster.record("median_of_p50_us", p50)
        cluster.record("median_of_p99_us", p99)
        # The milliseconds are a machine's that does other things too. What is asserted is the GPU's own account, in its own
        # time: how long a latency-critical kernel that was there stood, because others had the GPU.
        waited = {arm: sum(row["lc_waited_us"] for row in its) / sum(row["lc_kernels"] for row in its) for arm, its in of_arm.items()}
        cluster.record("waited_us_per_kernel", {arm: round(us, 1) for arm, us in waited.items()})
        assert waited["with"] < waited["off"], (waited, rows)
        # Best-effort work went on beside it and gave way within its slice, which the controls had made tiny; switched off,
        # all processes have the driver's own.
        assert all(row["be_kernels_per_s"] > 0 and max(row["be_slices_us"]) < TINY_US < DEFAULT_US < min(row["lc_slices_us"]) for row in of_arm["with"]), rows
        assert all(row["be_slices_us"] == row["lc_slices_us"] == [DEFAULT_US] for row in of_arm["off"]), rows
        # The manager did it, no process was given up, and with the setting off nothing changes.
        made = {name: value - began.get(name, 0) for name, value in scheduling_counters().items()}
        cluster.record("controls", made)
        assert made["turns"] > 0 and made["slice"] > 0 and made["given_up"] == 0 and made["refused"] == 0, made
        assert all(row["level"]["turn"] > 0 for row in of_arm["with"]), rows
        assert not any(sum(row["level"].values()) for row in of_arm["off"]), rows


def hurry(*pids: int) -> None:
    """These run before all else. The GPU is a program here: what a busy machine does meanwhile would be measured with it."""
    for thread in [int(path.name) for pid in pids for path in Path(f"/proc/{pid}/task").iterdir()]:
        # Groups of pods have no real-time budget of their own.
        with contextlib.suppress(OSError):
            Path("/sys/fs/cgroup/cpu/tasks").write_text(str(thread))
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(10))


def prepare(cluster, ns: str, pods_beside: int, governed: bool) -> None:
    cluster.kubectl("scale", "-n", ns, f"deployment/{BE}", f"--replicas={pods_beside}")
    if SWITCH.exists() == governed:
        # The hook reads the switch when a program starts.
        SWITCH.unlink() if governed else SWITCH.touch()
        cluster.kubectl("rollout", "restart", "-n", ns, f"deployment/{LC}", f"deployment/{BE}")
    for name in (BE, LC):
        cluster.kubectl("rollout", "status", "-n", ns, f"deployment/{name}", "--timeout=90s", seconds=100)
    cluster.until("best-effort pods ended", 30, lambda: len(product.assigned(ns)) == 1 + pods_beside)
    hurry(*running("lc", "--report-every"))
    began = best_effort(ns)
    cluster.until("best-effort work", 30, lambda: not pods_beside or best_effort(ns) > began)


def measured(cluster, ns: str) -> list[dict]:
    """The latency-critical pod's report of its requests, and the best-effort pod's kernels in the GPU's ledger."""
    # The first report, and a part of the next one, are of the time when pods came and went.
    last = report(cluster, ns, report(cluster, ns, {}))
    (lc,) = [name for name in product.phases(ns) if name.startswith(LC)]
    before, rows = product.counted(gpu_of(ns)), []
    for _ in range(REPORTS):
        earlier, last = last, report(cluster, ns, last)
        after = product.counted(gpu_of(ns))
        was, now = before[1][f"{ns}/{lc}"], after[1][f"{ns}/{lc}"]
        kernels_per_s = (kernels_of_best_effort(ns, after[1]) - kernels_of_best_effort(ns, before[1])) / (after[0] - before[0]) * 1e9
        rows.append(
            {
                "requests": last["requests"] - earlier["requests"],
                "latency_us": last["latency_us"],
                "lc_kernels": now.kernels - was.kernels,
                "lc_waited_us": round((now.waited_ns - was.waited_ns) / 1000, 1),
                "lc_slices_us": slices_us(after[1], f"{ns}/{lc}"),
                "be_kernels_per_s": round(kernels_per_s, 1),
                "be_slices_us": slices_us(after[1], f"{ns}/{BE}-"),
                "level": level(ns),
            }
        )
        before = after
    return rows


def slices_us(rows: dict, pods: str) -> list[float]:
    """Time slices of the contexts that these pods have."""
    return sorted({ns / 1000 for pod, row in rows.items() if pod.startswith(pods) for ns in row.slices_ns})


def report(cluster, ns: str, before: dict) -> dict:
    """The latency-critical pod's next report. One question a second, for asking takes a processor's time too."""
    (pod,) = [name for name in product.phases(ns) if name.startswith(LC)]
    path = f"/api/v1/namespaces/{ns}/pods/{pod}/log?tailLines=1"

    def fresh() -> dict | None:
        record = api.request("GET", path)
        return record if record and record["record"] == "lc_progress" and record != before else None

    return cluster.until("a report", 60, fresh, every=1)


def best_effort(ns: str) -> int:
    """The kernels of best-effort pods that have ended on the GPU."""
    return kernels_of_best_effort(ns, product.counted(gpu_of(ns))[1])


def kernels_of_best_effort(ns: str, rows: dict) -> int:
    return sum(row.kernels for pod, row in rows.items() if pod.startswith(f"{ns}/{BE}-"))


def gpu_of(ns: str) -> str:
    """Both pods' GPU."""
    (gpu,) = set(product.assigned(ns).values())
    return gpu


def level(ns: str) -> dict[str, int]:
    gpu = gpu_of(ns)
    return {s.labels["level"]: int(s.value) for s in product.metrics() if s.name == "sluice_level" and s.labels["gpu"] == gpu}


def scheduling_counters() -> dict[str, float]:
    """What the managers did with the GPUs' controls so far, all GPUs together."""
    names = {
        "turns": "sluice_turns_total",
        "given_up": "sluice_steering_given_up_total",
        "refused": "sluice_control_descriptors_refused_total",
    }
    samples = product.metrics()
    found = {word: sum(s.value for s in samples if s.name == name) for word, name in names.items()}
    made = [s for s in samples if s.name == "sluice_controls_total" and s.labels["outcome"] == "done"]
    return found | {kind: sum(s.value for s in made if s.labels["control"] == kind) for kind in ("slice", "stop", "start")}
