"""The stand-in of torch_decode.py on the driver API alone, so that it runs on the simulator too: kernels of the same structure, no network.

A request is a prefill of several kernels, then tokens: one launch (`graph`), or many short ones with the host's own time before each (`eager`),
a copy of 8 bytes to the host and a wait for the stream; the host pauses between two tokens. Commands: decoding.py.
"""

import ctypes
import time

import decoding
from driver_serve import PTX, Driver

# A kernel lasts as many ns as its only parameter gives, as that of PTX does on a GPU.
SIMULATED = b"SLUICE-SIM 1\nkernel busy params=iters:u64 ns_per_iter=1\n\0"
PREFILL_KERNELS, PREFILL_US = 8, 500
GRAPH_US = 1000
EAGER_LAUNCHES, EAGER_US, EAGER_HOST_US = 60, 5, 10
GAP_US = 50


def spin(us):
    end = time.perf_counter() + 1e-6 * us
    while time.perf_counter() < end:
        pass


class Service:
    def __init__(self, driver, mode, tokens):
        self.driver, self.tokens = driver, tokens
        self.stream, self.host, self.device, module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        driver.call("cuMemHostAlloc", ctypes.byref(self.host), ctypes.c_size_t(8), 0)
        driver.call("cuMemAlloc_v2", ctypes.byref(self.device), ctypes.c_size_t(8))
        driver.call("cuMemsetD8_v2", self.device, ctypes.c_ubyte(7), ctypes.c_size_t(8))
        driver.call("cuModuleLoadData", ctypes.byref(module), SIMULATED if driver.name.startswith("Sluice Simulated") else PTX)
        driver.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"busy")
        self.launches, self.us, self.host_us = (1, GRAPH_US, 0) if mode == "graph" else (EAGER_LAUNCHES, EAGER_US, EAGER_HOST_US)
        for number in range(3):
            self.prefill(number)
            self.enqueue_token()
            self.wait()

    def launch(self, us):
        ns = ctypes.c_uint64(1000 * us)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
        self.driver.call("cuLaunchKernel", self.kernel, 132, 1, 1, 1024, 1, 1, 0, self.stream, parameters, None)

    def copy(self):
        self.driver.call("cuMemcpyDtoHAsync_v2", self.host, self.device, ctypes.c_size_t(8), self.stream)

    def wait(self):
        self.driver.call("cuStreamSynchronize", self.stream)
        answer = ctypes.cast(self.host, ctypes.POINTER(ctypes.c_uint64))[0]
        spin(GAP_US)
        return answer

    def prefill(self, number):
        for _ in range(PREFILL_KERNELS):
            self.launch(PREFILL_US)
        self.copy()
        return self.wait() + number

    def enqueue_token(self):
        for _ in range(self.launches):
            spin(self.host_us)
            self.launch(self.us)
        self.copy()

    def rewind(self):
        pass

    def clock_mhz(self):
        """The simulator's GPU has no clock that changes."""
        self.wait()
        return 1980.0

    def prefill_gpu_us(self):
        return PREFILL_KERNELS * PREFILL_US

    def token_gpu_us(self):
        return self.launches * self.us


def make(mode, tokens):
    driver = Driver()
    return Service(driver, mode, tokens), {"device": driver.name}


if __name__ == "__main__":
    decoding.main(__doc__, make)
