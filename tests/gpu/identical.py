#!/usr/bin/env python3
"""Are results with preemption bit-identical?

Parts (--parts), each compared with an undisturbed run of the same calls without the hook:
  train   ResNet-50 is trained for a fixed number of steps under a pod-manager: it shares the token with a second best-effort program, and a
          latency-critical service preempts the running program; loss, weights and moments are compared
  api     the steps before the checkpoint, the training's stream preempted and restored from a thread of the process: at 1 kHz at
          levels host and device, at 50 Hz at level full
  raw     kernels that are not idempotent (integers, tensor cores, asynchronous copies) on two streams that wait for each other, under
          the manager, and preempted as above
On the simulator the training is workloads/driver_identical.py. Everything known is written after each arm.
"""

import argparse
import os
import pathlib
import subprocess
import tempfile
import time

import rig

RATES = {"host": 1000, "device": 1000, "full": 50}
CLIENTS = [
    {"name": "be0", "request": 0.75, "limit": 1.0, "memory": "60Gi"},
    {"name": "be1", "request": 0.2, "limit": 1.0, "memory": "8Gi"},
    {"name": "lc", "request": 0.05, "limit": 1.0, "memory": "8Gi", "class": "latency-critical"},
]
# Requests of the service at a time, and the time between two, us.
CHUNK, PERIOD_US = 200, 4000


