"""A task whose kernel writes where there is no memory."""

import json

import gpu

import sluice

with sluice.GPUScheduler() as scheduler:
    numbers = scheduler.submit(scheduler.best_effort()(gpu.Numbers), 1).result(timeout=60)

    @scheduler.best_effort()
    def task():
        numbers.add(1 << 40, 10, sluice.current_stream())

    error = scheduler.submit(task).exception(timeout=60)
print(json.dumps({"error": type(error).__name__, "code": error.code}))
