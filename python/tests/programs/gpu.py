"""A kernel of the simulated GPU: after some microseconds it adds one to a 64-bit number. Uses the context of the calling thread."""

import ctypes

MODULE = b"SLUICE-SIM 1\nkernel add params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 effect=add\n\0"
driver = ctypes.CDLL("libcuda.so.1")


def call(function, *arguments):
    code = getattr(driver, function)(*arguments)
    if code:
        raise RuntimeError(f"{function}: error {code}")


class Numbers:
    """Numbers in the GPU's memory, all 0."""

    def __init__(self, count):
        self.count, self.at, self.kernel, module = count, ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), MODULE)
        call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"add")
        call("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(8 * count))
        call("cuMemsetD8_v2", self.at, ctypes.c_ubyte(0), ctypes.c_size_t(8 * count))

    def add(self, index, us, stream):
        """Submits a kernel of `us` microseconds that adds one to the number of this index."""
        values = [ctypes.c_uint64(self.at.value + 8 * index), ctypes.c_uint32(1), ctypes.c_uint32(us)]
        parameters = (ctypes.c_void_p * 3)(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values])
        call("cuLaunchKernel", self.kernel, 1, 1, 1, 32, 1, 1, 0, ctypes.c_void_p(stream), parameters, None)

    def read(self):
        found = (ctypes.c_uint64 * self.count)()
        call("cuMemcpyDtoH_v2", found, self.at, ctypes.c_size_t(8 * self.count))
        return list(found)
