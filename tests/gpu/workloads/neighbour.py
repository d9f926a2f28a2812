"""A best-effort program on the driver API alone that disturbs others without kernels of its own. Reads commands from standard input and
answers each with one JSON line that has its rate:
  run <start> <seconds> copies <chunk> <direction>   copies between pinned memory and the GPU from the Unix time <start> on, two chunks of
                                                     so many bytes in flight in each direction (`in`, `out`, `both`); bytes a second
  run <start> <seconds> allocations <size> <fill>    allocates so many bytes, fills them if <fill> is 1, and frees them; times a second
"""

import ctypes
import json
import sys
import time

import driver_serve

BYTES = 1 << 30
IN_FLIGHT = 2


class Copies:
    """Copies in one direction on a stream of their own."""

    def __init__(self, driver, inwards):
        self.driver, self.inwards, self.pending, self.offset = driver, inwards, [], 0
        self.host, self.device, self.stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
        driver.call("cuMemHostAlloc", ctypes.byref(self.host), ctypes.c_size_t(BYTES), 0)
        driver.call("cuMemAlloc_v2", ctypes.byref(self.device), ctypes.c_size_t(BYTES))
        driver.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.events = [ctypes.c_void_p() for _ in range(IN_FLIGHT)]
        for event in self.events:
            driver.call("cuEventCreate", ctypes.byref(event), 2)

    def fill(self, chunk):
        """Submits copies until enough are in flight."""
        while self.events:
            host, device = ctypes.c_void_p(self.host.value + self.offset), ctypes.c_uint64(self.device.value + self.offset)
            function, to, source = ("cuMemcpyHtoDAsync_v2", device, host) if self.inwards else ("cuMemcpyDtoHAsync_v2", host, device)
            self.driver.call(function, to, source, ctypes.c_size_t(chunk), self.stream)
            event = self.events.pop()
            self.driver.call("cuEventRecord", event, self.stream)
            self.pending.append(event)
            self.offset = (self.offset + chunk) % BYTES

    def completed(self):
        """The number of copies that have ended since the last call."""
        count = 0
        while self.pending and self.driver.library.cuEventQuery(self.pending[0]) == 0:
            self.events.append(self.pending.pop(0))
            count += 1
        return count


def copy(driver, all_copies, end, chunk, direction):
    chosen = {"in": all_copies[:1], "out": all_copies[1:], "both": all_copies}[direction]
    done = 0
    for copies in chosen:
        copies.offset = 0
    while time.perf_counter() < end:
        for copies in chosen:
            copies.fill(chunk)
            done += chunk * copies.completed()
    driver.call("cuCtxSynchronize")
    for copies in chosen:
        copies.completed()
    return done


def allocate(driver, stream, end, size, fill):
    times, memory = 0, ctypes.c_uint64()
    while time.perf_counter() < end:
        driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        if fill:
            driver.call("cuMemsetD8Async", memory, 1, ctypes.c_size_t(size), stream)
            driver.call("cuStreamSynchronize", stream)
        driver.call("cuMemFree_v2", memory)
        times += 1
    return times


def main():
    driver = driver_serve.Driver()
    copies = [Copies(driver, inwards) for inwards in (True, False)]
    print(json.dumps({"ready": True, "device": driver.name}), flush=True)
    for line in sys.stdin:
        _, start, seconds, what, size, how = line.split()
        time.sleep(max(0.0, float(start) - time.time()))
        began = time.perf_counter()
        end = began + float(seconds)
        done = copy(driver, copies, end, int(size), how) if what == "copies" else allocate(driver, copies[0].stream, end, int(size), how == "1")
        print(json.dumps({"rate": done / (time.perf_counter() - began)}), flush=True)


if __name__ == "__main__":
    main()
