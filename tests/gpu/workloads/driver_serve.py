"""A latency-critical service on the driver API alone, so that it runs on the simulator too: a pinned input copy and one kernel.

Reads commands from standard input and answers each with one JSON line, as torch_serve.py does:
  serve <start> <requests> <period_us> <lead_us> [<jitter_us>]
      requests from the Unix time <start> on, each up to <jitter_us> late; a hint <lead_us> before each, 0 for none
  poisson <start> <requests> <mean_us> <seed>
      the same at random times with this mean distance, without hints
  split <start> <requests> <period_us> <timed>
      the same without hints, and where the time of each goes
"""

import argparse
import ctypes
import itertools
import json
import random
import sys
import time

import holds
import split

MICROSECOND = 1e-6
SIMULATED = b"SLUICE-SIM 1\nkernel busy params=ns:u64 ns=100000\n\0"
# Keeps every SM busy for `ns`, by the GPU's clock.
PTX = b"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry busy(.param .u64 ns)
{
    .reg .pred %more;
    .reg .b64 %begin, %now, %ns;
    ld.param.u64 %ns, [ns];
    mov.u64 %begin, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %more, %now, %ns;
    @%more bra AGAIN;
    ret;
}
\0"""


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, device)
        self.name = name.value.decode()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, function, *arguments):
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            raise SystemExit(f"{function}: error {code}")


def build(driver, bytes, us, copies=True):
    """A function that launches a kernel of so many microseconds, its stream, and one that makes a request: a copy unless it `copies` nothing,
    the kernel, a wait."""
    host, device, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(bytes), 0)
    driver.call("cuMemAlloc_v2", ctypes.byref(device), ctypes.c_size_t(bytes))
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    text = SIMULATED if driver.name.startswith("Sluice Simulated") else PTX
    driver.call("cuModuleLoadData", ctypes.byref(module), text)
    driver.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"busy")
    ns = ctypes.c_uint64(us * 1000)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(ns), ctypes.c_void_p))
    size = ctypes.c_size_t(bytes)

    # Neither the pointer nor the array of pointers keeps the number alive.
    def launch(_ns=ns):
        driver.call("cuLaunchKernel", kernel, 132, 1, 1, 1024, 1, 1, 0, stream, parameters, None)

    def copy():
        if copies:
            driver.call("cuMemcpyHtoDAsync_v2", device, host, size, stream)

    def request():
        copy()
        launch()
        driver.call("cuStreamSynchronize", stream)

    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        driver.call("cuEventCreate", ctypes.byref(event), 0)

    def steps(timed):
        copy()
        copied = time.perf_counter()
        if timed:
            driver.call("cuEventRecord", events[0], stream)
        launch()
        if timed:
            driver.call("cuEventRecord", events[1], stream)
        launched = time.perf_counter()
        driver.call("cuStreamSynchronize", stream)
        waited, ms = time.perf_counter(), ctypes.c_float()
        if timed:
            driver.call("cuEventElapsedTime", ctypes.byref(ms), *events)
        return (copied, launched, waited), 1000 * ms.value if timed else None

    request.steps = steps
    ctypes.memset(host, 7, bytes)
    if not copies:
        # The answer is checked all the same.
        driver.call("cuMemcpyHtoD_v2", device, host, size)
    request.answer = lambda: copied(driver, device, bytes)
    return launch, stream, request


def copied(driver, device, bytes):
    """What the device's memory holds."""
    found = ctypes.create_string_buffer(bytes)
    driver.call("cuMemcpyDtoH_v2", found, device, ctypes.c_size_t(bytes))
    return found.raw


def lookup(name):
    """A function of the hook, if this process runs under it."""
    return getattr(ctypes.CDLL(None), name, None)


def spin_until(when):
    while (left := when - time.perf_counter()) > 0:
        if left > 0.002:
            time.sleep(left - 0.0015)


def periodic(requests, period, jitter):
    """When requests are due."""
    chance = random.Random(0)
    return [index * period + chance.uniform(0, jitter) for index in range(requests)]


def poisson(requests, mean, seed):
    chance = random.Random(seed)
    return list(itertools.accumulate(chance.expovariate(1 / mean) for _ in range(requests)))


def serve(request, hint, start, times, lead):
    begin = time.perf_counter() + (start - time.time())
    made, hints = holds.Requests(), {}
    for due in times:
        due += begin
        if lead and hint:
            spin_until(due - lead)
            code = hint(int(lead / MICROSECOND))
            hints[code] = hints.get(code, 0) + 1
        spin_until(due)
        began = time.perf_counter()
        returned, _ = request.steps(False)
        made.over(due - begin, [at - due for at in (began, *returned)])
    return {**made.told(), "hints": hints}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=300_000)
    parser.add_argument("--us", type=int, default=100, help="time of the kernel on a GPU")
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    parser.add_argument("--uncopied", action="store_true", help="requests without the copy of their input")
    options = parser.parse_args()
    if options.staged:
        print(json.dumps({"loaded": True}), flush=True)
        sys.stdin.readline()
    driver = Driver()
    _, _, request = build(driver, options.bytes, options.us, not options.uncopied)
    for _ in range(100):
        request()
    hint = lookup("sluice_hint")
    print(json.dumps({"ready": True, "hooked": hint is not None, "device": driver.name}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            return
        start, requests = float(words[1]), int(words[2])
        if words[0] == "split":
            told = split.run(request.steps, spin_until, start, requests, float(words[3]) * MICROSECOND, int(words[4]))
            told["answer_unchanged"] = request.answer() == b"\7" * options.bytes
            print(json.dumps(told), flush=True)
            continue
        if words[0] == "poisson":
            times, lead = poisson(requests, float(words[3]) * MICROSECOND, int(words[4])), 0
        else:
            period, lead, jitter = (float(word) * MICROSECOND for word in (words[3:6] + ["0"])[:3])
            times = periodic(requests, period, jitter)
        told = serve(request, hint, start, times, lead)
        told["answer_unchanged"] = request.answer() == b"\7" * options.bytes
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
