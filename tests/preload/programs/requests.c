/* requests HINT LOOK N   what one request of a latency-critical service costs its own thread: N requests of an input copy, a graph, a
 * copy of the answer and a wait, each after all work has finished. HINT is none, auto (as the program's environment says) or api (a
 * hint ahead of each). With LOOK=1 each call is between two markers (getppid) for a tracer. Prints how often this
 * thread called the driver where it made four calls a request, then each function that was called more often than the program did,
 * then how many holds were launched. */
#include "common.h"
#include "../../../hook/include/sluice.h"
#include <dlfcn.h>
#include <time.h>

enum { N = 64, PATIENCE_S = 60, LEAD_US = 300, WARM_UP = 20 };

static const char *const FUNCTIONS[] = {
    "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuStreamGetCtx", "cuStreamGetFlags",
    "cuStreamIsCapturing", "cuStreamQuery", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventElapsedTime",
    "cuEventDestroy_v2", "cuPointerGetAttribute", "cuLaunchKernel", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize", "cuDeviceGetCount", "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2", "cuStreamBatchMemOp_v2",
};
enum { COUNTED = sizeof FUNCTIONS / sizeof *FUNCTIONS };

static uint64_t (*calls)(const char *);
static sluice_result (*hint)(unsigned);
static size_t (*hold_counters)(uint64_t *, size_t);
static Gpu gpu;
static CUdeviceptr data;
static CUstream stream;
static CUgraphExec graph;
static uint64_t input[N], output[N];
static int looked_at;

static void mark(void) {
    if (looked_at) getppid();
}

static void request(void) {
    mark();
    DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, stream));
    mark();
    mark();
    DO(cuGraphLaunch(graph, stream));
    mark();
    mark();
    DO(cuMemcpyDtoHAsync_v2(output, data, sizeof output, stream));
    mark();
    DO(cuStreamSynchronize(stream));
}

static void capture(void) {
    CUgraph captured;
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    DO(launch(gpu.mix, data, N, 10, stream));
    DO(cuStreamEndCapture(stream, &captured));
    DO(cuGraphInstantiateWithFlags(&graph, captured, 0));
}

static uint64_t holds(void) {
    uint64_t all[2] = {0, 0};
    if (hold_counters) hold_counters(all, 2);
    return all[0];
}

/* Until hints are followed, if they are to be. */
static void warm_up(int by_api, int hinted) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int i = 0; i < WARM_UP || (hinted && holds() == 0); i++) {
        if (by_api) hint(LEAD_US);
        request();
        clock_gettime(CLOCK_MONOTONIC, &now);
        EXPECT(now.tv_sec - begun.tv_sec < PATIENCE_S);
    }
}

int main(int count, char **arguments) {
    EXPECT(count == 4);
    int by_api = !strcmp(arguments[1], "api"), hinted = strcmp(arguments[1], "none") != 0;
    unsigned long requests = strtoul(arguments[3], NULL, 10);
    uint64_t before[COUNTED], own[COUNTED] = {0};
    calls = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "sluiceSimCalls");
    hint = (sluice_result(*)(unsigned))dlsym(RTLD_DEFAULT, "sluice_hint");
    hold_counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_holds");
    EXPECT(calls && (hint || !hinted));
    gpu = open_gpu();
    for (int i = 0; i < N; i++) input[i] = i;
    data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    capture();
    warm_up(by_api, hinted);
    for (int i = 0; i < COUNTED; i++) {
        before[i] = calls(FUNCTIONS[i]);
        const char *called[] = {"cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"};
        for (int o = 0; o < 4; o++)
            if (!strcmp(FUNCTIONS[i], called[o])) own[i] = requests;
    }
    uint64_t all = calls(NULL), launched = holds();
    if (arguments[2][0] == '1') {
        char line[16];
        SAY("ready");
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
        looked_at = 1;
    }
    for (unsigned long i = 0; i < requests; i++) {
        if (by_api) EXPECT(hint(LEAD_US) == SLUICE_OK);
        request();
    }
    looked_at = 0;
    SAY("calls %lu of %lu", (unsigned long)(calls(NULL) - all), 4 * requests);
    for (int i = 0; i < COUNTED; i++) {
        uint64_t made = calls(FUNCTIONS[i]) - before[i];
        if (made != own[i]) SAY("%s %ld", FUNCTIONS[i], (long)(made - own[i]));
    }
    SAY("holds %lu", (unsigned long)(holds() - launched));
    EXPECT(mixed(data, N, 1));
    return 0;
}
