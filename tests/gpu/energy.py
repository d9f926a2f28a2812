#!/usr/bin/env python3
"""Energy of a GPU by NVML's counter: is it attributed to clients in full, and what does a context switch cost?

1. Two ResNet-50 trainings under Sluice with requests of 0.3 and 0.7. In each window the metrics of energy of both clients and of the idle GPU are
   added and compared with NVML's counter (bar: within 5 %), each client's energy with its share of the GPU time (`attributed`).
2. Kernels of 1 ms that sleep, so that they draw little power (workloads/light.py): one program alone, and two side by side by the driver's time
   slicing with slices of 2048, 1000 and 500 us (slice.c). Side by side the GPU switches at the end of each slice. What it draws more than alone, over the
   switches of a second, is the energy of a switch (`switch_mj`). `switches_per_s` follows from the slice and the measured time of a switch
   (190 us, docs/reference/gpu.md), as no counter is read. A loaded switch draws that much of the GPU's time whatever its energy: `time_mj` is the power alone
   times 190 us, for comparison.
Interleaved blocks in an order that changes (order.py). The counter moves some ten times a second, so a block lasts seconds.

This script has not been run on a GPU yet. A rehearsal with --gpu sim exercises the script: the simulator's switches draw what its kernels do.
"""

import argparse
import ctypes
import os
import statistics
import tempfile
import time

import nvml_reader
import order
import rig
import rounds

SLICES_US = (2048, 1000, 500)
# From the decision to preempt a context until the next one runs.
SWITCH_US = 190
MORE = 0.05


class Counter:
    """The energy that the GPU has drawn since its driver was loaded, joules."""

    def __init__(self, gpu):
        library = f"{gpu.env['LD_LIBRARY_PATH']}/libnvidia-ml.so.1" if gpu.simulated else "libnvidia-ml.so.1"
        self.nvml = nvml_reader.Nvml(library)
        self.device = self.nvml.device(0)

    def joules(self):
        total = ctypes.c_ulonglong()
        self.nvml.do("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(total))
        return total.value / 1e3


def run(children, counter, seconds):
    """Rates of programs that work side by side, and the mean power meanwhile, W. The first and the last tenth are not measured."""
    start = time.time() + 0.3
    for child in children:
        child.ask(f"run {start:.6f} {seconds}")
    time.sleep(0.3 + seconds * 0.1)
    first, begun = counter.joules(), time.monotonic()
    time.sleep(seconds * 0.8)
    last, ended = counter.joules(), time.monotonic()
    return [child.answer(seconds + 60)["rate"] for child in children], (last - first) / (ended - begun)


def attributed(manager):
    """Joules of the clients, by name, and of the idle GPU; GPU seconds of the clients."""
    metrics = manager.metrics()
    by_client = lambda series: {name: metrics[f'{series}{{client="{name}"}}'] for name in ("a", "b")}
    return by_client("sluice_energy_joules_total"), metrics["sluice_idle_energy_joules_total"], by_client("sluice_gpu_seconds_total")


def attribution(gpu, counter, options):
    """The parts of the first question."""
    clients = [{"name": name, "request": request, "limit": 1.0, "memory": "60Gi"} for name, request in (("a", 0.3), ("b", 0.7))]
    manager = rig.Manager(clients, [f"--controls={gpu.controls}"])
    command = gpu.python("torch_model.py", "resnet50")
    children = {name: rig.Child(name, command, gpu.under(manager, name)) for name in "ab"}
    for child in children.values():
        child.answer(180)
    # Readings come each 400 ms; these pauses show the manager the idle power.
    time.sleep(2)
    energies, idle, seconds = attributed(manager)
    first = counter.joules()
    run(children.values(), counter, options.training_seconds)
    time.sleep(2)
    total = counter.joules() - first
    energies_then, idle_then, seconds_then = attributed(manager)
    parts = {name: energies_then[name] - energies[name] for name in energies}
    used = {name: seconds_then[name] - seconds[name] for name in seconds}
    found = sum(parts.values()) + idle_then - idle
    for child in children.values():
        child.stop()
    manager.stop()
    row = {
        "nvml_j": total, "attributed_j": found, "of_nvml": found / total, "idle_j": idle_then - idle, "clients_j": parts, "gpu_seconds": used,
        "share_of_energy": parts["b"] / sum(parts.values()), "share_of_time": used["b"] / sum(used.values()),
    }
    rig.say(f"attributed {found:.0f} J of {total:.0f} J; b: {row['share_of_energy']:.3f} of the energy, {row['share_of_time']:.3f} of the time")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--training-seconds", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=8.0, help="a block of the second question")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=360, help="seconds after which everything is ended")
    options = parser.parse_args()
    rig.limit(options.limit)
    gpu = rig.Gpu(options.gpu)
    # The manager loads NVML: on the simulator that of the simulator.
    os.environ.update(gpu.env)
    counter = Counter(gpu)
    first = attribution(gpu, counter, options)

    command = gpu.python("torch_model.py", "light")
    library = f"{tempfile.mkdtemp(prefix='sluice-slice-')}/slice.so"
    rig.compile_library(rig.HERE / "slice.c", library)

    def env(slice_us):
        # The simulator does not see slices that its own ioctls do not carry.
        return gpu.plain() if gpu.simulated else gpu.plain(LD_PRELOAD=library, SLICE_US=str(slice_us), SLICE_AFTER_MS="1000")

    pairs = {slice_us: [rig.Child(f"light-{slice_us}-{n}", command, env(slice_us)) for n in range(2)] for slice_us in SLICES_US}
    for child in (child for pair in pairs.values() for child in pair):
        child.answer(120)
    time.sleep(1.5)
    arms = {"alone": pairs[SLICES_US[0]][:1], **{f"slices-{slice_us}": pair for slice_us, pair in pairs.items()}}
    powers, rates, idles = {name: [] for name in arms}, {name: [] for name in arms}, []
    arm_order = order.Order(list(arms), options.seed)
    for _ in rounds.numbers(options):
        begin, since = counter.joules(), time.monotonic()
        time.sleep(2)
        idles.append((counter.joules() - begin) / (time.monotonic() - since))
        for name in arm_order.round():
            found, power = run(arms[name], counter, options.seconds)
            powers[name].append(power)
            rates[name].append(sum(found))
        result = {"ok": abs(first["of_nvml"] - 1) <= MORE, "attributed": first, "idle_w": rig.spread(idles), "rows": {name: row(name, powers, rates) for name in arms}}
        rig.write("energy", {**result, **arm_order.result()}, quiet=True)
    for name, told in result["rows"].items():
        rig.say(f"{name:12}", {key: round(value, 3) for key, value in told.items() if isinstance(value, float)})
    for child in (child for pair in pairs.values() for child in pair):
        child.stop()
    rig.say("written:", rig.OUT / "energy.json")
    return 0 if result["ok"] else 1


def row(name, powers, rates):
    """Power and rate of an arm; beside another program also the energy of a switch, from the medians."""
    told = {"power_w": statistics.median(powers[name]), "rate": statistics.median(rates[name]), "powers_w": powers[name]}
    if name != "alone":
        alone = statistics.median(powers["alone"])
        switches = 1e6 / (int(name.rpartition("-")[2]) + SWITCH_US)
        told |= {"switches_per_s": switches, "switch_mj": 1e3 * (told["power_w"] - alone) / switches, "time_mj": alone * SWITCH_US / 1e3}
    return told


if __name__ == "__main__":
    raise SystemExit(main())
