"""A kernel that occupies the whole GPU for some microseconds, without PyTorch. It runs on a GPU and on the simulated one."""

import ctypes

# spin(number, count, us). The simulated GPU reads kernels in a format of its own.
SIMULATED = b"SLUICE-SIM 1\nkernel spin params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 effect=none\n\0"
PTX = b"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 number, .param .u32 count, .param .u32 us)
{
    .reg .pred %over;
    .reg .b32 %us;
    .reg .b64 %began, %now, %limit;
    mov.u64 %began, %globaltimer;
    ld.param.u32 %us, [us];
    mul.wide.u32 %limit, %us, 1000;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %over, %now, %limit;
    @%over bra AGAIN;
    ret;
}
\0"""
SM_COUNT, THREADS_PER_SM, BLOCK = 16, 39, 1024


class Spin:
    """Made in a task, or in a thread with a current context. `spin(us, stream)` submits one kernel."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        module, self.kernel, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        if self.driver.cuModuleLoadData(ctypes.byref(module), PTX) != 0:
            self.call("cuModuleLoadData", ctypes.byref(module), SIMULATED)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"spin")
        self.call("cuCtxGetDevice", ctypes.byref(device))
        sms, threads = (self.attribute(number, device) for number in (SM_COUNT, THREADS_PER_SM))
        self.blocks = sms * (threads // BLOCK)

    def __call__(self, us, stream):
        values = ctypes.c_uint64(0), ctypes.c_uint32(0), ctypes.c_uint32(us)
        parameters = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])
        self.call("cuLaunchKernel", self.kernel, self.blocks, 1, 1, BLOCK, 1, 1, 0, ctypes.c_void_p(stream), parameters, None)

    def wait(self, stream):
        """Waits for the work of a stream."""
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def attribute(self, number, device):
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def call(self, function, *arguments):
        code = getattr(self.driver, function)(*arguments)
        if code != 0:
            raise RuntimeError(f"{function}: CUDA error {code}")
