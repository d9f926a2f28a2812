/* Which calls of the driver wait while a stream of their context stands at a gate?
 *
 * Before each call a gate is shut in front of kernels, and the GPU says that it has come to it. A thread opens the gate when the call
 * has not returned for a quarter of a second: a call that returns after that has waited. Prints a JSON line for each call: its answer, its
 * time, whether it waited; "loaded" says whether the kernel in question was loaded by then (drivers load lazily). What the simulator does
 * not have is left out there, and said. */
#define _GNU_SOURCE
#include <pthread.h>

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
#define MORE_CALLS(X)                                                                                                  \
    X(cuFuncIsLoaded, int *, CUfunction)                                                                               \
    X(cuFuncLoad, CUfunction)                                                                                          \
    X(cuFuncGetAttribute, int *, int, CUfunction)                                                                      \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *, CUfunction, int, size_t)                                     \
    X(cuModuleUnload, CUmodule)                                                                                        \
    X(cuStreamBeginCapture_v2, CUstream, int)                                                                          \
    X(cuStreamEndCapture, CUstream, CUgraph *)                                                                         \
    X(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)                                         \
    X(cuGraphUpload, CUgraphExec, CUstream)                                                                            \
    X(cuGraphLaunch, CUgraphExec, CUstream)                                                                            \
    X(cuGraphExecDestroy, CUgraphExec)                                                                                 \
    X(cuMemAlloc_v2, CUdeviceptr *, size_t)                                                                            \
    X(cuMemFree_v2, CUdeviceptr)                                                                                       \
    X(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)                                                                \
    X(cuMemFreeAsync, CUdeviceptr, CUstream)                                                                           \
    X(cuMemGetInfo_v2, size_t *, size_t *)                                                                             \
    X(cuMemFreeHost, void *)                                                                                           \
    X(cuMemHostRegister_v2, void *, size_t, unsigned)                                                                  \
    X(cuMemHostUnregister, void *)                                                                                     \
    X(cuMemcpyHtoD_v2, CUdeviceptr, const void *, size_t)                                                              \
    X(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)                                               \
    X(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream)                                                     \
    X(cuStreamDestroy_v2, CUstream)                                                                                    \
    X(cuEventQuery, CUevent)                                                                                           \
    X(cuEventDestroy_v2, CUevent)                                                                                      \
    X(cuCtxCreate_v2, CUcontext *, unsigned, int)                                                                      \
    X(cuCtxDestroy_v2, CUcontext)                                                                                      \
    X(cuCtxSetLimit, int, size_t)
#include "memops.h"

/* Bytes of a copy, and an allocation that the driver has no room for in what it keeps. */
enum { MIB = 1 << 20, LARGE = 64 << 20 };
enum { CAPTURE_RELAXED = 2, LIMIT_PRINTF = 1, REGISTERS = 4 };
static const long PATIENCE_NS = 250000000;

#define PTX_RETURNS(name) PTX_ENTRY(name) "{\nret;\n}\n"
/* Uses so many bytes of local memory a thread. */
#define PTX_LOCAL(bytes)                                                                                               \
    PTX_ENTRY("local") "{\n.local .align 4 .b8 stack[" #bytes "];\n.reg .b32 %i, %v;\n.reg .b64 %a, %p;\n"             \
    "ld.param.u32 %i, [n];\nmul.wide.u32 %p, %i, 4;\nmov.u64 %a, stack;\nadd.u64 %a, %a, %p;\nst.local.u32 [%a], %i;\n" \
    "ld.local.u32 %v, [%a+4];\nld.param.u64 %p, [ptr];\ncvta.to.global.u64 %p, %p;\nst.global.u32 [%p], %v;\nret;\n}\n"
#define PTX_WITH(bytes) PTX_HEAD PTX_TICK PTX_RETURNS("other") PTX_RETURNS("third") PTX_LOCAL(bytes)
static const char SMALL_LOCAL[] = PTX_WITH(64), LARGE_LOCAL[] = PTX_WITH(65536);
static const char SIMULATED[] = SIMULATED_HEAD SIMULATED_KERNEL("tick") SIMULATED_KERNEL("other") SIMULATED_KERNEL("third");

