"""One process with the executor of `sluice.serve` and load inside it: the real-time model, the best-effort model, or both.

Reads commands from standard input and answers each with one JSON line:
  build                      after {"loaded": true}: prepares the models and chooses the split; tells both
  run <JSON object>          start (Unix time), seconds, real_time (bool), best_effort (clients), split (SMs, "pause", "all" or "chosen"), seed
"""

import argparse
import json
import logging
import os
import pathlib
import sys
import time

# As sluice.serve sets it, but before this program starts CUDA.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

from sluice.serve import config, load, service  # noqa: E402
from sluice.serve.backend import WHOLE  # noqa: E402

DUTY = 0.3


def say(**what):
    print(json.dumps(what), flush=True)


def models(options):
    """The configuration: the same network in both classes."""
    source = "{sim: {kernels: 14, us: 100}}" if options.sim else "{torchvision: %s}" % options.network
    given = "{shape: [4]}" if options.sim else "{shape: [3, 224, 224], dtype: FP16}"
    lines = {
        "rt": f"  - {{name: rt, class: real-time, source: {source}, input: {given}}}",
        "be": f"  - {{name: be, class: best-effort, source: {source}, input: {given}, batches: [1, 2, 4]}}",
    }
    return "\n".join([f"split: {options.split}", f"bound: {options.bound}", "models:", *(lines[name] for name in options.models)])


class Worker:
    def __init__(self, options):
        self.options = options
        self.service = service.Service(config.parse(models(options)))
        self.service.prepare()
        self.executor = self.service.executor
        self.executor.start(self.service.backend)
        self.alone_s = None
        if "rt" in options.models:
            load.measure(self.executor, 1.0, self.service.models["rt"], 0.01)
            latencies = sorted(load.measure(self.executor, 1.0, self.service.models["rt"], 0.01).latencies)
            self.alone_s = latencies[len(latencies) // 2]
        self.choices = {}
        if options.split == "profile":
            self.choices = service.profile(self.executor, list(self.service.models.values()), self.service.backend.splits, options.bound)
        self.chosen = self.choices["rt"].split if self.choices else WHOLE

    def about(self):
        programs = {name: {size: {str(split): round(1000 * seconds, 3) for split, seconds in getattr(program, "times", {}).items()} | {"pieces": program.pieces, "exact": getattr(program, "exact", True)}
                           for size, program in by.items()} for name, by in self.executor.programs.items()}
        return {
            "ready": True, "splits": self.service.backend.splits, "chosen": "pause" if self.chosen is None else self.chosen, "alone_ms": self.alone_s and 1000 * self.alone_s,
            "slowdowns": {str(split): slow for split, slow in (self.choices["rt"].slowdowns if self.choices else {}).items()}, "program_ms": programs}

    def run(self, start, seconds, real_time, best_effort, split="chosen", seed=0, period=None):
        self.executor.splits["rt"] = {"chosen": self.chosen, "pause": None, "all": WHOLE}.get(split, split)
        before = self.executor.preemptions
        time.sleep(max(0.0, start - time.time()))
        made = load.measure(
            self.executor, seconds, self.service.models["rt"] if real_time else None, period or (self.alone_s or 0) / DUTY,
            [(self.service.models["be"], 1) for _ in range(best_effort)], seed)
        return {
            "latencies_ms": [round(1000 * value, 4) for value in made.latencies], "rate": made.rows / made.seconds, "changed": made.changed, "kinds": made.kinds,
            "failed": made.failed, "preemptions": self.executor.preemptions - before}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=["rt", "be"], default=["rt", "be"])
    parser.add_argument("--network", default="resnet152")
    parser.add_argument("--split", default="priorities")
    parser.add_argument("--bound", type=float, default=0.1)
    parser.add_argument("--sim", action="store_true")
    options = parser.parse_args()
    sys.setswitchinterval(0.0001)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if not options.sim:
        import torch
        import torchvision  # noqa: F401

        torch.cuda.init()
    say(loaded=True)
    sys.stdin.readline()
    worker = Worker(options)
    say(**worker.about())
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word != "run":
            return
        say(**worker.run(**json.loads(rest)))


if __name__ == "__main__":
    main()
