// The kernel of the examples on the driver API, for a GPU and for the simulated one, which reads kernels in a format of its own.
#pragma once

#if __has_include(<cuda.h>)
#include <cuda.h>
#else
#include "driver.h"
#endif

#include "check.h"

// work(number, count, us): takes `us` microseconds, then adds one to each of `count` numbers.
static const char PTX[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry work(.param .u64 number, .param .u32 count, .param .u32 us)
{
    .reg .pred %over;
    .reg .b32 %i, %width, %count, %us;
    .reg .b64 %began, %now, %limit, %at, %value;
    mov.u64 %began, %globaltimer;
    ld.param.u32 %us, [us];
    mul.wide.u32 %limit, %us, 1000;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %over, %now, %limit;
    @%over bra AGAIN;
    mov.u32 %i, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mul.lo.u32 %i, %i, %width;
    mov.u32 %width, %tid.x;
    add.u32 %i, %i, %width;
    ld.param.u32 %count, [count];
    setp.ge.u32 %over, %i, %count;
    @%over bra END;
    ld.param.u64 %at, [number];
    cvta.to.global.u64 %at, %at;
    mul.wide.u32 %value, %i, 8;
    add.u64 %at, %at, %value;
    ld.global.u64 %value, [%at];
    add.u64 %value, %value, 1;
    st.global.u64 [%at], %value;
END:
    ret;
}
)";
static const char SIMULATED[] = "SLUICE-SIM 1\nkernel work params=ptr:u64,n:u32,iters:u32 ns_per_iter=1000 effect=add\n";

// Makes the first GPU's primary context current and loads the kernel.
static CUfunction load_work_kernel() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    if (cuModuleLoadData(&module, PTX) != CUDA_SUCCESS) DO(cuModuleLoadData(&module, SIMULATED));
    DO(cuModuleGetFunction(&kernel, module, "work"));
    return kernel;
}

static void launch_work(CUfunction kernel, CUdeviceptr number, unsigned count, unsigned us, CUstream stream) {
    void *parameters[] = {&number, &count, &us};
    DO(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
}