class Stage:
    """The GPU and the compared results."""

    def __init__(self, options):
        self.options, self.result, self.checks = options, {}, {}
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-identical-")
        self.gpu = rig.Gpu(options.gpu)
        self.preempter = pathlib.Path(self.folder.name) / "preempter.so"
        source = rig.HERE / "workloads" / "preempter.c"
        built = subprocess.run(
            [os.environ.get("CC", "cc"), "-O1", "-Wall", "-shared", "-fPIC", "-I", rig.REPO / "hook" / "include", source, "-o", self.preempter, "-lpthread", "-ldl"],
            capture_output=True, text=True, check=False)
        # A build without these calls is reported as such.
        self.no_api = built.stderr[-2000:] if built.returncode else None

    def left(self):
        return self.options.limit - (time.monotonic() - rig.STARTED) - 5

    def plain(self):
        return self.gpu.plain()

    def hooked(self):
        """Under the hook, without a manager."""
        return self.gpu.plain(LD_PRELOAD=str(rig.HOOK))

    def save(self):
        done = bool(self.checks) and all(self.checks.values())
        rig.write(self.options.name, {"ok": done, "checks": self.checks, **self.result})

    def check(self, name, holds):
        self.checks[name] = bool(holds)
        rig.say(f"{name}: {'ok' if holds else 'FAILED'}")

    def run(self, name, command, env):
        """A program from start to end; its JSON lines."""
        child = rig.Child(name, command, env)
        told = [child.answer(90)]
        while "digest" not in told[-1] or told[-1].get("checkpoint"):
            told.append(child.answer(max(1.0, self.left())))
        child.stop(20)
        return told

    def managed(self, name, command):
        """The same as client be0 of a manager, beside a second best-effort program and a service."""
        manager = rig.Manager(CLIENTS, [f"--controls={self.gpu.controls}", *self.options.manager])
        env = lambda client: self.gpu.under(manager, client)
        load = [rig.SLUICE, "load", "be", "--duration-us", "1000", "--depth", "8", "--stop-with-stdin"]
        service = rig.Child("lc", rig.python("driver_serve.py", "--bytes", 65536), env("lc"))
        service.answer(60)
        other = rig.Child("be1", load, env("be1"))
        other.answer(60)
        child = rig.Child(name, command, env("be0"))
        told, latencies = [], []
        while not told or "digest" not in told[-1] or told[-1].get("checkpoint"):
            # The last poll has read all its messages.
            if child.is_read and child.lines.empty():
                rig.fail(f"{name} ended with status {child.process.wait(10)}\n{child.errors()}")
            if self.left() < 0:
                rig.fail("the time limit came first")
            service.ask(f"serve {time.time() + 0.01:.6f} {CHUNK} {PERIOD_US} 0")
            latencies += service.answer(60)["latencies_us"]
            told += [record for _, record in child.records()]
        metrics = {key: value for key, value in manager.metrics().items() if any(word in key for word in ("control", "turn", "level", "hand_over"))}
        for each in (child, other, service):
            each.stop(20)
        manager.stop()
        ordered = sorted(latencies)
        served = {"requests": len(ordered), "p50_us": ordered[len(ordered) // 2], "p99_us": ordered[int(len(ordered) * 0.99)]}
        return told, {"service": served, "metrics": metrics}


def quanta(metrics):
    return sum(value for key, value in metrics.items() if key.startswith("sluice_turns_total"))


def train(stage):
    """The undisturbed run, which all others are compared with, and the one under the manager."""
    options, result = stage.options, stage.result
    command = lambda *more: stage.gpu.python("torch_identical.py", "--batch", options.batch, *more)
    ready, middle, final = stage.run("undisturbed", command("--seconds", options.seconds, "--checkpoint", options.checkpoint), stage.plain())
    result["training"] = {"undisturbed": {"ready": ready, "checkpoint": middle, "final": final}}
    stage.save()
    if "train" in options.parts:
        told, beside = stage.managed("preempted", command("--steps", ready["steps"], "--checkpoint", options.checkpoint))
        result["training"]["managed"] = {"ready": told[0], "checkpoint": told[1], "final": told[2], **beside}
        stage.check("training: quanta were given", quanta(beside["metrics"]) > 10)
        stage.check("training: loss is the same", told[2]["loss_hex"] == final["loss_hex"])
        stage.check("training: weights are the same", told[2]["digest"] == final["digest"])
        stage.save()
    if "api" not in options.parts:
        return
    for level in options.api:
        if not has_api(stage, f"training, {level}"):
            continue
        hz = RATES[level]
        told = stage.run(f"api-{level}", command("--steps", middle["step"], "--preempter", stage.preempter, "--level", level, "--hz", hz), stage.hooked())
        result["training"][f"api-{level}"] = told[-1]
        stage.check(f"training, {level}: was preempted", was_preempted(told[-1], level))
        stage.check(f"training, {level}: weights are the same", told[-1]["digest"] == middle["digest"] and told[-1]["loss_hex"] == middle["loss_hex"])
        stage.save()


def raw(stage):
    options, result = stage.options, stage.result
    command = lambda *more: rig.python("raw_kernels.py", "--calls", str(options.calls), *more)
    first = stage.run("raw", command(), stage.plain())[-1]
    again = stage.run("raw", command(), stage.plain())[-1]
    result["raw"] = {"undisturbed": first}
    stage.check("raw: two undisturbed runs agree", first["digest"] == again["digest"])
    told, beside = stage.managed("raw-managed", command())
    result["raw"]["managed"] = {**told[-1], **beside}
    stage.check("raw: the same under the manager", told[-1]["digest"] == first["digest"])
    stage.save()
    for level in options.api:
        if not has_api(stage, f"raw, {level}"):
            continue
        more = ["--preempter", str(stage.preempter), "--level", level, "--hz", str(RATES[level])]
        told = stage.run(f"raw-{level}", command(*more), stage.hooked())[-1]
        result["raw"][f"api-{level}"] = told
        stage.check(f"raw, {level}: was preempted", was_preempted(told, level))
        stage.check(f"raw, {level}: the same", told["digest"] == first["digest"])
        stage.save()


def has_api(stage, what):
    if stage.no_api:
        stage.result.setdefault("left_out", []).append({"what": what, "why": f"preempter.c does not compile here: {stage.no_api}"})
    return not stage.no_api


def was_preempted(told, level):
    """Ran at the requested level (a lower level is reported, and is no failure of the bits) and restored every stream."""
    preempted = told["preempted"]
    return sum(preempted["achieved"].values()) > 10 and preempted["restores_failed"] == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=["real", "sim"], default="real")
    parser.add_argument("--parts", nargs="+", choices=["train", "api", "raw"], default=["train"])
    parser.add_argument("--api", nargs="*", choices=list(RATES), default=list(RATES), help="levels at which streams are preempted from within")
    parser.add_argument("--seconds", type=float, default=165.0, help="how long the training lasts undisturbed")
    parser.add_argument("--checkpoint", type=float, default=0.1, help="part of the steps with which the part `api` is compared")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--calls", type=int, default=20_000, help="of the raw kernels")
    parser.add_argument("--manager", nargs="*", default=[], help="more arguments of the pod-manager")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--name", default="identical")
    options = parser.parse_args()
    rig.limit(options.limit)
    stage = Stage(options)
    if "raw" in options.parts:
        raw(stage)
    if set(options.parts) & {"train", "api"}:
        train(stage)
    stage.save()
    return 0 if all(stage.checks.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
