"""PyTorch on a stream that is preempted: adds one to a number, many times, and looks from another stream whether it stands."""

import ctypes
import json
import sys

import torch

ADDS, LEVEL = 600, int(sys.argv[1]) if len(sys.argv) > 1 else 1


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("queue_size", ctypes.c_uint), ("batch_size", ctypes.c_uint), ("task_timeout_us", ctypes.c_int),
                ("level", ctypes.c_int), ("bound_us", ctypes.c_uint), ("outage_ms", ctypes.c_uint), ("idle", ctypes.c_void_p), ("idle_argument", ctypes.c_void_p)]


class Preemption(ctypes.Structure):
    _fields_ = [("level", ctypes.c_int), ("took_ns", ctypes.c_ulonglong)]


def main():
    sluice = ctypes.CDLL(None)
    low, high = torch.cuda.Stream(), torch.cuda.Stream()
    stream = ctypes.c_void_p(low.cuda_stream)
    number, big = torch.zeros(1, device="cuda"), torch.randn(4096, 4096, device="cuda")
    host = torch.zeros(1, pin_memory=True)
    torch.cuda.synchronize()

    def read():
        with torch.cuda.stream(high):
            host.copy_(number, non_blocking=True)
            high.synchronize()
        return int(host.item())

    config = Config()
    sluice.sluice_preemption_defaults(ctypes.byref(config))
    config.level = LEVEL
    answers = [sluice.sluice_preemption_enable(stream, ctypes.byref(config))]
    with torch.cuda.stream(low):
        for _ in range(ADDS):
            torch.mm(big, big)
            number.add_(1)
    while read() < 3:
        pass
    done = Preemption()
    answers.append(sluice.sluice_preempt(stream, 1, ctypes.byref(done)))
    stopped = read()
    with torch.cuda.stream(high):
        for _ in range(20):
            torch.mm(big, big)
        high.synchronize()
    still = read()
    answers.append(sluice.sluice_restore(stream))
    low.synchronize()
    end = read()
    answers.append(sluice.sluice_preemption_disable(stream))
    ok = answers == [0, 0, 0, 0] and stopped == still < ADDS and end == ADDS
    print(json.dumps({"answers": answers, "level": done.level, "took_us": done.took_ns / 1e3, "stopped": stopped, "still": still, "end": end, "ok": ok}))
    return 0 if ok else 2


if __name__ == "__main__":
    raise SystemExit(main())
