"""A training's stand-in on the driver API alone, so that the scripts around trainings can be rehearsed on the simulator: equal kernels
behind window.py, as torch_model.py has them. Arguments of the latter that mean nothing here are taken and left alone.
"""

import argparse
import ctypes
import types

import driver_serve
import window

# Kernels of a step, and the time of each on a GPU.
KERNELS, KERNEL_US = 10, 1000


def torch_like(driver, stream):
    """What window.py uses of PyTorch."""
    def make(function, *arguments):
        handle = ctypes.c_void_p()
        driver.call(function, ctypes.byref(handle), *arguments)
        return handle

    class Event:
        def __init__(self):
            self.handle = make("cuEventCreate", 2)

        def record(self):
            driver.call("cuEventRecord", self.handle, stream)

        def synchronize(self):
            driver.call("cuEventSynchronize", self.handle)

        def __del__(self):
            driver.call("cuEventDestroy_v2", self.handle)

    def mem_get_info():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    cuda = types.SimpleNamespace(init=lambda: None, Event=Event, mem_get_info=mem_get_info, synchronize=lambda: driver.call("cuCtxSynchronize"))
    return types.SimpleNamespace(cuda=cuda)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=["resnet50", "transformer", "lora", "light"])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--staged", action="store_true")
    parser.add_argument("--own-stream", action="store_true", help="as torch_model.py; this program always works on a stream of its own")
    options = parser.parse_args()
    driver = driver_serve.Driver()
    kernel, stream, _ = driver_serve.build(driver, 4096, KERNEL_US)
    torch = torch_like(driver, stream)
    if options.staged:
        window.stand_by(torch)

    def step():
        for _ in range(KERNELS):
            kernel()

    step()
    window.serve(torch, step, 2, {"workload": "stand-in", "batch": options.batch, "device": driver.name})


if __name__ == "__main__":
    main()
