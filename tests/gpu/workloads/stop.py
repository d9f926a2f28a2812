"""Preempts a stream of equal kernels again and again, and tells what ran on: by a counter that the kernels themselves write.

Each time: a look at the counter, sluice_preempt with sync, a look, a pause, a look, sluice_restore. A kernel counts itself when it
ends, in host memory that the GPU sees, so the result does not depend on any report. Prints {"ready"}, then one JSON line for each
length and level: `after` is how many kernels ended between call and return, `standing` how many in the pause after it.
"""

import argparse
import ctypes
import json
import random
import threading
import time

import raw_kernels

LEVELS = {"host": 0, "device": 1, "full": 2}
SIMULATED = "SLUICE-SIM 1\nkernel tick params=ptr:u64,n:u32,iters:u32 ns_per_iter=1 effect=add\n"
# Every block is busy for `iters` ns by the GPU's clock; then the first thread of all counts.
PTX = """
.version 6.4
.target sm_70
.address_size 64
.visible .entry tick(.param .u64 ptr, .param .u32 n, .param .u32 iters)
{
    .reg .pred %more;
    .reg .b32 %thread, %block;
    .reg .b64 %begin, %now, %ns, %at;
    ld.param.u64 %at, [ptr];
    ld.param.u32 %thread, [iters];
    cvt.u64.u32 %ns, %thread;
    mov.u64 %begin, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %more, %now, %ns;
    @%more bra AGAIN;
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    or.b32 %thread, %thread, %block;
    setp.ne.u32 %more, %thread, 0;
    @%more ret;
    cvta.to.global.u64 %at, %at;
    ld.volatile.global.u64 %now, [%at];
    add.u64 %now, %now, 1;
    st.volatile.global.u64 [%at], %now;
    membar.sys;
    ret;
}
"""


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("queue_size", ctypes.c_uint), ("batch_size", ctypes.c_uint), ("task_timeout_us", ctypes.c_int), ("level", ctypes.c_int),
        ("bound_us", ctypes.c_uint), ("outage_ms", ctypes.c_uint), ("idle", ctypes.c_void_p), ("idle_argument", ctypes.c_void_p),
    ]


class Preemption(ctypes.Structure):
    _fields_ = [("level", ctypes.c_int), ("took_ns", ctypes.c_ulonglong)]


class Stream:
    def __init__(self, driver, hook):
        self.driver, self.hook = driver, hook
        self.stream = driver.made("cuStreamCreate", 1)
        module = ctypes.c_void_p()
        driver("cuModuleLoadData", ctypes.byref(module), (SIMULATED if driver.simulated else PTX).encode() + b"\0")
        self.kernel = ctypes.c_void_p()
        driver("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"tick")
        # Pinned and mapped: a pointer for both sides.
        host = driver.made("cuMemHostAlloc", ctypes.c_size_t(4096), 2)
        ctypes.memset(host, 0, 4096)
        self.device = driver.made("cuMemHostGetDevicePointer_v2", host, 0, kind=ctypes.c_uint64)
        self.counter = ctypes.c_uint64.from_address(host.value)

    def call(self, name, *arguments):
        code = getattr(self.hook, name)(self.stream, *arguments)
        if code != 0:
            raise SystemExit(f"{name}: {code}")

    def preempt(self):
        achieved = Preemption()
        return self.hook.sluice_preempt(self.stream, 1, ctypes.byref(achieved)), achieved

    def launch(self, ns):
        values = [self.device, ctypes.c_uint32(1), ctypes.c_uint32(ns)]
        parameters = (ctypes.c_void_p * 3)(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values])
        self.driver("cuLaunchKernel", self.kernel, 132, 1, 1, 256, 1, 1, 0, self.stream, parameters, None)


def measure(stream, kernel_us, level, samples, end):
    config = Config()
    stream.hook.sluice_preemption_defaults(ctypes.byref(config))
    config.size, config.level = ctypes.sizeof(config), LEVELS[level]
    stream.call("sluice_preemption_enable", ctypes.byref(config))
    stop, launched, chance = threading.Event(), [stream.counter.value], random.Random(3)

    def keep_going():
        # The context is current on the thread that made it only.
        stream.driver("cuCtxSetCurrent", stream.driver.context)
        while not stop.is_set():
            # A bounded number ahead, and always more than are in flight.
            if launched[0] - stream.counter.value < max(64, 2000 // kernel_us):
                stream.launch(kernel_us * 1000)
                launched[0] += 1
            else:
                time.sleep(0)

    busy = threading.Thread(target=keep_going, daemon=True)
    busy.start()
    took, after, standing, levels, failed = [], [], [], {}, {}
    while len(took) < samples and time.monotonic() < end:
        seen, patience = stream.counter.value, time.monotonic() + 10
        while stream.counter.value < seen + 2:
            if time.monotonic() > patience:
                raise SystemExit(f"{level}, {kernel_us} us: nothing has ended for 10 s, {seen} of {launched[0]} kernels before")
            time.sleep(0)
        time.sleep(chance.random() * max(kernel_us, 50) * 2e-6)
        before = stream.counter.value
        result, achieved = stream.preempt()
        stopped = stream.counter.value
        time.sleep(max(2 * kernel_us, 200) * 1e-6)
        stood = stream.counter.value
        stream.call("sluice_restore")
        if result != 0:
            failed[str(result)] = failed.get(str(result), 0) + 1
            continue
        took.append(achieved.took_ns / 1000)
        after.append(stopped - before)
        standing.append(stood - stopped)
        levels[achieved.level] = levels.get(achieved.level, 0) + 1
    stop.set()
    busy.join()
    stream.driver("cuStreamSynchronize", stream.stream)
    stream.call("sluice_preemption_disable")
    def quantile(values, share):
        return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None

    names = {number: name for name, number in LEVELS.items()}
    return {
        "kernel_us": kernel_us, "level": level, "samples": len(took), "took_us": {name: quantile(took, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))},
        "after_p50": quantile(after, 0.5), "after_p99": quantile(after, 0.99), "after_max": max(after, default=None), "after_mean": sum(after) / max(1, len(after)), "standing_max": max(standing, default=None),
        "failed": failed, "achieved": {names[number]: times for number, times in levels.items()}, "exact": stream.counter.value == launched[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel-us", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0, help="at most, for one length and level")
    options = parser.parse_args()
    driver = raw_kernels.Driver()
    hook = ctypes.CDLL(None)
    print(json.dumps({"ready": True, "device": driver.name, "has_api": hasattr(hook, "sluice_preempt")}), flush=True)
    if not hasattr(hook, "sluice_preempt"):
        return
    stream = Stream(driver, hook)
    for kernel_us in options.kernel_us:
        for level in options.levels:
            print(json.dumps(measure(stream, kernel_us, level, options.samples, time.monotonic() + options.seconds)), flush=True)


if __name__ == "__main__":
    main()
