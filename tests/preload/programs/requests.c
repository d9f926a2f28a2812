/* requests HINT LOOK N   what one request of a latency-critical service costs its own thread: N requests of an input copy, a graph, a
 * copy of the answer and a wait, each after all work has finished. HINT is none, auto (as the program's environment says) or api (a
 * hint ahead of each). With LOOK=1 each call is between two markers (getppid) for a tracer. The hook measures a few requests with
 * events; they are counted separately, and made in addition to N. Prints for each of them the times in us since the program's begin
 * before and after it, the calls of the thread to the driver in it, and the events recorded. Then prints how often this thread called
 * the driver in the N others, where it made four calls a request, then each function that was called more often than the program did,
 * then how many holds were launched. */
#include "common.h"
#include "../../../hook/include/sluice.h"
#include <dlfcn.h>
#include <time.h>

enum { N = 64, PATIENCE_S = 60, LEAD_US = 300, WARM_UP = 20 };

static const char *const FUNCTIONS[] = {
    "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuStreamGetCtx", "cuStreamGetFlags",
    "cuStreamIsCapturing", "cuStreamQuery", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventElapsedTime",
    "cuEventDestroy_v2", "cuPointerGetAttribute", "cuPointerGetAttributes", "cuLaunchKernel", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuDeviceGetCount", "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2", "cuStreamBatchMemOp_v2",
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

static unsigned long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ul + now.tv_nsec / 1000;
}

/* A request, and whether the hook measured it with events. If so, prints it, and adds its calls and holds to those given. */
static int is_measured(int by_api, unsigned long begun_us, uint64_t *apart, uint64_t *apart_all, uint64_t *apart_holds) {
    uint64_t before[COUNTED], all = calls(NULL), recorded = calls("cuEventRecord"), held = holds();
    unsigned long from = now_us();
    if (apart) for (int i = 0; i < COUNTED; i++) before[i] = calls(FUNCTIONS[i]);
    if (by_api) EXPECT(hint(LEAD_US) == SLUICE_OK);
    request();
    recorded = calls("cuEventRecord") - recorded;
    if (!recorded) return 0;
    all = calls(NULL) - all;
    SAY("measured %lu %lu %lu %lu", from - begun_us, now_us() - begun_us, (unsigned long)all, (unsigned long)recorded);
    if (!apart) return 1;
    for (int i = 0; i < COUNTED; i++) apart[i] += calls(FUNCTIONS[i]) - before[i];
    *apart_all += all;
    *apart_holds += holds() - held;
    return 1;
}

/* Until hints are followed, if they are to be. */
static void warm_up(int by_api, int hinted, unsigned long begun_us) {
    for (int i = 0; i < WARM_UP || (hinted && holds() == 0); i++) {
        if (by_api) hint(LEAD_US);
        is_measured(0, begun_us, NULL, NULL, NULL);
        EXPECT(now_us() - begun_us < PATIENCE_S * 1000000ul);
    }
}

int main(int count, char **arguments) {
    EXPECT(count == 4);
    int by_api = !strcmp(arguments[1], "api"), hinted = strcmp(arguments[1], "none") != 0;
    unsigned long requests = strtoul(arguments[3], NULL, 10);
    uint64_t before[COUNTED], own[COUNTED] = {0}, apart[COUNTED] = {0}, apart_all = 0, apart_holds = 0;
    unsigned long begun_us = now_us();
    calls = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "sluiceSimCalls");
    hint = (sluice_result(*)(unsigned))dlsym(RTLD_DEFAULT, "sluice_hint");
    hold_counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_holds");
    EXPECT(calls && (hint || !hinted));
    gpu = open_gpu();
    for (int i = 0; i < N; i++) input[i] = i;
    data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    capture();
    warm_up(by_api, hinted, begun_us);
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
    for (unsigned long i = 0; i < requests;) i += !is_measured(by_api, begun_us, apart, &apart_all, &apart_holds);
    looked_at = 0;
    SAY("calls %lu of %lu", (unsigned long)(calls(NULL) - all - apart_all), 4 * requests);
    for (int i = 0; i < COUNTED; i++) {
        uint64_t made = calls(FUNCTIONS[i]) - before[i] - apart[i];
        if (made != own[i]) SAY("%s %ld", FUNCTIONS[i], (long)(made - own[i]));
    }
    SAY("holds %lu", (unsigned long)(holds() - launched - apart_holds));
    EXPECT(mixed(data, N, 1));
    return 0;
}
