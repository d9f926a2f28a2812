/* What every program here starts with: a context, the kernels, and arithmetic to check their results to the bit.
 * Exit codes: 0 as expected, 10 a driver call failed, 11 a result was wrong, 12 the program could not do its part. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cu.h"
#include "kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DRIVER = 10, EXIT_WRONG = 11, EXIT_BROKEN = 12 };

#define DO(call)                                                                                                       \
    do {                                                                                                               \
        CUresult r_ = (call);                                                                                          \
        if (r_ != CUDA_SUCCESS) {                                                                                      \
            fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, r_);                                 \
            exit(EXIT_DRIVER);                                                                                         \
        }                                                                                                              \
    } while (0)

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(EXIT_WRONG);                                                                                          \
        }                                                                                                              \
    } while (0)

typedef struct {
    CUdevice device;
    CUcontext context;
    CUfunction mix, add, spin;
} Gpu;

/* Whether the GPU is a real one. */
__attribute__((unused)) static int is_real;

/* The kernels, in the current context. */
__attribute__((unused)) static CUmodule load_kernels(void) {
    CUmodule module;
    is_real = cuModuleLoadData(&module, MODULE) != CUDA_SUCCESS;
    if (is_real) DO(cuModuleLoadData(&module, PTX));
    return module;
}

__attribute__((unused)) static Gpu open_gpu_number(int number) {
    Gpu gpu;
    DO(cuInit(0));
    DO(cuDeviceGet(&gpu.device, number));
    DO(cuDevicePrimaryCtxRetain(&gpu.context, gpu.device));
    DO(cuCtxSetCurrent(gpu.context));
    CUmodule module = load_kernels();
    DO(cuModuleGetFunction(&gpu.mix, module, "mix"));
    DO(cuModuleGetFunction(&gpu.add, module, "add"));
    DO(cuModuleGetFunction(&gpu.spin, module, "spin"));
    return gpu;
}

__attribute__((unused)) static Gpu open_gpu(void) { return open_gpu_number(0); }

__attribute__((unused)) static CUresult launch(CUfunction kernel, CUdeviceptr data, unsigned n, unsigned micros,
                                               CUstream stream) {
    void *arguments[] = {&data, &n, &micros};
    return cuLaunchKernel(kernel, 132, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

/* Device memory holding 0, 1, .. n - 1. */
__attribute__((unused)) static CUdeviceptr numbers(unsigned n) {
    CUdeviceptr data;
    uint64_t *host = malloc(n * sizeof *host);
    for (unsigned i = 0; i < n; i++) host[i] = i;
    DO(cuMemAlloc_v2(&data, n * sizeof *host));
    DO(cuMemcpyHtoD_v2(data, host, n * sizeof *host));
    free(host);
    return data;
}

/* Whether `data` is what `times` runs of "mix" make of numbers(n): each run counts, and none may run twice. */
__attribute__((unused)) static int mixed(CUdeviceptr data, unsigned n, unsigned long times) {
    uint64_t *host = malloc(n * sizeof *host);
    DO(cuMemcpyDtoH_v2(host, data, n * sizeof *host));
    int same = 1;
    for (unsigned i = 0; i < n && same; i++) {
        uint64_t x = i;
        for (unsigned long t = 0; t < times; t++) x = x * 6364136223846793005u + 1442695040888963407u + i;
        same = host[i] == x;
    }
    free(host);
    return same;
}

/* Whether every number in `data` has been added to `times` times. */
__attribute__((unused)) static int added(CUdeviceptr data, unsigned n, unsigned long times) {
    uint64_t *host = malloc(n * sizeof *host);
    DO(cuMemcpyDtoH_v2(host, data, n * sizeof *host));
    int same = 1;
    for (unsigned i = 0; i < n && same; i++) same = host[i] == i + times;
    free(host);
    return same;
}

/* One line on stdout, visible to the test at once. */
#define SAY(...)                                                                                                       \
    do {                                                                                                               \
        printf(__VA_ARGS__);                                                                                           \
        putchar('\n');                                                                                                 \
        fflush(stdout);                                                                                                \
    } while (0)