static CUfunction tick;
/* Runs beside the one that stands. */
static CUstream beside;
/* The kernel whose state is told with a call, if any. */
static CUfunction in_question;

/* The thread that opens the gate for a call that waits. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t number;
    int is_shut, had_to_open;
    struct timespec until;
} gatekeeper = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *keep_gate(void *unused) {
    (void)unused;
    pthread_mutex_lock(&gatekeeper.lock);
    for (;;) {
        if (!gatekeeper.is_shut || gatekeeper.had_to_open) {
            pthread_cond_wait(&gatekeeper.changed, &gatekeeper.lock);
        } else if (pthread_cond_timedwait(&gatekeeper.changed, &gatekeeper.lock, &gatekeeper.until) && gatekeeper.is_shut) {
            gatekeeper.had_to_open = 1;
            gpu.page->word = gatekeeper.number;
        }
    }
    return NULL;
}

static void start_gatekeeper(void) {
    pthread_t thread;
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&gatekeeper.changed, &by_clock);
    if (pthread_create(&thread, NULL, keep_gate, NULL)) DIE("no thread");
}

static CUresult tick_on(CUstream stream) { return launch(tick, stream, 1, 32, 10000); }

static uint64_t call_began;

/* Has the stream stand at a gate with kernels behind it. */
static void shut(void) {
    DO(gate(gpu.stream, ++gatekeeper.number));
    for (int i = 0; i < 4; i++) DO(tick_on(gpu.stream));
    for (const uint64_t until = now_ns() + 10000000000u; gpu.page->arrived != gatekeeper.number;)
        if (now_ns() > until) DIE("the stream has not come to its gate");
    pthread_mutex_lock(&gatekeeper.lock);
    clock_gettime(CLOCK_MONOTONIC, &gatekeeper.until);
    gatekeeper.until.tv_nsec += PATIENCE_NS;
    gatekeeper.until.tv_sec += gatekeeper.until.tv_nsec / 1000000000;
    gatekeeper.until.tv_nsec %= 1000000000;
    gatekeeper.is_shut = 1, gatekeeper.had_to_open = 0;
    pthread_cond_signal(&gatekeeper.changed);
    pthread_mutex_unlock(&gatekeeper.lock);
    call_began = now_ns();
}

/* Opens the gate, unless that had to be done before, and tells what came of the call. */
static void told(const char *what, CUresult answer) {
    const double us = (double)(now_ns() - call_began) / 1e3;
    int loaded = -1;
    pthread_mutex_lock(&gatekeeper.lock);
    const int waited = gatekeeper.had_to_open;
    gatekeeper.is_shut = 0;
    pthread_cond_signal(&gatekeeper.changed);
    pthread_mutex_unlock(&gatekeeper.lock);
    /* Whether it stood all the time, by the GPU's own word. */
    const int stood = gpu.page->passed != gatekeeper.number;
    gpu.page->word = gatekeeper.number;
    DO(cuStreamSynchronize(gpu.stream));
    if (in_question && cuFuncIsLoaded) DO(cuFuncIsLoaded(&loaded, in_question));
    TELL("{\"call\": \"%s\", \"answer\": %d, \"us\": %.1f, \"waits\": %s, \"stood\": %s, \"loaded\": %s}", what, answer, us,
         waited ? "true" : "false", stood ? "true" : "false", loaded < 0 ? "null" : loaded ? "true" : "false");
}

static void left_out(const char *what, const char *why) { TELL("{\"call\": \"%s\", \"left_out\": \"%s\"}", what, why); }

