"""A node as on a cluster: a pod-manager for each GPU that identifies pods by their cgroups and inspects every process of theirs.

This script takes the agent's place: it sends the clients and reports the memory of processes each 400 ms. Needs root.
"""

import contextlib
import os
import pathlib
import tempfile
import threading
import time

import control_api
import nvml_reader
import rig
from control_api import counts, fields, message
from pod_cgroups import Pods

# As the agent reads.
READING_PERIOD = 0.4
BEST_EFFORT = 1
MILLION = 1_000_000
# NVLink multicast stays off on lent machines, whatever environment a program gets.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


class Gpus:
    """The first GPUs of this machine, or simulated ones; `env` is how programs find them."""

    def __init__(self, kind, number):
        self.simulated = kind == "sim"
        made = [rig.Gpu("sim") for _ in range(number)] if self.simulated else []
        self.env = dict(made[0].env) if made else {}
        if made:
            self.env["SLUICE_SIM_SOCKET"] = ",".join(gpu.env["SLUICE_SIM_SOCKET"] for gpu in made)
            os.environ.update(self.env)
        self.nvml = nvml_reader.Nvml(pathlib.Path(self.env["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1" if made else "libnvidia-ml.so.1")
        visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.isdigit()]
        indices = [int(word) for word in visible] if visible and not made else list(range(number))
        self.devices = [self.nvml.device(index) for index in indices[:number]]
        self.uuids = [self.nvml.uuid(device) for device in self.devices]
        self.totals = [self.nvml.total(device) for device in self.devices]

    def plain(self, **more):
        """Environment of a program without the hook."""
        return {**rig.plain_env(**self.env), **NO_MULTICAST, **more}


class Node:
    """`pods`: bytes of memory limit by name, best-effort, on each GPU. At first they share the GPU's time equally. `overcommit`: their memory
    may leave the GPU."""

    def __init__(self, gpus, pods, flags=("--adopt=auto",), overcommit=False):
        self.gpus, self.limits, self.pods, self.overcommit = gpus, dict(pods), Pods(pods), overcommit
        # A short path: socket names contain UUIDs, and their length is limited.
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-", dir="/tmp")
        rig.LAST.append(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.generation = 0
        # The most that NVML has shown of each pod, bytes.
        self.peaks = dict.fromkeys(pods, 0)
        self.failed_readings = []
        self.managers = [self._manager(number, flags) for number in range(len(gpus.uuids))]
        self.prefer(None)
        self.ended = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _manager(self, number, flags):
        control, metrics, gpu = self.path / f"control-{number}.sock", rig.free_address(), self.gpus.uuids[number]
        command = [rig.SLUICE, "pod-manager", "--gpu-uuid", gpu, "--socket", self.path / f"{gpu}.sock", "--control", control, "--metrics", metrics]
        command += [f"--controls={'simulated' if self.gpus.simulated else 'auto'}", f"--node-gpus={len(self.gpus.uuids)}", *flags]
        child = rig.Child(f"pod-manager-{number}", command, rig.plain_env(**self.gpus.env, RUST_LOG="info", NO_COLOR="1"))
        rig.wait_for_socket(control, child)
        return child, control, metrics

    def prefer(self, name):
        """Gives all of the GPUs' time to a pod: a quota of 1.0, and 0 for the others. `None`: equal quotas."""
        self.generation += 1
        clients = []
        for pod, memory in self.limits.items():
            quota = MILLION // len(self.limits) if name is None else MILLION * (pod == name)
            clients.append(message(
                (1, self.pods.uids[pod]), (2, "coverage"), (3, pod), (4, BEST_EFFORT), (5, quota), (6, MILLION), (7, memory), (11, int(self.overcommit))))
        request = message((1, self.generation), (2, f"gpu-test-{os.getpid()}"), *((3, client) for client in clients))
        for _, control, _ in self.managers:
            control_api.call(control, "SetClients", request)

    def command(self, pod, command, **more):
        """Command line of a program under the hook in a pod. The program keeps the pid of what is started."""
        hooked = {"LD_PRELOAD": rig.HOOK, "SLUICE_SOCKET_DIR": self.path, "SLUICE_CLIENT": pod, **more}
        return self.unhooked(pod, ["env", *(f"{name}={value}" for name, value in hooked.items()), *command])

    def unhooked(self, pod, command):
        """The same without the hook."""
        return ["sh", "-c", f'echo $$ > "{self.pods.folders[pod]}/cgroup.procs" && exec "$@"', "sh", *command]

    def _read(self):
        while not self.ended.wait(READING_PERIOD):
            with contextlib.suppress(control_api.Refused):
                self.report()

    def report(self):
        """Reads NVML and reports it to the managers. Returns the bytes of each pod, on the GPU where it has most."""
        owners = {pid: name for name in self.limits for pid in self.pods.pids(name)}
        most = dict.fromkeys(self.limits, 0)
        for device, (_, control, _) in zip(self.gpus.devices, self.managers):
            begun = time.monotonic_ns()
            try:
                seen = self.gpus.nvml.processes(device)
            except OSError as why:
                self.failed_readings.append(str(why))
                control_api.call(control, "ReportMemory", message((3, 1)))
                continue
            sums = dict.fromkeys(self.limits, 0)
            for pid in owners.keys() & seen.keys():
                sums[owners[pid]] += seen[pid] or 0
            most = {name: max(most[name], sums[name]) for name in most}
            processes = [message((1, pid), (2, self.pods.uids[owners[pid]]), (3, seen[pid])) for pid in owners.keys() & seen.keys()]
            control_api.call(control, "ReportMemory", message((1, time.monotonic_ns() - begun), *((2, process) for process in processes)))
        self.peaks = {name: max(self.peaks[name], most[name]) for name in most}
        return most

    def usage(self):
        """What the managers report of each pod, over all GPUs."""
        found = {name: {"violations": {}, "bypassed": {}, "unhooked": 0, "grants": 0, "denied": 0} for name in self.limits}
        for _, control, _ in self.managers:
            for entry in fields(control_api.call(control, "Snapshot", b"")).get(3, []):
                usage = fields(entry)
                pod = found.get(fields(usage[1][0])[3][0].decode())
                for key, number in (("violations", 20), ("bypassed", 10)):
                    for kind, count in counts(usage.get(number, [])).items():
                        pod[key][kind] = pod[key].get(kind, 0) + count
                pod["unhooked"] += usage.get(12, [0])[0] + sum(counts(usage.get(13, [])).values())
                pod["grants"] += usage.get(8, [0])[0]
                pod["denied"] += usage.get(7, [0])[0]
        return found

    def violations(self):
        """The metric `sluice_violations_total` of all pods and kinds that is not zero, by its labels."""
        found = {}
        for number, (_, _, address) in enumerate(self.managers):
            for name, value in rig.scrape(address).items():
                if name.startswith("sluice_violations_total") and value:
                    found[f"{number}: {name}"] = value
        return found

    def log(self, *words):
        """Lines of the managers' logs with one of the words."""
        lines = []
        for child, _, _ in self.managers:
            child.log.flush()
            lines += pathlib.Path(child.log.name).read_text(errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in words)]

    def stop(self):
        self.ended.set()
        self.reader.join(5)
        for child, _, _ in self.managers:
            child.stop()
