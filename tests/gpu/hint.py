#!/usr/bin/env python3
"""Hold kernels of latency-critical processes, without a manager: LC latency beside a training whose slice is 1 us, with and without.

The manager is a stub that says "latency-critical, one other process"; the slice is set inside the training by slice.c. Blocks are
interleaved. LC is the ResNet-50 service (or, with --service driver, a copy and a 100 us kernel on the driver API, which the simulator
can run too). Arms:
  alone     hints off, no other program runs
  plain     hints off
  auto      a hold at each request's first copy
  api       the program's hint 300 us ahead
Expected (docs/reference/gpu.md §16): p99 of auto / alone 0.98, api 0.87, plain 1.03. Under 90 s on a GPU.
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import rig
import stub_manager

LEAD_US = 300


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Stage:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-hint-")
        folder = pathlib.Path(self.folder.name)
        self.sim = None
        more = {}
        if options.gpu == "sim":
            more = {"LD_LIBRARY_PATH": str(options.sim_driver.resolve()), "SLUICE_SIM_SOCKET": str(folder / "sim.sock")}
            self.sim = rig.Child("sim", [rig.SLUICE, "sim", "--socket", folder / "sim.sock"], rig.plain_env())
            rig.wait_for_socket(folder / "sim.sock", self.sim)
        self.manager = stub_manager.StubManager(folder / "manager.sock")
        hooked = {"LD_PRELOAD": str(rig.HOOK), "SLUICE_SOCKET": str(folder / "manager.sock"), **more}
        service = rig.python(f"{options.service}_serve.py")
        self.log = folder / "hook.log"
        self.children = {
            "plain": rig.Child("plain", service, rig.plain_env(SLUICE_HINTS="off", **hooked)),
            "lc": rig.Child("lc", service, rig.plain_env(SLUICE_LOG=str(self.log), **hooked)),
        }
        if options.gpu == "real":
            library = folder / "slice.so"
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, rig.HERE / "slice.c", "-lpthread"], check=True)
            training = rig.python("torch_model.py", "resnet50")
            self.children["be"] = rig.Child("be", training, rig.plain_env(LD_PRELOAD=str(library), SLICE_US="1"))
        else:
            load = [rig.SLUICE, "load", "be", "--kernel-us", "1000"]
            self.children["be"] = rig.Child("be", load, rig.plain_env(**more)) if options.neighbour else None
        self.ready = {name: child.answer(90) for name, child in self.children.items() if child and (name != "be" or options.gpu == "real")}
        rig.say("ready:", self.ready)

    def block(self, service, lead, beside, requests):
        start, seconds = time.time() + 0.2, requests * self.options.period / 1e6
        be = self.children["be"] if beside and self.options.gpu == "real" else None
        if be:
            be.ask(f"run {start:.6f} {seconds + 0.3:.3f}")
        self.children[service].ask(f"serve {start + 0.15:.6f} {requests} {self.options.period} {lead} 0")
        told = self.children[service].answer(seconds + 30)
        return told, be.answer(60)["rate"] if be else None

    def stop(self):
        for child in self.children.values():
            if child:
                child.stop()
        if self.sim:
            self.sim.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--service", choices=["torch", "driver"], default="torch")
    parser.add_argument("--sim-driver", type=pathlib.Path, default=rig.BUILD, help="folder of the simulator's libcuda.so.1")
    parser.add_argument("--neighbour", action="store_true", help="simulator: a best-effort load beside")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=120, help="of an arm in a round")
    parser.add_argument("--period", type=float, default=10_000, help="us between arrivals")
    parser.add_argument("--limit", type=int, default=110)
    options = parser.parse_args()
    if options.gpu == "sim":
        options.service = "driver"
    rig.limit(options.limit)
    stage = Stage(options)
    arms = {"alone": ("plain", 0, False), "plain": ("plain", 0, True), "auto": ("lc", 0, True), "api": ("lc", LEAD_US, True)}
    latencies, rates, hints, holds = {name: [] for name in arms}, {name: [] for name in arms}, {}, {}
    # From here on there is a contender, and the hook measures beside the running neighbour whether hold kernels pay.
    stage.block("lc", 0, True, 40)
    stage.manager.set_contenders(1)
    stage.block("lc", 0, True, 60)
    for number in range(options.rounds):
        for name, (service, lead, beside) in arms.items():
            told, rate = stage.block(service, lead, beside, options.requests)
            latencies[name].append(told["latencies_us"])
            rates[name] += [rate] if rate else []
            hints[name] = told["hints"]
            holds[name] = told.get("holds")
            p50, p99 = percentile(told["latencies_us"], 0.5), percentile(told["latencies_us"], 0.99)
            rig.say(f"round {number} {name:6} p50 {p50:8.1f} p99 {p99:8.1f}", rate or "", told["hints"] or "", told.get("holds") or "")
    rows = {}
    for name, blocks in latencies.items():
        pooled = [value for block in blocks for value in block]
        rows[name] = {"p50": percentile(pooled, 0.5), "p99": percentile(pooled, 0.99), "mean": statistics.fmean(pooled), "n": len(pooled)}
        rows[name] |= {"be_rate": statistics.median(rates[name]) if rates[name] else None, "hints": hints[name], "holds": holds[name]}
    for row in rows.values():
        row["p99_of_alone"] = row["p99"] / rows["alone"]["p99"]
    log = stage.log.read_text() if stage.log.exists() else ""
    made_ready = "ready to hold" in log
    be_errors = stage.children["be"].errors() if stage.children["be"] else ""
    rig.write("hint", {"ok": made_ready, "rows": rows, "hook_log": log.splitlines(), "slices": be_errors.splitlines()[-4:]})
    stage.stop()
    return 0 if made_ready else 1


if __name__ == "__main__":
    raise SystemExit(main())
