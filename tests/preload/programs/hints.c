/* hints requests N   N requests of a copy and three kernels; prints how many holds were launched and released
 * hints answer       prints the result of sluice_hint after some requests
 * hints answers      the answers of a process that may hold, one after another
 * hints waits        a wait for the whole context releases a hold, one for a stream does not before the launch
 * hints contexts     contexts end with holds out
 * hints forks        a child holds nothing, the parent goes on
 * hints captures     nothing is held while a stream is captured, and the capture is none the worse
 * hints expires      gives a hint without a request and prints a line; a request follows much later, at the next line on stdin
 * hints far          gives a hint far ahead and prints a line; continues at the next line on stdin
 * hints announces    gives a hint for each line on stdin and prints its result; for the line "request" it makes one, for
 *                    "begin" it begins one by sluice_request_begin
 * hints exits        ends with a hold out
 * hints contenders   each line on stdin runs some requests and prints how many were held */
#include "common.h"
#include "../../../hook/include/sluice.h"
#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>

enum { N = 64, KERNELS = 3, PATIENCE_S = 60, LEAD_US = 300, GONE_MS = 50 };

static sluice_result (*hint)(unsigned);
static sluice_result (*begin)(void);
static size_t (*hold_counters)(uint64_t *, size_t);
static size_t (*hook_counters)(uint64_t *, size_t);
static Gpu gpu;
static CUdeviceptr data;
static CUstream stream;
static uint64_t input[N];
static unsigned long requests;

/* A hold that the host has not released ends by itself; that is counted some time later. */
typedef struct { uint64_t launched, released, planned, late_ns, latest_ns, missed, unreleased; } Holds;

static Holds holds(void) {
    Holds all;
    EXPECT(hold_counters((uint64_t *)&all, 7) == 7);
    return all;
}

static uint64_t ended(void) { return holds().released + holds().unreleased; }

/* Holds that were launched by now are over. */
static void until_ended(void) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (ended() < holds().launched) {
        usleep(1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        EXPECT(now.tv_sec - begun.tv_sec < PATIENCE_S);
    }
}

static void look_up(void) {
    hint = (sluice_result(*)(unsigned))dlsym(RTLD_DEFAULT, "sluice_hint");
    begin = (sluice_result(*)(void))dlsym(RTLD_DEFAULT, "sluice_request_begin");
    hold_counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_holds");
    hook_counters = (size_t(*)(uint64_t *, size_t))dlsym(RTLD_DEFAULT, "sluice_hook_counters");
    EXPECT(hint && begin && hold_counters && hook_counters);
}

static void copy_in(void) { DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, stream)); }

static void compute(void) {
    for (int i = 0; i < KERNELS; i++) DO(launch(gpu.mix, data, N, 10, stream));
    requests++;
}

static void request(void) {
    copy_in();
    compute();
    DO(cuStreamSynchronize(stream));
}

static void correct(void) {
    if (requests) EXPECT(mixed(data, N, KERNELS));
}

static void prepare(void) {
    look_up();
    gpu = open_gpu();
    for (int i = 0; i < N; i++) input[i] = i;
    data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* Requests until hints are followed; the context is made ready for them by another thread. */
static void until_ready(void) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        request();
        clock_gettime(CLOCK_MONOTONIC, &now);
        EXPECT(now.tv_sec - begun.tv_sec < PATIENCE_S);
    } while (hint(LEAD_US) != SLUICE_OK);
    request();
}

static void run(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) request();
}

static void answers(void) {
    until_ready();
    EXPECT(hint(2000000) == SLUICE_INVALID);
    EXPECT(hint(LEAD_US) == SLUICE_OK);
    EXPECT(hint(LEAD_US) == SLUICE_BEGUN);
    DO(launch(gpu.spin, data, N, 100, stream));
    EXPECT(hint(LEAD_US) == SLUICE_RUNNING);
    DO(cuStreamSynchronize(stream));
    EXPECT(hint(0) == SLUICE_OK);
    DO(cuCtxSetCurrent(NULL));
    EXPECT(hint(LEAD_US) == SLUICE_NO_CONTEXT);
    DO(cuCtxSetCurrent(gpu.context));
    request();
}

static void waits(void) {
    until_ready();
    EXPECT(hint(LEAD_US) == SLUICE_OK);
    /* The hint has released a hold that lingered. */
    uint64_t released = holds().released;
    copy_in();
    DO(cuStreamSynchronize(stream));
    EXPECT(holds().released == released);
    DO(cuCtxSynchronize());
    EXPECT(holds().released == released + 1);
    compute();
    DO(cuStreamSynchronize(stream));
    EXPECT(holds().released == released + 1);
}

