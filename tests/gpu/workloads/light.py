"""Kernels that occupy the GPU as a training does, with threads that sleep: the GPU does not reduce its clock for them."""

import ctypes

# Blocks for each multiprocessor, and threads of a block: all that it takes.
BLOCKS, THREADS = 2, 1024
KERNEL_NS = 1_000_000
STEP_KERNELS = 20

PTX = f"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry light()
{{
    .reg .pred %is;
    .reg .b64 %began, %now;
    mov.u64 %began, %globaltimer;
AGAIN:
    nanosleep.u32 2000;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %is, %now, {KERNEL_NS};
    @%is bra AGAIN;
    ret;
}}
"""


def steps(torch):
    """A step: 20 kernels of 1 ms."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    blocks = BLOCKS * torch.cuda.get_device_properties(0).multi_processor_count

    def check(status):
        if status:
            raise RuntimeError(f"the driver answered {status}")

    torch.zeros(1, device="cuda")
    check(driver.cuModuleLoadData(ctypes.byref(module), PTX.encode() + b"\0"))
    check(driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"light"))

    def step():
        for _ in range(STEP_KERNELS):
            check(driver.cuLaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream, None, None))

    return step
