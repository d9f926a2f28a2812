/* What gates.c and waits.c share: the driver, found by dlopen; a page that host and GPU see, with the words of a gate; the gate as the
 * hook makes it; a kernel that counts itself. MORE_CALLS, defined before, names what else of the driver a program calls: what the
 * driver lacks is NULL there. */
#pragma once
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

/* CUstreamBatchMemOpParams, and its kinds. */
typedef struct {
    uint32_t kind;
    uint64_t address, value;
    uint32_t flags;
    uint64_t alias, rest;
} Operation;
_Static_assert(sizeof(Operation) == 48, "the driver's layout");
enum { WAIT = 1, WRITE = 2 };
enum { GEQ = 0, WRITE_DEFAULT = 0, WRITE_UNFENCED = 1 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_MEMHOSTALLOC_DEVICEMAP = 2 };

#define CALLS(X)                                                                                                       \
    X(cuInit, unsigned)                                                                                                \
    X(cuDeviceGet, int *, int)                                                                                         \
    X(cuDevicePrimaryCtxRetain, CUcontext *, int)                                                                      \
    X(cuCtxSetCurrent, CUcontext)                                                                                      \
    X(cuModuleLoadData, CUmodule *, const void *)                                                                      \
    X(cuModuleGetFunction, CUfunction *, CUmodule, const char *)                                                       \
    X(cuMemHostAlloc, void **, size_t, unsigned)                                                                       \
    X(cuMemHostGetDevicePointer_v2, CUdeviceptr *, void *, unsigned)                                                   \
    X(cuStreamCreate, CUstream *, unsigned)                                                                            \
    X(cuStreamSynchronize, CUstream)                                                                                   \
    X(cuStreamBatchMemOp_v2, CUstream, unsigned, Operation *, unsigned)                                                \
    X(cuEventCreate, CUevent *, unsigned)                                                                              \
    X(cuEventRecord, CUevent, CUstream)                                                                                \
    X(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,      \
      void **, void **)

#define DECLARE(name, ...) static CUresult (*name)(__VA_ARGS__);
CALLS(DECLARE)
MORE_CALLS(DECLARE)

#define DIE(...)                                                                                                       \
    do {                                                                                                               \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

#define DO(call)                                                                                                       \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_) DIE("%s:%d: %s answered %d", __FILE__, __LINE__, #call, result_);                                 \
    } while (0)

/* One JSON object, as a line of its own, seen at once. */
#define TELL(...)                                                                                                      \
    do {                                                                                                               \
        printf(__VA_ARGS__);                                                                                           \
        putchar('\n');                                                                                                 \
        fflush(stdout);                                                                                                \
    } while (0)

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* A line of the cache for each, so that a store to one does not delay a load of another. */
typedef struct {
    /* A gate lets through from this number on that is its own. */
    _Alignas(64) volatile uint32_t word;
    /* The last gate that the GPU has come to, and the last that it has passed. */
    _Alignas(64) volatile uint32_t arrived;
    _Alignas(64) volatile uint32_t passed;
    /* Kernels that have ended. */
    _Alignas(64) volatile uint64_t done;
} Page;

static struct {
    CUcontext context;
    CUstream stream;
    Page *page;
    CUdeviceptr at;
    int is_real;
} gpu;

static Operation of(uint32_t kind, size_t offset, uint32_t value, uint32_t flags) {
    return (Operation){kind, gpu.at + offset, value, flags, 0, 0};
}

/* The gate of that number, as the hook puts it in front of work. */
static CUresult gate(CUstream stream, uint32_t number) {
    Operation batch[] = {
        of(WRITE, offsetof(Page, arrived), number, WRITE_DEFAULT),
        of(WAIT, offsetof(Page, word), number, GEQ),
        of(WRITE, offsetof(Page, passed), number, WRITE_DEFAULT),
    };
    return cuStreamBatchMemOp_v2(stream, 3, batch, 0);
}

/* Each block is busy for `iters` ns by the GPU's clock; then the first thread of all counts. */
#define PTX_HEAD ".version 6.4\n.target sm_70\n.address_size 64\n"
#define PTX_ENTRY(name) ".visible .entry " name "(.param .u64 ptr, .param .u32 n, .param .u32 iters)\n"
#define PTX_TICK                                                                                                       \
    PTX_ENTRY("tick")                                                                                                  \
    "{\n.reg .pred %more;\n.reg .b32 %thread, %block;\n.reg .b64 %begin, %now, %ns, %at;\n"                            \
    "ld.param.u64 %at, [ptr];\nld.param.u32 %thread, [iters];\ncvt.u64.u32 %ns, %thread;\n"                            \
    "mov.u64 %begin, %globaltimer;\nAGAIN:\nmov.u64 %now, %globaltimer;\nsub.u64 %now, %now, %begin;\n"                \
    "setp.lt.u64 %more, %now, %ns;\n@%more bra AGAIN;\nmov.u32 %thread, %tid.x;\nmov.u32 %block, %ctaid.x;\n"          \
    "or.b32 %thread, %thread, %block;\nsetp.ne.u32 %more, %thread, 0;\n@%more ret;\ncvta.to.global.u64 %at, %at;\n"    \
    "ld.volatile.global.u64 %now, [%at];\nadd.u64 %now, %now, 1;\nst.volatile.global.u64 [%at], %now;\n"               \
    "membar.sys;\nret;\n}\n"
#define SIMULATED_HEAD "SLUICE-SIM 1\n"
#define SIMULATED_KERNEL(name) "kernel " name " params=ptr:u64,n:u32,iters:u32 ns_per_iter=1 effect=add\n"

static CUresult launch(CUfunction kernel, CUstream stream, unsigned blocks, unsigned threads, uint32_t ns) {
    CUdeviceptr counter = gpu.at + offsetof(Page, done);
    uint32_t one = 1;
    void *given[] = {&counter, &one, &ns};
    return cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, given, NULL);
}

static void look_up(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

static void find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) DIE("%s", dlerror());
#define FIND(name, ...) look_up(library, #name, &name);
    CALLS(FIND)
    MORE_CALLS(FIND)
#define NEED(name, ...)                                                                                                \
    if (!name) DIE("the driver has no %s", #name);
    CALLS(NEED)
}

/* A context, a stream that others do not wait for, the page, and the module: `simulated` where that is understood, else `ptx`. */
static CUmodule open_gpu(const char *ptx, const char *simulated) {
    int device;
    void *page;
    CUmodule module;
    find_driver();
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&gpu.context, device));
    DO(cuCtxSetCurrent(gpu.context));
    gpu.is_real = cuModuleLoadData(&module, simulated) != 0;
    if (gpu.is_real) DO(cuModuleLoadData(&module, ptx));
    DO(cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING));
    DO(cuMemHostAlloc(&page, sizeof(Page), CU_MEMHOSTALLOC_DEVICEMAP));
    memset(page, 0, sizeof(Page));
    DO(cuMemHostGetDevicePointer_v2(&gpu.at, page, 0));
    gpu.page = page;
    return module;
}