static void contexts(void) {
    for (int round = 0; round < 20; round++) {
        CUcontext own;
        CUmodule module;
        DO(cuCtxCreate_v2(&own, 0, gpu.device));
        CUfunction before = gpu.mix;
        DO(cuModuleLoadData(&module, MODULE));
        DO(cuModuleGetFunction(&gpu.mix, module, "mix"));
        data = numbers(N);
        DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        /* Some end in the middle of being made ready, some with a hold out, some after requests. */
        if (round % 4 == 0) hint(LEAD_US);
        else until_ready();
        if (round % 4 == 2) EXPECT(hint(1000) == SLUICE_OK);
        correct();
        requests = 0;
        DO(cuCtxDestroy_v2(own));
        gpu.mix = before;
    }
    DO(cuCtxSetCurrent(gpu.context));
    data = numbers(N);
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    until_ready();
}

static void forks(void) {
    until_ready();
    EXPECT(hint(LEAD_US) == SLUICE_OK);
    uint64_t before = holds().launched;
    pid_t child = fork();
    if (child == 0) {
        int answer = hint(LEAD_US);
        cuMemcpyHtoDAsync_v2(data, input, sizeof input, stream);
        launch(gpu.mix, data, N, 1, stream);
        cuStreamSynchronize(stream);
        _exit(answer == SLUICE_DISABLED && holds().launched == before ? 0 : EXIT_WRONG);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    request();
    EXPECT(hint(LEAD_US) == SLUICE_OK);
    request();
}

static void captures(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUstream captured;
    until_ready();
    DO(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    uint64_t before = holds().launched;
    DO(cuStreamBeginCapture_v2(captured, CAPTURE_RELAXED));
    DO(cuMemcpyHtoDAsync_v2(data, input, sizeof input, captured));
    for (int i = 0; i < KERNELS; i++) DO(launch(gpu.mix, data, N, 10, captured));
    EXPECT(hint(LEAD_US) == SLUICE_CAPTURING);
    EXPECT(holds().launched == before);
    DO(cuStreamEndCapture(captured, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 10; i++) {
        EXPECT(hint(LEAD_US) == SLUICE_OK);
        DO(cuGraphLaunch(exec, captured));
        DO(cuStreamSynchronize(captured));
    }
    until_ended();
    EXPECT(holds().launched >= before + 10);
}

static void contenders(void) {
    char line[16];
    SAY("ready");
    while (fgets(line, sizeof line, stdin)) {
        uint64_t before = holds().launched;
        run(20);
        int answer = hint(LEAD_US);
        request();
        SAY("held %d answer %d", holds().launched != before, answer);
    }
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    if (!strcmp(part, "answer")) {
        look_up();
        EXPECT(hint(LEAD_US) == SLUICE_NO_CONTEXT);
    }
    prepare();
    if (!strcmp(part, "requests")) {
        until_ready();
        uint64_t launches[1], before;
        hook_counters(launches, 1);
        before = launches[0];
        run(strtoul(arguments[2], NULL, 10));
        hook_counters(launches, 1);
        SAY("launches %lu of %lu", (unsigned long)(launches[0] - before), KERNELS * strtoul(arguments[2], NULL, 10));
    } else if (!strcmp(part, "answer")) {
        run(10);
        SAY("answer %d", hint(LEAD_US));
    } else if (!strcmp(part, "answers")) answers();
    else if (!strcmp(part, "waits")) waits();
    else if (!strcmp(part, "contexts")) contexts();
    else if (!strcmp(part, "forks")) forks();
    else if (!strcmp(part, "captures")) captures();
    else if (!strcmp(part, "expires")) {
        char line[16];
        until_ready();
        SAY("ready");
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
        EXPECT(hint(LEAD_US) == SLUICE_OK);
        struct timespec hinted, now;
        clock_gettime(CLOCK_MONOTONIC, &hinted);
        SAY("hinted");
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - hinted.tv_sec) * 1000 + (now.tv_nsec - hinted.tv_nsec) / 1000000 < GONE_MS);
        request();
    } else if (!strcmp(part, "far")) {
        char line[16];
        until_ready();
        EXPECT(hint(1000000) == SLUICE_OK);
        SAY("hinted");
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
        request();
        SAY("requested");
        EXPECT(fgets(line, sizeof line, stdin) != NULL);
    } else if (!strcmp(part, "announces")) {
        char line[16];
        request();
        SAY("ready");
        while (fgets(line, sizeof line, stdin)) {
            if (!strcmp(line, "begin\n")) SAY("begun %d", begin());
            else if (strcmp(line, "request\n")) SAY("hinted %d", hint(LEAD_US));
            else {
                request();
                SAY("requested");
            }
        }
    } else if (!strcmp(part, "contenders")) contenders();
    else if (!strcmp(part, "exits")) {
        until_ready();
        EXPECT(hint(LEAD_US) == SLUICE_OK);
        exit(0);
    } else return EXIT_BROKEN;
    correct();
    int expires = !strcmp(part, "expires");
    if (!expires) until_ended();
    SAY("holds %d released %d", holds().launched > 0, (expires ? holds().released : ended()) >= holds().launched);
    return 0;
}