/* A call of the driver, which may not have it. */
#define TRY(what, function, arguments)                                                                                 \
    do {                                                                                                               \
        if (function) {                                                                                                \
            shut();                                                                                                    \
            told(what, function arguments);                                                                            \
        } else {                                                                                                       \
            left_out(what, "the driver has no " #function);                                                            \
        }                                                                                                              \
    } while (0)

/* Several calls, as a function here. */
#define TRY_ALL(what, call)                                                                                            \
    do {                                                                                                               \
        shut();                                                                                                        \
        told(what, call);                                                                                              \
    } while (0)

static CUresult run_on(CUfunction kernel, CUstream stream) {
    CUresult launched = launch(kernel, stream, 1, 32, 10000);
    return launched ? launched : cuStreamSynchronize(stream);
}

static CUresult capture_of(CUfunction kernel, CUgraph *graph) {
    DO(cuStreamBeginCapture_v2(beside, CAPTURE_RELAXED));
    CUresult launched = launch(kernel, beside, 1, 32, 10000), ended = cuStreamEndCapture(beside, graph);
    return launched ? launched : ended;
}

static CUresult graph_to_its_end(CUgraphExec graph) {
    CUresult launched = cuGraphLaunch(graph, beside);
    return launched ? launched : cuStreamSynchronize(beside);
}

static void kernels(CUmodule *loaded) {
    CUfunction kernel;
    CUmodule module;
    int value;
    TRY_ALL("launch of a loaded kernel", run_on(tick, beside));
    TRY("module load", cuModuleLoadData, (&module, gpu.is_real ? SMALL_LOCAL : SIMULATED));
    TRY("function of a module", cuModuleGetFunction, (&kernel, module, "tick"));
    in_question = kernel;
    TRY("attribute of a function", cuFuncGetAttribute, (&value, REGISTERS, kernel));
    TRY_ALL("first launch of a kernel", run_on(kernel, beside));
    DO(cuModuleGetFunction(&kernel, module, "other"));
    in_question = kernel;
    TRY("occupancy of a kernel", cuOccupancyMaxActiveBlocksPerMultiprocessor, (&value, kernel, 32, 0));
    TRY("load of a function", cuFuncLoad, (kernel));
    TRY_ALL("first launch of a kernel that was asked for", run_on(kernel, beside));
    in_question = NULL;
    *loaded = module;
}

static void graphs(CUmodule module) {
    CUfunction kernel;
    CUgraph graph;
    CUgraphExec exec;
    DO(cuModuleGetFunction(&kernel, module, "third"));
    in_question = kernel;
    TRY_ALL("capture of a kernel that has not run", capture_of(kernel, &graph));
    in_question = NULL;
    TRY("graph instantiate", cuGraphInstantiateWithFlags, (&exec, graph, 0));
    TRY("graph upload", cuGraphUpload, (exec, beside));
    TRY_ALL("graph launch", graph_to_its_end(exec));
    TRY("graph destroy", cuGraphExecDestroy, (exec));
}

static void local_memory(CUmodule module) {
    CUfunction kernel;
    if (!gpu.is_real) {
        left_out("launch with 64 bytes of local memory", "local memory is not simulated");
        left_out("launch with 64 KiB of local memory", "local memory is not simulated");
        return;
    }
    DO(cuModuleGetFunction(&kernel, module, "local"));
    TRY_ALL("launch with 64 bytes of local memory", run_on(kernel, beside));
    DO(cuModuleLoadData(&module, LARGE_LOCAL));
    DO(cuModuleGetFunction(&kernel, module, "local"));
    TRY_ALL("launch with 64 KiB of local memory", run_on(kernel, beside));
    TRY("module unload", cuModuleUnload, (module));
}

static void memory(void) {
    CUdeviceptr at = 0;
    size_t free, all;
    TRY("alloc of 64 MiB", cuMemAlloc_v2, (&at, LARGE));
    TRY("free", cuMemFree_v2, (at));
    TRY("alloc of 4 KiB", cuMemAlloc_v2, (&at, 4096));
    DO(cuMemFree_v2(at));
    TRY("memory info", cuMemGetInfo_v2, (&free, &all));
    TRY("alloc in a stream", cuMemAllocAsync, (&at, MIB, beside));
    TRY_ALL("wait for an alloc in a stream", cuStreamSynchronize(beside));
    TRY("free in a stream", cuMemFreeAsync, (at, beside));
    TRY_ALL("wait for a free in a stream", cuStreamSynchronize(beside));
}

static CUresult copy_in(CUdeviceptr to, const void *from) {
    CUresult copied = cuMemcpyHtoDAsync_v2(to, from, MIB, beside);
    return copied ? copied : cuStreamSynchronize(beside);
}

static CUresult copy_out(void *to, CUdeviceptr from) {
    CUresult copied = cuMemcpyDtoHAsync_v2(to, from, MIB, beside);
    return copied ? copied : cuStreamSynchronize(beside);
}

static void copies(void) {
    CUdeviceptr at;
    void *pinned = NULL, *pageable = aligned_alloc(4096, MIB);
    if (!pageable) DIE("no memory");
    memset(pageable, 1, MIB);
    DO(cuMemAlloc_v2(&at, MIB));
    TRY("pinned memory", cuMemHostAlloc, (&pinned, MIB, 0));
    TRY_ALL("copy from pinned memory", copy_in(at, pinned));
    TRY_ALL("copy to pinned memory", copy_out(pinned, at));
    TRY_ALL("copy from pageable memory in a stream", copy_in(at, pageable));
    TRY("copy from pageable memory", cuMemcpyHtoD_v2, (at, pageable, MIB));
    TRY("free of pinned memory", cuMemFreeHost, (pinned));
    TRY("register memory", cuMemHostRegister_v2, (pageable, MIB, 0));
    TRY("unregister memory", cuMemHostUnregister, (pageable));
    DO(cuMemFree_v2(at));
    free(pageable);
}

static CUresult event_of_a_kernel(void) {
    CUevent event;
    DO(cuEventCreate(&event, 0));
    DO(tick_on(beside));
    DO(cuEventRecord(event, beside));
    DO(cuStreamSynchronize(beside));
    CUresult reached = cuEventQuery(event), destroyed = cuEventDestroy_v2(event);
    return reached ? reached : destroyed;
}

/* More than a context has channels of its own for by default: some share the channel of the one that stands. */
static CUresult forty_streams(void) {
    enum { COUNT = 40 };
    CUstream streams[COUNT];
    for (int i = 0; i < COUNT; i++) {
        DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        DO(tick_on(streams[i]));
    }
    for (int i = 0; i < COUNT; i++) DO(cuStreamSynchronize(streams[i]));
    return 0;
}

static void streams(void) {
    CUstream made;
    TRY("stream create", cuStreamCreate, (&made, CU_STREAM_NON_BLOCKING));
    TRY_ALL("launch on a new stream", run_on(tick, made));
    TRY("stream destroy", cuStreamDestroy_v2, (made));
    TRY_ALL("event create, record, query, destroy", event_of_a_kernel());
    TRY_ALL("launch on the legacy default stream", run_on(tick, NULL));
    TRY_ALL("launches on 40 streams", forty_streams());
}

static void contexts(void) {
    CUcontext other;
    TRY("context create", cuCtxCreate_v2, (&other, 0, 0));
    DO(cuCtxSetCurrent(gpu.context));
    TRY("context destroy", cuCtxDestroy_v2, (other));
    DO(cuCtxSetCurrent(gpu.context));
    TRY("limit of printf", cuCtxSetLimit, (LIMIT_PRINTF, 4 * MIB));
}

int main(void) {
    CUmodule module = open_gpu(SMALL_LOCAL, SIMULATED);
    DO(cuModuleGetFunction(&tick, module, "tick"));
    DO(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    DO(run_on(tick, gpu.stream));
    DO(run_on(tick, beside));
    start_gatekeeper();
    kernels(&module);
    graphs(module);
    local_memory(module);
    memory();
    copies();
    streams();
    contexts();
    TELL("{\"record\": \"end\", \"simulated\": %s}", gpu.is_real ? "false" : "true");
    return 0;
}
