"""A best-effort task that copies to pageable memory, so that the driver call waits for the stream, beside latency-critical tasks. Without a
longest stop only the scheduler can let the stream continue. Prints whether the task ended, and the preemptions."""

import ctypes
import json
import os
import time

import gpu

import sluice

ROUNDS, KERNEL_US, BYTES = 12, 50_000, 32
# Time between two latency-critical tasks: all of them come while the copies last, also on a busy machine.
PAUSE_S = 0.01

scheduler = sluice.GPUScheduler(sluice.Config(longest_stop_ms=0))
numbers = scheduler.submit(scheduler.latency_critical()(gpu.Numbers), 4).result(timeout=30)
there = (ctypes.c_uint64 * 4)()


@scheduler.best_effort()
def copy():
    for _ in range(ROUNDS):
        stream = sluice.current_stream()
        numbers.add(0, KERNEL_US, stream)
        gpu.call("cuMemcpyDtoHAsync_v2", there, numbers.at, ctypes.c_size_t(BYTES), ctypes.c_void_p(stream))
    return there[0]


copied = scheduler.submit(copy)
for _ in range(3):
    time.sleep(PAUSE_S)
    scheduler.submit(scheduler.latency_critical()(int)).result(timeout=30)
try:
    ended = copied.result(timeout=30) == ROUNDS
except TimeoutError:
    ended = False
print(json.dumps({"ended": ended, "preempted": scheduler.get_metrics()["preemptions"] > 0}), flush=True)
# A task that has not ended would hold up the interpreter's end.
os._exit(0)
