"""A workload on the driver API alone, so that tests/gpu/coverage.py can be rehearsed on the simulator."""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import driver_serve

from filling import BLOCKS, MOST

BYTES, KERNEL_US = 4096, 1000
OUT_OF_MEMORY = 2


class Kernels:
    def __init__(self, _device):
        self.driver = driver_serve.Driver()
        self.launch, _, self.request = driver_serve.build(self.driver, BYTES, KERNEL_US)
        self.held = []
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.about = {"version": self.driver.name, "total_memory": total.value}

    def step(self):
        self.launch()

    def wait(self):
        self.request()

    def results(self):
        return [("answer", self.request.answer())]

    def fill(self):
        status = 0
        for size in BLOCKS:
            status = 0
            while status == 0 and sum(held for _, held in self.held) < MOST:
                address = ctypes.c_uint64()
                status = self.driver.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
                if status == 0:
                    self.held.append((address, size))
                elif status != OUT_OF_MEMORY:
                    raise SystemExit(f"cuMemAlloc: error {status}")
        return ("CUDA_ERROR_OUT_OF_MEMORY" if status else None), sum(held for _, held in self.held)

    def recover(self):
        for address, _ in self.held:
            self.driver.call("cuMemFree_v2", address)
        self.held.clear()
