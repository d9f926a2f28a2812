"""The parts of the GPU's tests: their commands and times, and the plans that put them into leases.

A part writes JSON into $OUT and ends within its limit. `least` is about what it takes on an H200: it is not begun with less time left.
"""

import dataclasses
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", HERE.parent.parent / "target" / "release")).resolve()


@dataclasses.dataclass(frozen=True)
class Part:
    """A command that answers a question."""

    command: list
    # Seconds: usual time, and limit.
    least: int
    limit: int
    # The part measures latencies: no other part runs on this host meanwhile.
    quiet: bool = False
    # The part uses all GPUs of the machine; otherwise it gets one of them. It is quiet, too.
    every_gpu: bool = False
    # Further arguments on the simulator (None: cannot be rehearsed), and on the GPU.
    sim: tuple | None = None
    real: tuple = ()
    # Name of its result, $OUT/<result>.json, if it differs from the part's name.
    result: str = ""
    # It has a flag for its limit: a part that ends by itself leaves more results than a killed one.
    limited: bool = True
    # It reads an earlier result and adds the missing rows.
    resumes: bool = False


def script(name, *arguments):
    return [sys.executable, HERE / name, *arguments]


def sluice(*arguments):
    return [BUILD / "sluice", *arguments]


def sluice_dev(*arguments):
    return [BUILD / "sluice-dev", *arguments]


def preempt(*levels):
    return sluice_dev("bench", "preempt", "--json", "OUT/preempt.json", "--levels", *levels)


JUDGED = "alone be-alone stock1 plain1 auto1 api1 mps1 stock2 plain2 auto2 mps2 alone2".split()
SHORT = ("--gpu", "sim")
DECODE_SHORT = (*SHORT, "--rounds", 2, "--seconds", 2, "--tokens", 12, "--warm", 1)

