"""Asks NVML through nvidia-ml-py (module pynvml) what a program sees of one GPU. Prints one JSON line."""

import argparse
import json
import os

import pynvml


def attempt(function, *arguments, **more):
    try:
        return function(*arguments, **more)
    except pynvml.NVMLError as error:
        return {"error": str(error)}


def pids(answer):
    return answer if isinstance(answer, dict) else [[entry.pid, entry.usedGpuMemory] for entry in answer]


def memory(answer):
    return answer if isinstance(answer, dict) else {name: int(getattr(answer, name)) for name in ("total", "free", "used")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uuid", required=True)
    options = parser.parse_args()
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByUUID(options.uuid)
    found = {"pid": os.getpid(), "module": getattr(pynvml, "__version__", None), "driver": attempt(pynvml.nvmlSystemGetDriverVersion)}
    found["memory"] = memory(attempt(pynvml.nvmlDeviceGetMemoryInfo, device))
    version = getattr(pynvml, "nvmlMemory_v2", None)
    found["memory_v2"] = memory(attempt(pynvml.nvmlDeviceGetMemoryInfo, device, version=version)) if version else None
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for suffix in ("", "_v2", "_v3"):
            function = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses{suffix}", None)
            if function:
                found[f"{kind}{suffix}"] = pids(attempt(function, device))
    samples = attempt(pynvml.nvmlDeviceGetProcessUtilization, device, 0)
    found["samples"] = samples if isinstance(samples, dict) else sorted({sample.pid for sample in samples if sample.pid})
    rates = attempt(pynvml.nvmlDeviceGetUtilizationRates, device)
    found["rates"] = rates if isinstance(rates, dict) else {"gpu": rates.gpu, "memory": rates.memory}
    pynvml.nvmlShutdown()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
