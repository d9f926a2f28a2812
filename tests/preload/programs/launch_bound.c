/* launch_bound TOKENS LAUNCHES SPIN_NS BLOCKS   a launch-bound program, as eager decoding of a language model is. A token is LAUNCHES launches
 * on the legacy default stream with SPIN_NS of the host's own work before each, a copy on the GPU after each tenth of them, an event
 * recorded and queried, a copy of 8 bytes to the host, and one wait. Before each of BLOCKS blocks of TOKENS tokens it waits for a line
 * on stdin. After each it prints the median time of a token, that of the first launch behind a wait, and that of the wait, in
 * nanoseconds. Then it prints how often this thread called the driver where it made how many calls, each function that was called more
 * often than the program did, and how often the hook's tracker went to sleep within how many microseconds. */
#include "common.h"
#include <dirent.h>
#include <dlfcn.h>
#include <time.h>

enum { N = 64, WARM_UP = 50, LAUNCHES_OF_A_COPY = 10 };

static const char *const FUNCTIONS[] = {
    "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuStreamGetCtx", "cuStreamGetFlags",
    "cuStreamIsCapturing", "cuStreamQuery", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventElapsedTime",
    "cuEventDestroy_v2", "cuPointerGetAttribute", "cuLaunchKernel", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize",
    "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2", "cuStreamBatchMemOp_v2", "cuCtxSynchronize",
};
enum { COUNTED = sizeof FUNCTIONS / sizeof *FUNCTIONS };

static uint64_t own[COUNTED];
static uint64_t own_total;
static Gpu gpu;
static CUdeviceptr data, copy;
static CUevent event;
static uint64_t *answer;

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void spin(uint64_t ns) {
    for (uint64_t until = now_ns() + ns; ns && now_ns() < until;) {}
}

static void made(const char *function) {
    own_total++;
    for (int i = 0; i < COUNTED; i++) own[i] += !strcmp(FUNCTIONS[i], function);
}

static void count_token(unsigned long launches) {
    for (unsigned long i = 0; i < launches; i++) {
        made("cuLaunchKernel");
        if (i % LAUNCHES_OF_A_COPY == 0) made("cuMemcpyDtoDAsync_v2");
    }
    made("cuEventRecord");
    made("cuEventQuery");
    made("cuMemcpyDtoHAsync_v2");
    made("cuStreamSynchronize");
}

typedef struct { uint64_t token, first, wait; } Times;

static Times token(unsigned long launches, uint64_t spin_ns) {
    uint64_t begun = now_ns(), first = 0;
    for (unsigned long i = 0; i < launches; i++) {
        spin(spin_ns);
        uint64_t before = i == 0 ? now_ns() : 0;
        DO(launch(gpu.add, data, N, 1, NULL));
        if (i == 0) first = now_ns() - before;
        if (i % LAUNCHES_OF_A_COPY == 0) DO(cuMemcpyDtoDAsync_v2(copy, data, 8, NULL));
    }
    DO(cuEventRecord(event, NULL));
    CUresult finished = cuEventQuery(event);
    EXPECT(finished == CUDA_SUCCESS || finished == CUDA_ERROR_NOT_READY);
    DO(cuMemcpyDtoHAsync_v2(answer, data, 8, NULL));
    uint64_t waits = now_ns();
    DO(cuStreamSynchronize(NULL));
    uint64_t ended = now_ns();
    return (Times){ended - begun, first, ended - waits};
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static unsigned long median(const Times *times, unsigned long count, size_t field) {
    uint64_t values[count];
    for (unsigned long i = 0; i < count; i++) values[i] = *(const uint64_t *)((const char *)&times[i] + field);
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* How often the thread of this name has gone to sleep. */
static unsigned long sleeps(const char *thread) {
    unsigned long found = 0;
    DIR *tasks = opendir("/proc/self/task");
    EXPECT(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[128], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            unsigned long voluntary;
            sscanf(line, "Name: %63s", name);
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &voluntary) == 1 && !strcmp(name, thread)) found += voluntary;
        }
        if (status != NULL) fclose(status);
    }
    closedir(tasks);
    return found;
}

int main(int count, char **arguments) {
    EXPECT(count == 5);
    unsigned long tokens = strtoul(arguments[1], NULL, 10), launches = strtoul(arguments[2], NULL, 10);
    unsigned long spin_ns = strtoul(arguments[3], NULL, 10), blocks = strtoul(arguments[4], NULL, 10);
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "sluiceSimCalls");
    uint64_t before[COUNTED], all = 0;
    void *host;
    char line[16];
    gpu = open_gpu();
    data = numbers(N);
    copy = numbers(N);
    DO(cuMemAllocHost_v2(&host, 8));
    answer = host;
    DO(cuEventCreate(&event, 2));
    for (int i = 0; i < WARM_UP; i++) token(launches, spin_ns);
    SAY("ready");
    for (unsigned long block = 0; block < blocks; block++) {
        Times times[tokens];
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
        for (int i = 0; i < COUNTED; i++) before[i] = calls ? calls(FUNCTIONS[i]) : 0;
        all = calls ? calls(NULL) : 0;
        uint64_t begun = now_ns();
        unsigned long slept = sleeps("sluice-tracker");
        for (unsigned long i = 0; i < tokens; i++) times[i] = token(launches, spin_ns);
        slept = sleeps("sluice-tracker") - slept;
        uint64_t made_calls = calls ? calls(NULL) - all : 0;
        SAY("token %lu first %lu wait %lu", median(times, tokens, offsetof(Times, token)), median(times, tokens, offsetof(Times, first)),
            median(times, tokens, offsetof(Times, wait)));
        memset(own, 0, sizeof own);
        own_total = 0;
        for (unsigned long i = 0; i < tokens; i++) count_token(launches);
        SAY("calls %lu of %lu", (unsigned long)made_calls, (unsigned long)own_total);
        for (int i = 0; calls && i < COUNTED; i++) {
            uint64_t called = calls(FUNCTIONS[i]) - before[i];
            if (called != own[i]) SAY("%s %ld", FUNCTIONS[i], (long)(called - own[i]));
        }
        SAY("tracker %lu in %lu", slept, (unsigned long)(now_ns() - begun) / 1000);
    }
    return 0;
}
