"""A manager is killed while a process is stopped by the GPU's controls and cannot start itself: the agent starts it again."""

import os
import signal

from lib import product
from lib.devices import GPUS
from lib.processes import running

SECONDS = 240
CORE = {"the_agent_restarts_a_process_that_a_killed_manager_left_stopped"}
# More kernels than end before the manager is killed, each of a millisecond: the GPU has them, the program is not needed.
QUEUED = 1000


def test_the_agent_restarts_a_process_that_a_killed_manager_left_stopped(cluster):
    product.need()
    gpu = GPUS[0]
    with cluster.namespace() as ns:
        words = ["load", "be", "--duration-us", "1000", "--depth", QUEUED, "--seconds", "100000"]
        names = ("one", "other")
        product.create(ns, *(product.tenant(name, *words, quota=0.5, memory="256Mi", gpu_uuid=gpu) for name in names))
        product.all_running(ns)

        def kernels() -> dict[str, int]:
            rows = product.counted(gpu)[1]
            return {name: rows[f"{ns}/{name}"].kernels if f"{ns}/{name}" in rows else 0 for name in names}

        # Both have had more than one quantum, so one of them is stopped at any time.
        cluster.until("quanta of both", 60, lambda: min(kernels().values()) > 2 * QUEUED)
        assert levels(gpu)["turn"] == 2
        tenants = running("be", "--depth", str(QUEUED))
        assert len(tenants) == 2, tenants
        (manager,) = running("pod-manager", gpu)
        # No thread of these processes runs from here on, so no hook can enable channels.
        for pid in tenants:
            os.kill(pid, signal.SIGSTOP)
        try:
            os.kill(manager, signal.SIGKILL)
            cluster.until("the manager's end", 10, lambda: manager not in running("pod-manager", gpu))
            began = kernels()
            # What they have submitted runs to its end, of both.
            cluster.until("kernels of both", 30, lambda: all(now > began[name] for name, now in kernels().items()))
        finally:
            for pid in tenants:
                os.kill(pid, signal.SIGCONT)
        # The next manager schedules both again.
        cluster.until("both at the next manager", 60, lambda: levels(gpu).get("turn") == 2)
        began = kernels()
        cluster.until("work of both", 60, lambda: all(now > began[name] + 2 * QUEUED for name, now in kernels().items()))


def levels(gpu: str) -> dict[str, int]:
    """Processes by what makes them give way; none while the manager does not answer."""
    return {s.labels["level"]: int(s.value) for s in product.metrics() if s.name == "sluice_level" and s.labels["gpu"] == gpu}
