/* bypass WHAT: does something that the hook may let pass ungoverned, and prints the hook's counters: launches, allocations
 * refused, grants, panics, then bypassed calls by reason. WHAT: plain, patient, early, switched, capture, contextless, forked, nested, abi, stalled. */
#include "common.h"
#include <dlfcn.h>
#include <sys/wait.h>

enum { N = 64, FIXED = 4, MOST = 64, DRAIN_STALLED = FIXED + 8 };
static size_t (*counters)(uint64_t *, size_t);

static void report(void) {
    uint64_t values[MOST] = {0};
    size_t count = counters(values, MOST);
    for (size_t i = 0; i < count && i < MOST; i++) printf("%s%lu", i ? " " : "", (unsigned long)values[i]);
    SAY("%s", "");
}

static void plain(void) {
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(N);
    for (int i = 0; i < 10; i++) DO(launch(gpu.mix, data, N, 100, NULL));
    DO(cuCtxSynchronize());
    EXPECT(mixed(data, N, 10));
}

static void capture(void) {
    Gpu gpu = open_gpu();
    CUgraph graph;
    CUstream stream;
    CUdeviceptr data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL));
    for (int i = 0; i < 10; i++) DO(launch(gpu.mix, data, N, 100, stream));
    DO(cuStreamEndCapture(stream, &graph));
}

/* The driver refuses the first call, because it is not initialised. */
static void early(void) {
    CUhandle handle;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    EXPECT(cuMemCreate(&handle, 2 << 20, &prop, 0) == CUDA_ERROR_NOT_INITIALIZED);
    plain();
}

/* Launches until there was a grant, for at most 5 s. */
static void patient(void) {
    uint64_t values[MOST] = {0};
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(N);
    for (int i = 0; i < 500 && values[2] == 0; i++) {
        DO(launch(gpu.mix, data, N, 100, NULL));
        DO(cuCtxSynchronize());
        usleep(10 * 1000);
        counters(values, MOST);
    }
}

/* The environment is changed after the driver was initialised. */
static void switched(void) {
    DO(cuInit(0));
    EXPECT(setenv("SLUICE_DISABLE", "1", 1) == 0);
    plain();
}

/* In the child of a process that has used the driver: the calls return, whatever they answer. */
static void forked(void) {
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(N), spare;
    int status = 0;
    DO(launch(gpu.mix, data, N, 100, NULL));
    pid_t child = fork();
    if (child == 0) {
        launch(gpu.mix, data, N, 100, NULL);
        cuMemAlloc_v2(&spare, 4096);
        return;
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    _exit(0);
}

/* Needs programs/odd_driver.c in the place of the driver. */
static void nested(void) {
    CUdeviceptr data;
    size_t pitch;
    open_gpu();
    DO(cuMemAllocPitch_v2(&data, &pitch, 1024, 1024, 16));
}

/* Likewise. */
static void abi(void) {
    void *function = NULL;
    int status;
    open_gpu();
    DO(cuGetProcAddress_v2("cuMemAlloc", &function, 3020, LOOKUP_DEFAULT, &status));
    EXPECT(function);
}

/* A grant ends, by the demand of another client, under a kernel that does not: its drain is waited for only so long. */
static void stalled(void) {
    uint64_t values[MOST] = {0};
    unsigned n = 0, micros = 600 * 1000 * 1000, one = 1;
    CUdeviceptr data = 0;
    void *endless[] = {&data, &n, &micros}, *short_one[] = {&data, &n, &one};
    CUstream stream;
    Gpu gpu = open_gpu();
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    /* One block each, so that the short ones run beside the endless one. */
    DO(cuLaunchKernel(gpu.spin, 1, 1, 1, 32, 1, 1, 0, stream, endless, NULL));
    while (values[DRAIN_STALLED] == 0) {
        DO(cuLaunchKernel(gpu.spin, 1, 1, 1, 32, 1, 1, 0, NULL, short_one, NULL));
        DO(cuStreamSynchronize(NULL));
        counters(values, MOST);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "plain";
    counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_counters");
    EXPECT(counters);
    if (!strcmp(what, "plain")) plain();
    if (!strcmp(what, "patient")) patient();
    if (!strcmp(what, "early")) early();
    if (!strcmp(what, "switched")) switched();
    if (!strcmp(what, "capture")) capture();
    if (!strcmp(what, "contextless")) EXPECT(launch(NULL, 0, 0, 0, NULL) != CUDA_SUCCESS);
    if (!strcmp(what, "forked")) forked();
    if (!strcmp(what, "nested")) nested();
    if (!strcmp(what, "abi")) abi();
    if (!strcmp(what, "stalled")) stalled();
    report();
    _exit(0);
}