PARTS = {
    "contract": Part(script("contract.py"), 60, 200, sim=SHORT),
    "reef": Part(script("reef.py"), 60, 200, sim=SHORT),
    "identical": Part(
        script("identical.py", "--parts", "train", "--seconds", 130), 375, 460,
        sim=(*SHORT, "--seconds", 4, "--parts", "train")),
    "identical-api": Part(
        script("identical.py", "--parts", "raw", "api", "--seconds", 15, "--checkpoint", 1, "--calls", 60_000, "--name", "identical-api"), 210, 330,
        sim=(*SHORT, "--calls", 3000, "--seconds", 2)),
    "tenants": Part(
        script("tenants.py"), 315, 400,
        sim=(*SHORT, "--seconds", 6, "--alone-seconds", 2, "--idle-seconds", 6)),
    "disturb": Part(script("disturb.py"), 275, 300, real=("--seconds", 60), sim=(*SHORT, "--seconds", 6)),
    "serve": Part(
        script("serve.py", "--arms", *JUDGED, "--rounds", 5, "--requests", 600, "--short-requests", 200), 520, 566, quiet=True,
        sim=(*SHORT, "--requests", 40, "--short-requests", 40)),
    "serve-auto": Part(
        script("serve.py", "--arms", *"alone be-alone auto1 auto2 alone2".split(), "--rounds", 5, "--requests", 600, "--short-requests", 200, "--name", "serve-auto"),
        190, 260, quiet=True, sim=(*SHORT, "--requests", 40, "--short-requests", 40)),
    "serve-one": Part(
        script("serve.py", "--arms", *"alone be-alone plain1 auto1 api1 auto2 alone2".split(), "--rounds", 5, "--requests", 600, "--short-requests", 200, "--name", "serve-one"),
        290, 350, quiet=True, sim=(*SHORT, "--requests", 40, "--short-requests", 40)),
    "serve-random": Part(
        script("serve.py", "--arms", *"alone be-alone hooked-alone alone-random auto1-random alone2".split(), "--rounds", 5, "--requests", 600, "--name", "serve-random"),
        210, 300, quiet=True, sim=(*SHORT, "--requests", 30, "--short-requests", 30)),
    "random": Part(
        script("serve.py", "--arms", *"be-alone alone-random plain1-random auto1-random light-random alone-random2".split(), "--rounds", 5, "--short-requests", 250, "--name", "random"),
        110, 170, quiet=True, sim=(*SHORT, "--short-requests", 30)),
    "decode-graph": Part(script("decode.py", "graph", "--warm", 14), 250, 450, quiet=True, sim=DECODE_SHORT),
    "decode-power": Part(
        script("decode.py", "power", "--rounds", 10, "--seconds", 2.2, "--name", "decode-power"), 280, 280, quiet=True,
        sim=(*SHORT, "--rounds", 2, "--seconds", 1.2, "--tokens", 12, "--warm", 1)),
    "decode-eager": Part(script("decode.py", "eager"), 200, 345, quiet=True, sim=DECODE_SHORT),
    "two-services": Part(
        script("decode.py", "two-services", "--rate", 3, "--seconds", 8, "--slo", "2ms", "--name", "two-services"), 250, 360, quiet=True, sim=DECODE_SHORT),
    "reef-server": Part(script("reef_server.py"), 300, 390, quiet=True, sim=(*SHORT, "--rounds", 2, "--seconds", 0.5)),
    "reef-mixes": Part(script("reef_mixes.py"), 110, 150, quiet=True, sim=(*SHORT, "--rounds", 1, "--seconds", 0.5, "--split", 32)),
    "launch-bound": Part(script("launch_bound.py"), 150, 250, quiet=True, sim=(*SHORT, "--rounds", 3, "--tokens", 20, "--pairs", 2)),
    "hook-cost": Part(script("hook_cost.py"), 150, 240, quiet=True, sim=(*SHORT, "--rounds", 2, "--seconds", 0.3)),
    "lc-overhead": Part(
        script("lc_overhead.py"), 130, 175, quiet=True, resumes=True,
        sim=(*SHORT, "--rounds", 3, "--requests", 40, "--timed", 10)),
    "preempt": Part(
        preempt("full", "token"), 80, 566, quiet=True, resumes=True, real=("--gpu", "real"),
        sim=(*SHORT, "--requests", 10, "--blocks", 2)),
    "task-api": Part(script("task_api.py"), 150, 240, quiet=True, sim=(*SHORT, "--rounds", 2, "--requests", 20)),
    "pairs": Part(script("pairs.py"), 500, 560, quiet=True, sim=(*SHORT, "--rounds", 1, "--seconds", 1, "--requests", 40, "--settle", 10)),
    "waiting": Part(script("waiting.py"), 150, 200, quiet=True, sim=(*SHORT, "--rounds", 1, "--seconds", 1)),
    "neighbours": Part(script("neighbours.py"), 150, 200, quiet=True, sim=(*SHORT, "--rounds", 1, "--requests", 30)),
    "short-requests": Part(script("short_requests.py"), 420, 560, quiet=True, sim=(*SHORT, "--rounds", 1, "--requests", 60, "--warm", 60)),
    "replay": Part(
        script("replay.py"), 235, 240, quiet=True,
        sim=(*SHORT, "--rounds", 2, "--seconds", 1, "--short", 0.5, "--calibrate", 2, "--warm", 1)),
    "energy": Part(script("energy.py"), 200, 360, quiet=True, sim=(*SHORT, "--rounds", 1, "--seconds", 1, "--training-seconds", 3)),
    "residency": Part(
        script("residency.py"), 235, 240, quiet=True,
        sim=(*SHORT, "--gib", 0.25, "--beside-gib", 0.06, "--service-gib", 0.1, "--quantum-ms", 500, "--rounds", 1, "--seconds", 3, "--train-seconds", 3, "--requests", 60, "--block", 0.5)),
    "stop": Part(script("stop.py", "--seconds", 12), 75, 200, sim=(*SHORT, "--seconds", 1.5)),
    "kill": Part(script("kill.py", "--times", 5), 85, 160, sim=(*SHORT, "--times", 1)),
    "escapes": Part(script("escapes.py"), 120, 240, sim=SHORT),
    "doctor": Part(script("doctor.py"), 45, 110, sim=SHORT),
    "coverage": Part(script("coverage.py"), 240, 300, quiet=True, sim=(*SHORT, "--rounds", 3, "--block", 0.1)),
    "coverage-ddp": Part(
        script("coverage.py", "--workloads", "ddp", "--name", "coverage-ddp"), 60, 100, quiet=True, every_gpu=True,
        sim=(*SHORT, "--rounds", 3, "--block", 0.1)),
    "gangs": Part(script("gangs.py"), 400, 480, quiet=True, every_gpu=True, sim=(*SHORT, "--rounds", 2, "--seconds", 1)),
    "frameworks": Part(script("frameworks.py"), 170, 300),
    "memory": Part(script("memory.py"), 100, 320),
    "nvml": Part(script("nvml.py"), 25, 120, sim=SHORT),
    "ten-clients": Part(script("ten_clients.py"), 15, 150),
    "share": Part(script("share.py"), 260, 440),
    "hint": Part(script("hint.py"), 60, 120, quiet=True),
    "groups": Part(script("groups.py"), 60, 120),
    "table": Part(script("table.py"), 15, 60, result="check-table", limited=False),
    "gates": Part(script("memops.py", "gates"), 15, 60, quiet=True, sim=SHORT),
    "waits": Part(script("memops.py", "waits"), 15, 60, quiet=True, sim=SHORT),
    "calibrate": Part(script("calibrate.py", "--gpu", "real"), 200, 260, quiet=True, result="calibrate-real"),
    "demo": Part(sluice("demo", "--gpu", "real", "--seconds", 30, "--json", "OUT/demo-real.json"), 45, 120, result="demo-real", limited=False),
    **{
        f"overhead-{name}": Part(script("overhead.py", name, "--name", f"overhead-{name}"), 150, 400, quiet=True)
        for name in ("resnet50", "compiled", "graph")
    },
}

# Parts in order. A lease runs as many as its time allows; the next lease continues.
PLANS = {
    # Parts that a neighbour on another GPU does not disturb: one command on two GPUs, or two commands on one GPU.
    "exact": ["contract", "identical", "tenants", "stop", "reef", "kill"],
    # Latencies: on one GPU without other programs. One command each.
    "serve": ["serve"],
    "preempt": ["preempt"],
    # Other services than the periodic ResNet-50: one command each.
    "decode": ["random", "decode-graph"],
    "host-bound": ["launch-bound", "hook-cost", "decode-eager"],
    "services": ["two-services", "serve-auto"],
    "reef": ["reef-server", "reef-mixes"],
    "bits": ["lc-overhead", "identical-api", "frameworks"],
    "rest": ["disturb", "doctor", "serve-random", "memory", "nvml", "ten-clients", "hint", "table", "gates", "waits", "calibrate", "share", "demo", "overhead-resnet50", "overhead-compiled", "overhead-graph", "coverage"],
}
