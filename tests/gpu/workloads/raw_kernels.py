"""Launches kernels that are not idempotent (raw_kernels.ptx) on two streams that wait for each other, and tells the bits they leave.

The calls follow from the seed alone, so that two runs have to agree to the bit, whatever happened to their streams meanwhile. On the
simulator the kernels are its own non-idempotent effect. Prints {"ready"}, then the result as JSON lines.
"""

import argparse
import ctypes
import hashlib
import json
import pathlib
import random
import time

import preempter

KERNELS = ["step", "tensor", "fetch"]
SIMULATED = "SLUICE-SIM 1\n" + "".join(f"kernel {name} params=ptr:u64,n:u32,rounds:u32 ns=60000 effect=mix\n" for name in KERNELS)
THREADS, WORDS_OF_BLOCK = 256, 2048
COPIED = 4096
# So far the host may run ahead, in calls.
AHEAD = 512


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(128)
        self("cuDeviceGetName", name, 128, device)
        self.name = name.value.decode()
        self.simulated = self.name.startswith("Sluice Simulated")
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.context = context
        self("cuCtxSetCurrent", context)
        module = ctypes.c_void_p()
        text = SIMULATED if self.simulated else pathlib.Path(__file__).with_suffix(".ptx").read_text()
        self("cuModuleLoadData", ctypes.byref(module), text.encode() + b"\0")
        self.kernels = {}
        for kernel in KERNELS:
            self.kernels[kernel] = ctypes.c_void_p()
            self("cuModuleGetFunction", ctypes.byref(self.kernels[kernel]), module, kernel.encode())

    def __call__(self, function, *arguments):
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            raise SystemExit(f"{function}: error {code}")

    def made(self, function, *arguments, kind=ctypes.c_void_p):
        handle = kind()
        self(function, ctypes.byref(handle), *arguments)
        return handle


class Run:
    def __init__(self, driver, blocks):
        self.driver, self.blocks, self.words = driver, blocks, blocks * WORDS_OF_BLOCK
        self.bytes = ctypes.c_size_t(self.words * 8)
        self.streams = [driver.made("cuStreamCreate", 1) for _ in range(2)]
        self.events = [driver.made("cuEventCreate", 2) for _ in range(2)]
        chance = random.Random(1)
        self.buffers = {}
        for kernel in KERNELS:
            self.buffers[kernel] = driver.made("cuMemAlloc_v2", self.bytes, kind=ctypes.c_uint64)
            driver("cuMemcpyHtoD_v2", self.buffers[kernel], chance.randbytes(self.words * 8), self.bytes)

    def launch(self, kernel, stream, rounds):
        values = [self.buffers[kernel], ctypes.c_uint32(self.words), ctypes.c_uint32(rounds)]
        parameters = (ctypes.c_void_p * 3)(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values])
        self.driver("cuLaunchKernel", self.driver.kernels[kernel], self.blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, None)

    def switch(self, at):
        """Everything after this call goes to the other stream, behind what is on this one."""
        self.driver("cuEventRecord", self.events[at], self.streams[at])
        self.driver("cuStreamWaitEvent", self.streams[1 - at], self.events[at], 0)
        return 1 - at

    def play(self, calls, seed):
        chance, at = random.Random(seed), 0
        for number in range(calls):
            if chance.random() < 0.1:
                at = self.switch(at)
            if chance.random() < 0.02:
                source, target = chance.sample(KERNELS, 2)
                self.driver("cuMemcpyDtoDAsync_v2", self.buffers[target], self.buffers[source], ctypes.c_size_t(COPIED), self.streams[at])
            else:
                self.launch(chance.choice(KERNELS), self.streams[at], chance.choice([1, 4, 16, 64]))
            if number % AHEAD == AHEAD - 1:
                self.driver("cuStreamSynchronize", self.streams[at])
        for stream in self.streams:
            self.driver("cuStreamSynchronize", stream)

    def digest(self):
        told = {}
        for kernel, buffer in self.buffers.items():
            host = ctypes.create_string_buffer(self.words * 8)
            self.driver("cuMemcpyDtoH_v2", host, buffer, self.bytes)
            told[kernel] = hashlib.sha256(host.raw).hexdigest()
        return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--blocks", type=int, help="of a launch; 264 on a GPU")
    parser.add_argument("--preempter", help="preempter.so; preempt the streams")
    parser.add_argument("--level", choices=preempter.LEVELS, default="host")
    parser.add_argument("--hz", type=int, default=1000)
    options = parser.parse_args()
    driver = Driver()
    run = Run(driver, options.blocks or (1 if driver.simulated else 264))
    print(json.dumps({"ready": True, "device": driver.name}), flush=True)
    handles = [stream.value for stream in run.streams]
    active = options.preempter and preempter.Preempter(options.preempter, handles, options.level, options.hz, options.seed)
    begin = time.monotonic()
    run.play(options.calls, options.seed)
    seconds = time.monotonic() - begin
    preempted = active.stop() if active else None
    print(json.dumps({"digest": run.digest(), "calls": options.calls, "seconds": seconds, "preempted": preempted}), flush=True)


if __name__ == "__main__":
    main()
