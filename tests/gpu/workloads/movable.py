"""A program with an amount of memory on the GPU, on the driver API alone, so that it runs on the simulator too.

It fills the memory with a pattern, reports that as a JSON line, and answers each line of standard input with one JSON line:
  run <seconds>   kernels of 1 ms, each with a wait: their number, and the longest time of one
  copy            all of the memory to pinned memory of the host and back: the seconds of each direction
  verify          whether all of the memory has its pattern
  quit
"""

import argparse
import ctypes
import json
import os
import sys
import time

import driver_serve

KERNEL_US = 1000
# Memory that one memset fills, and that one copy compares.
PIECE = 16 << 20
# Memory in chunks is a multiple of this.
GRANULE = 2 << 20
# Pinned memory of the copies.
PINNED = 2 << 30


def say(**what):
    print(json.dumps(what), flush=True)


class Memory:
    """The memory, its pattern and a stream."""

    def __init__(self, driver, size, stream):
        self.driver, self.size, self.stream = driver, size // GRANULE * GRANULE, stream
        self.address, self.pinned, self.pinned_size = ctypes.c_uint64(), ctypes.c_void_p(), 0
        driver.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(self.size))
        for at, value in self.pieces():
            driver.call("cuMemsetD32Async", ctypes.c_uint64(self.address.value + at), ctypes.c_uint32(value), ctypes.c_size_t(self.length(at) // 4), stream)
        driver.call("cuStreamSynchronize", stream)

    def pieces(self):
        """Where each piece begins, and the word that fills it."""
        return ((at, (at // PIECE + os.getpid()) * 2_654_435_761 & 0xFFFF_FFFF) for at in range(0, self.size, PIECE))

    def length(self, at):
        return min(PIECE, self.size - at)

    def host(self, size):
        """Pinned memory of at least this size."""
        if self.pinned_size < size:
            self.driver.call("cuMemHostAlloc", ctypes.byref(self.pinned), ctypes.c_size_t(size), 0)
            self.pinned_size = size
        return self.pinned

    def copy(self):
        """Seconds until everything is in pinned memory, and until it is back."""
        size = min(PINNED, self.size)
        host, seconds = self.host(size), []
        for out in (True, False):
            begun = time.monotonic()
            for at in range(0, self.size, size):
                device, length = ctypes.c_uint64(self.address.value + at), ctypes.c_size_t(min(size, self.size - at))
                if out:
                    self.driver.call("cuMemcpyDtoHAsync_v2", host, device, length, self.stream)
                else:
                    self.driver.call("cuMemcpyHtoDAsync_v2", device, host, length, self.stream)
            self.driver.call("cuStreamSynchronize", self.stream)
            seconds.append(time.monotonic() - begun)
        return seconds

    def is_right(self):
        host, libc = self.host(PIECE), ctypes.CDLL(None)
        for at, value in self.pieces():
            length = self.length(at)
            self.driver.call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(self.address.value + at), ctypes.c_size_t(length))
            # Each word is equal to the next one, and the first one is right.
            same = libc.memcmp(host, ctypes.c_void_p(host.value + 4), ctypes.c_size_t(length - 4)) == 0
            if not same or ctypes.c_uint32.from_address(host.value).value != value:
                return False
        return True


def run(request, seconds):
    begun, times = time.monotonic(), []
    while (now := time.monotonic()) - begun < seconds:
        request()
        times.append(time.monotonic() - now)
    return {"kernels": len(times), "longest_s": max(times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, required=True)
    options = parser.parse_args()
    driver = driver_serve.Driver()
    _, stream, request = driver_serve.build(driver, 4096, KERNEL_US)
    memory = Memory(driver, options.bytes, stream)
    say(ready=True, device=driver.name)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            say(**run(request, float(words[1])))
        elif words[0] == "copy":
            out, back = memory.copy()
            say(out_s=out, in_s=back)
        elif words[0] == "verify":
            say(right=memory.is_right())
        else:
            return


if __name__ == "__main__":
    main()
