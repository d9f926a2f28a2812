"""Runs one workload of tests/gpu/coverage.py. Its arguments: the workload's name, and the device ("cuda", or "cpu" to try the program).

Prints {"loaded"} once its libraries are imported, then answers each line of standard input with one JSON line:
  build         makes the workload, runs its first steps      {"ready", "version", "total_memory", …}
  run <steps>   runs steps, waits for them to end             {"seconds"}
  digest        of all results so far                         {"digest"}
  fill          allocates until memory is refused             {"refused": text or null, "held": bytes}; may be repeated
  recover       frees that memory, and runs a step            {"works"}
  quit
A workload has `step()`, which enqueues a step, `wait()`, `results()` (pairs of a name and bytes), `fill()`, `recover()`, `about` and perhaps
`close()`.
"""

import hashlib
import importlib
import json
import sys
import time

# The module of each workload, and the name of its class there.
WORKLOADS = {
    "eager": ("torch_training", "Eager"),
    "compile": ("torch_training", "Compiled"),
    "graphs": ("torch_training", "Graphs"),
    "expandable": ("torch_training", "Eager"),
    "malloc-async": ("torch_training", "Eager"),
    "loader-fork": ("torch_loader", "Fork"),
    "loader-spawn": ("torch_loader", "Spawn"),
    "generate": ("language", "Generation"),
    "language-training": ("language", "Training"),
    "jax": ("jax_training", "Training"),
    "cupy": ("cupy_arrays", "Arrays"),
    "numba": ("numba_kernels", "Kernels"),
    "ddp": ("torch_ddp", "Training"),
    "stand-in": ("stand_in", "Kernels"),
}
# Steps after which a workload has compiled what it needs.
WARM = 5
# A run waits for the GPU so often, as programs do that read their loss.
WAITS = 4


def say(**what):
    print(json.dumps(what), flush=True)


def run(workload, steps):
    begun = time.perf_counter()
    for part in range(WAITS):
        for _ in range(steps * (part + 1) // WAITS - steps * part // WAITS):
            workload.step()
        workload.wait()
    return {"seconds": time.perf_counter() - begun}


def digest(workload):
    told = hashlib.sha256()
    for name, content in workload.results():
        told.update(name.encode() + content)
    return {"digest": told.hexdigest()}


def main():
    name, device = sys.argv[1], (sys.argv[2:] or ["cuda"])[0]
    module, kind = WORKLOADS[name]
    kind = getattr(importlib.import_module(module), kind)
    say(loaded=True)
    workload = None
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "build":
            workload = kind(device)
            for _ in range(WARM):
                workload.step()
            workload.wait()
            say(ready=True, **workload.about)
        elif word == "run":
            say(**run(workload, int(rest[0])))
        elif word == "digest":
            say(**digest(workload))
        elif word == "fill":
            refused, held = workload.fill()
            say(refused=refused, held=held)
        elif word == "recover":
            workload.recover()
            workload.step()
            workload.wait()
            say(works=True)
        else:
            break
    getattr(workload, "close", lambda: None)()


if __name__ == "__main__":
    main()
