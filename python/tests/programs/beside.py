"""A best-effort task of kernels of one millisecond, and a latency-critical task that reads its progress while it works on the host."""

import json
import sys
import time
from ctypes import POINTER, byref, c_size_t, c_uint64, c_void_p, cast

import gpu

import sluice

# A second of work, so that it is not over before a busy machine runs the latency-critical task.
KERNELS = 1000


class Progress:
    """The number of the best-effort kernels that have ended, read on another stream."""

    def __init__(self):
        self.numbers, self.page = gpu.Numbers(1), c_void_p()
        gpu.call("cuMemAllocHost_v2", byref(self.page), c_size_t(8))

    def read(self):
        stream = c_void_p(sluice.current_stream())
        gpu.call("cuMemcpyDtoHAsync_v2", self.page, self.numbers.at, c_size_t(8), stream)
        gpu.call("cuStreamSynchronize", stream)
        return cast(self.page, POINTER(c_uint64)).contents.value


def main():
    config_file, action = sys.argv[1:]
    with sluice.GPUScheduler(config_file) as scheduler:

        def critical(function):
            return scheduler.submit(scheduler.latency_critical()(function)).result(timeout=60)

        @scheduler.best_effort()
        def training():
            for _ in range(KERNELS):
                progress.numbers.add(0, 1000, sluice.current_stream())

        def read_twice():
            time.sleep(0.02)
            first = progress.read()
            time.sleep(0.03)
            return [first, progress.read()]

        def wait_for_progress():
            first = progress.read()
            while progress.read() < first + 20:
                pass

        progress = critical(Progress)
        trained = scheduler.submit(training)
        while critical(progress.read) < 3:
            pass
        seen = critical({"read_twice": read_twice, "wait_for_progress": wait_for_progress}[action])
        beside = not trained.done()
        trained.result(timeout=60)
        print(json.dumps({"seen": seen, "beside": beside, "all": critical(progress.read), "metrics": scheduler.get_metrics()}))


if __name__ == "__main__":
    main()
